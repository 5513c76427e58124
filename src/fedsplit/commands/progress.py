"""How far the work is: live on a terminal, silent elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn


def progress() -> Progress:
    """A bar for each task."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[gap]}"),
        console=Console(stderr=True),
        transient=True,
        disable=not live(),
    )


def printable(text: str) -> str:
    """Text from elsewhere without what a terminal would obey."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text
    )


def live() -> bool:
    """Whether somebody is looking."""
    return sys.stderr is not None and sys.stderr.isatty()
