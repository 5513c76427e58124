"""``fedsplit refusals``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsplit.commands.approving import client_folders
from fedsplit.sites.refusals import Refusals
from fedsplit.texts import printable


def refusals_command(
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the client's state; by default those in ~/.local/state/fedsplit.",
        ),
    ] = None,
    clear: Annotated[
        bool,
        typer.Option("--clear", help="You have looked: the client answers again."),
    ] = False,
) -> None:
    """Show what a client has refused because of its data, and why.

    The server is told only that something was refused. After as many refusals as the client's
    rules allow, three by default, it answers nothing until its owner has looked: with --clear it
    answers again.

    Exit status: 0 done; 2 bad input.
    """
    shown = 0
    for each in client_folders(folder):
        refusals = Refusals(each)
        found = refusals.found()
        shown += len(found)
        if found:
            typer.echo(f"{each}")
        for line in found:
            typer.echo(printable(f"  {line['time']}  {line['question']}: {line['why']}"))
        if clear:
            refusals.clear()
    if not shown:
        typer.echo("nothing was refused")
    elif clear:
        typer.echo("these are cleared: the client answers again")
