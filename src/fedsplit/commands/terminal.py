"""What users see on a terminal beside results: progress and errors, on stderr."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from importlib.metadata import requires
from textwrap import TextWrapper
from typing import TYPE_CHECKING

import typer

import fedsplit as fs
from fedsplit.commands.options import CORE, NAMES
from fedsplit.texts import one_line, printable

if TYPE_CHECKING:
    from rich.progress import Progress


def progress() -> Progress:
    """A bar for each task, where stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

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


def wrapped(text: str, columns: int = 80, indent: int = 2) -> str:
    """A text whose long lines break between words.

    Lines of several facts, which have wider spaces between them, break there.
    """
    fill = TextWrapper(
        columns,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).fill
    lines = (
        re.compile(r"(?<=\S) (?=\S)").sub("\xa0", line) if "   " in line.lstrip() else line
        for line in text.split("\n")
    )
    shown = (fill(line) if len(line) > columns else line for line in lines)
    return "\n".join(shown).replace("\xa0", " ")


def show_key(key: bytes) -> None:
    """Print a public key as people compare it by telephone."""
    typer.echo(wrapped(f"  {fs.authority.in_groups(key)}", 44))


def say(line: str) -> None:
    """Print on stderr what happens, with the time; texts of others may be in it."""
    with suppress(OSError):  # a terminal that is gone changes nothing
        typer.echo(printable(wrapped(f"{datetime.now():%H:%M:%S} {line}", indent=9)), err=True)


def live() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def print_error(error: Exception | str) -> None:
    """Print an error in one line."""
    text = str(error)
    if isinstance(error, OSError):
        text = f"{error.filename or 'output'}: {error.strerror or error}"
    if isinstance(error, NotADirectoryError):
        text += ": a part of this path is a file, name another folder"
    if isinstance(error, FileExistsError):
        text += ": name another folder"
    if isinstance(error, ImportError) and error.name:
        text = f"a package that fedsplit needs cannot be imported ({error}): {_mend(error.name)}"
    typer.echo(f"fedsplit: error: {one_line(in_options(text), None)}", err=True)


def _mend(module: str | None) -> str:
    """What to do where a package cannot be imported: some come with an extra."""
    package = (module or "").partition(".")[0]
    for line in requires("fedsplit") or ():
        wanted = r"extra == ['\"](\w+)"
        if package and re.match(rf"{package}\b", line) and (extra := re.search(wanted, line)):
            return f"pip install 'fedsplit[{extra[1]}]'"
    return "install it again"


def print_warnings() -> None:
    """From now on, print a warning of the library in one line."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        typer.echo(f"fedsplit: warning: {one_line(in_options(str(message)), None)}", err=True)

    warnings.showwarning = show


def in_options(text: str) -> str:
    """Return a message of the library in the words of the command line.

    ``types={'g': 'text'}`` is ``--types g=text`` there, and ``na=['-9']`` is ``--set na=-9``.
    """
    return _parameter().sub(_option, text)


@cache
def _parameter() -> re.Pattern[str]:
    """A parameter of ``fit`` in a message, with a value of Python or without one."""
    return re.compile(
        rf"\b({'|'.join(NAMES)})="
        r"(\{[^{}]*\}|\[[^\[\]]*\]|'[^']*'|(?![\w(]))"
    )


def _option(match: re.Match[str]) -> str:
    name, written = match.groups()
    flag = f"--{name} " if name in CORE else f"--set {name}="
    if not written:
        return flag.strip()
    value = ast.literal_eval(written)
    if isinstance(value, Mapping):
        value = [f"{key}={each}" for key, each in value.items()]
    return flag + shlex.quote(value if isinstance(value, str) else ",".join(value))
