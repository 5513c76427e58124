"""``fedsplit refusals``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsplit.commands.approving import Folder, client_folders
from fedsplit.sites.refusals import Refusals
from fedsplit.texts import printable


def refusals_command(
    folder: Folder = None,
    clear: Annotated[
        bool,
        typer.Option("--clear", help="You have reviewed them: the client answers again."),
    ] = False,
) -> None:
    """Show what a client has refused because of its data, and why.

    The server is told only that something was refused. After as many refusals as the client's
    rules allow, three by default, it answers nothing until its owner has reviewed them: with
    --clear it answers again.

    Exit status: 0 done; 2 bad input, such as a folder of no client.
    """
    for each in client_folders(folder):
        refusals = Refusals(each)
        found = refusals.found()
        if not found:
            typer.echo(_nothing(each, refusals.cleared))
            continue
        typer.echo(f"{each}")
        for line in found:
            typer.echo(printable(f"  {line['time']}  {line['question']}: {line['why']}"))
        if clear:
            refusals.clear()
            typer.echo("  cleared: the client answers again")


def _nothing(folder: Path, cleared: str) -> str:
    if not cleared:
        return f"{folder}: nothing was refused"
    return (
        f"{folder}: nothing was refused since {cleared}, when you cleared the list; the log has "
        "what was refused before"
    )
