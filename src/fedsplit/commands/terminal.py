"""What users see on a terminal beside results: progress and errors, on stderr."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import fields

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from fedsplit.regression.options import FitOptions
from fedsplit.texts import one_line

PARAMETER = re.compile(
    rf"\b({'|'.join(field.name for field in fields(FitOptions))})="
    r"(\{[^{}]*\}|\[[^\[\]]*\]|'[^']*'|(?![\w(]))"
)
"""A parameter of ``fit`` in a message, with a value of Python or without one."""


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
    typer.echo(f"fedsplit: error: {one_line(in_options(text))}", err=True)


def print_warnings() -> None:
    """From now on, print a warning of the library in one line."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        typer.echo(f"fedsplit: warning: {one_line(in_options(str(message)))}", err=True)

    warnings.showwarning = show


def in_options(text: str) -> str:
    """Return a message of the library in the words of the command line.

    ``types={'g': 'text'}`` is ``--types g=text`` there, and ``na=['-9']`` is ``--na=-9``.
    """
    return PARAMETER.sub(_option, text)


def _option(match: re.Match[str]) -> str:
    flag = "--" + match[1].replace("_", "-")
    if not match[2]:
        return flag
    value = ast.literal_eval(match[2])
    if isinstance(value, Mapping):
        value = [f"{key}={each}" for key, each in value.items()]
    given = value if isinstance(value, str) else ",".join(value)
    if given.startswith("-"):  # which would be another option
        return f"{flag}={given}"
    return f"{flag} {given if given.isalnum() or '=' in given else repr(given)}"
