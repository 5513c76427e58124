"""``fedsplit reproduce`` and ``fedsplit report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsplit.commands.progress import progress
from fedsplit.paper.experiments import EXPERIMENTS
from fedsplit.paper.report import write_report
from fedsplit.paper.reproduction import reproduce, select


def reproduce_command(
    out: Annotated[
        Path, typer.Option(help="The folder for figures, data, claims.json and index.html.")
    ],
    figures: Annotated[
        list[str] | None,
        typer.Argument(help=f"Which figures: {', '.join(EXPERIMENTS)}. All where none is named."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compute again what is there already.")
    ] = False,
) -> None:
    """Run the paper's experiments at full size; write every figure, the claims that it makes, checked, and one page.

    What is in the folder already, from the same settings and version, is not computed again.
    """
    chosen = select(figures or [])
    command = " ".join(
        [
            "fedsplit",
            "reproduce",
            *(figures or []),
            "--out",
            str(out),
            *(["--force"] if force else []),
        ]
    )
    with progress() as bar:
        overall = bar.add_task("all", total=sum(each.cost for each in chosen), gap="")
        tasks = {each.name: bar.add_task(each.name, total=each.cost, gap="") for each in chosen}

        def show(name: str, share: float, gap: float) -> None:
            note = f"gap {gap:.1e}" if share < 1 else ""
            bar.update(tasks[name], completed=share * EXPERIMENTS[name].cost, gap=note)
            bar.update(overall, completed=sum(bar.tasks[task].completed for task in tasks.values()))

        seconds = reproduce(chosen, out, command, force, show)
    for each in chosen:
        took = f"{seconds[each.name]:6.1f} s" if each.name in seconds else "unchanged"
        typer.echo(f"{each.name:6} {took:>10}  {each.title}")
    _summarise(out)


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(help="A folder that `fedsplit reproduce` or `fedsplit fit --out` wrote."),
    ],
) -> None:
    """Write the page again from saved data, without computing: a fit's, or the paper's with its figures and claims."""
    if (folder / "model.json").exists():
        from fedsplit.regression.result.io import (
            load,
        )  # pandas and formulas take a second to import

        load(folder).report(folder / "report.html")
        typer.echo(f"page: {folder / 'report.html'}")
        return
    write_report(folder)
    _summarise(folder)


def _summarise(out: Path) -> None:
    claims = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    typer.echo(f"{sum(claim['holds'] for claim in claims)} of {len(claims)} claims hold")
    for claim in claims:
        if not claim["holds"]:
            typer.echo(f"  not {claim['id']}: {claim['claim']} ({claim['reason']})")
    typer.echo(f"page: {out / 'index.html'}")
