"""``fedsplit audit``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from fedsplit.commands.terminal import live
from fedsplit.errors import InputError
from fedsplit.texts import printable

SHOWN = 20
"""How many troubles are printed."""


def audit_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The client's file, if it is not where it was."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The log, if it is not in the folder."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER:HASH",
            help="A line that the log must have: what the server's model.json has for this client "
            "under logs.",
        ),
    ] = None,
) -> None:
    """Check the log of a client: that no line was changed, and that its answers come out again.

    DIR is the folder of the client's state. Every answer is computed again from the client's data:
    with the same version of fedsplit it must be equal bit by bit, otherwise to 1e-12. Nothing
    leaves this machine, and nothing is written.

    Exit status: 0 all is right; 1 a line was changed, is missing, or has another answer; 2 bad
    input.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; fedsplit client makes it")
    path = log or folder / "questions.jsonl"
    if not path.is_file():
        raise InputError(f"{path}: there is no log")
    from fedsplit.sites.log.replay import audit  # pandas takes a second to import
    from fedsplit.sites.service import ALLOWED

    expected = _read_head(head)
    found = audit(folder, ALLOWED, data, log, _progress)
    if live():
        typer.echo("\r\x1b[K", err=True, nl=False)
    if expected is not None and found.heads.get(expected[0]) != expected[1]:
        found.troubles.append(f"line {expected[0]} is not the one that the server knows")
    typer.echo(
        f"{found.lines:,} lines; {found.equal + found.close:,} answers came out again, "
        f"{found.equal:,} of them bit by bit"
    )
    if found.head is not None:
        typer.echo(f"the last line is {found.head.number}:{found.head.hash}")
    for trouble in found.troubles[:SHOWN]:
        typer.echo(printable(f"wrong: {trouble}"))
    if len(found.troubles) > SHOWN:
        typer.echo(f"wrong: {len(found.troubles) - SHOWN:,} more")
    if found.troubles:
        raise typer.Exit(1)
    typer.echo("nothing is wrong")


def _read_head(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,15}):([0-9a-f]{64})", text.strip())
    if match is None:
        raise InputError(f"--head must be a number, a colon and a hash, not {text!r}")
    return int(match[1]), match[2]


def _progress(number: int) -> None:
    if live() and number % 10 == 0:
        typer.echo(f"\rline {number:,}", err=True, nl=False)
