"""``fedsplit report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import fedsplit as fs
from fedsplit.commands.help import Command, application
from fedsplit.commands.reproduce import summarise

report_app = application()


@report_app.command("report", cls=Command)
def report_command(folder: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Write the page of saved results again, without computing anything.

    Example: fedsplit report result

    DIR is a folder that fedsplit reproduce --out or fedsplit fit --out wrote.
    """
    if (folder / "model.json").exists():
        fs.load(folder).report(folder / "report.html")
        typer.echo(f"page: {folder / 'report.html'}")
        return
    from fedsplit.paper.report import write_report  # NumPy takes a second to import

    write_report(folder)
    summarise(folder)
