"""What users see on a terminal beside results: progress and errors, on stderr."""

from __future__ import annotations

import re
import sys
import warnings

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from fedsplit.texts import one_line

PARAMETER = re.compile(r"\b([a-z_]+)=(?:\{'([^']*)': '([^']*)'\}|\{\.\.\.\}|\[\.\.\.\])")
"""A parameter of ``fit`` as messages name it: ``types={'x': 'text'}``, ``columns=[...]``."""


def as_options(text: str) -> str:
    """A text with the options of a command in the place of parameters: ``--types x=text``."""

    def option(match: re.Match[str]) -> str:
        name, key, value = match.groups()
        flag = f"--{name.replace('_', '-')}"
        return flag if key is None else f"{flag} {key}={value}"

    return PARAMETER.sub(option, text)


def progress() -> Progress:
    """A bar for each task, where stderr is a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[gap]}"),
        # before 14.3 rich ends a bar by an empty line, also one that is not shown
        console=Console(stderr=True, quiet=not live()),
        transient=True,
        disable=not live(),
    )


def live() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def print_error(error: Exception | str) -> None:
    """Print an error in one line."""
    text = str(error)
    if isinstance(error, OSError):
        text = f"{error.filename or 'output'}: {error.strerror or error}"
    if isinstance(error, ImportError):
        text = f"a package that fedsplit needs cannot be imported ({error}): install it again"
    typer.echo(f"fedsplit: error: {as_options(one_line(text))}", err=True)


def print_warnings() -> None:
    """From now on, print a warning of the library in one line."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        typer.echo(f"fedsplit: warning: {as_options(one_line(str(message)))}", err=True)

    warnings.showwarning = show
