"""``fedsplit audit``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsplit.commands.approving import check_client_folder
from fedsplit.commands.terminal import live
from fedsplit.errors import InputError
from fedsplit.sites.log.audit_log import Head
from fedsplit.texts import printable

if TYPE_CHECKING:
    from fedsplit.sites.log.audit import Audit

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
    """Check the log of a client: that no line was changed, and that its answers are reproduced.

    DIR is the folder of the client's state. What each line says is compared with the messages in
    it, and every answer is computed again from the client's data: with the same version of fedsplit
    it must be equal bit by bit, otherwise to 1e-12. Nothing leaves this machine, and nothing is
    written.

    That lines are missing at the end of the log is noticed with --head alone.

    Exit status: 0 OK; 1 a line was changed, is missing, or has another answer; 2 bad input.
    """
    check_client_folder(folder)
    path = log or folder / "questions.jsonl"
    if not path.is_file():
        raise InputError(f"{path}: there is no log")
    expected = _read_head(head)
    from fedsplit.sites.log.audit import audit  # pandas takes a second to import
    from fedsplit.sites.service import ALLOWED

    found = audit(folder, ALLOWED, data, log, expected, _progress)
    if live():
        typer.echo("\r\x1b[K", err=True, nl=False)
    _print(found)
    if found.troubles and data is not None:
        typer.echo(f"hint: is {data} the file of this client?")
    if expected is None:
        typer.echo(
            "hint: whether the log was cut at its end can be checked only with --head, which the "
            "server's model.json has under logs"
        )
    if found.troubles:
        raise typer.Exit(1)
    typer.echo("OK")


def _print(found: Audit) -> None:
    """Print what was found."""
    typer.echo(
        f"{found.lines:,} lines; {found.equal + found.close:,} answers reproduced, "
        f"{found.equal:,} of them exactly"
    )
    if found.first > 1:
        typer.echo(
            f"the log begins at line {found.first:,}, as earlier files were taken away; "
            f"{found.unprepared:,} answers cannot be computed without them"
        )
    if found.head is not None:
        typer.echo(f"the last line is {found.head.number}:{found.head.hash}")
    for trouble in found.troubles[:SHOWN]:
        typer.echo(printable(f"error: {trouble}"))
    if len(found.troubles) > SHOWN:
        typer.echo(f"error: {len(found.troubles) - SHOWN:,} more")


def _read_head(text: str | None) -> Head | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,15}):([0-9a-f]{64})", text.strip())
    if match is None:
        raise InputError(f"--head must be a number, a colon and a hash, not {text!r}")
    return Head(int(match[1]), match[2])


def _progress(number: int) -> None:
    if live() and number % 10 == 0:
        typer.echo(f"\rline {number:,}", err=True, nl=False)
