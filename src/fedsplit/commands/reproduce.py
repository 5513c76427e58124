"""``fedsplit reproduce``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsplit.commands.help import Command, application
from fedsplit.commands.terminal import progress

reproduce_app = application()


@reproduce_app.command("reproduce", cls=Command)
def reproduce_command(
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder for the figures, their data, claims.json and index.html."
        ),
    ],
    figures: Annotated[list[str] | None, typer.Argument()] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compute again what the folder has already.")
    ] = False,
) -> None:
    """Run the paper's experiments at full size, and check its claims.

    Example: fedsplit reproduce --out reproduction
    fedsplit reproduce fig1 fig4b --out reproduction

    FIGURES are some of fig1, fig2a, fig2b, fig3, fig4a and fig4b; by default all. The word open
    stands for all figures about what the paper leaves open, which are in examples/open of the
    repository: run them in a checkout. Every figure is written with its data, and one page shows
    the figures and the claims. What the folder has already, from the same settings and version, is
    not computed again.
    """
    from fedsplit.paper.reproduction import reproduce, select  # NumPy takes a second to import

    chosen = select(figures or [])
    words = ["fedsplit", "reproduce", *(figures or []), "--out", str(out)]
    if force:
        words.append("--force")
    with progress() as bar:
        overall = bar.add_task("all", total=sum(each.cost for each in chosen), gap="")
        tasks = {each.name: bar.add_task(each.name, total=each.cost, gap="") for each in chosen}
        costs = {each.name: each.cost for each in chosen}

        def show(name: str, share: float, gap: float) -> None:
            note = f"gap {gap:.1e}" * (share < 1)
            bar.update(tasks[name], completed=share * costs[name], gap=note)
            bar.update(overall, completed=sum(bar.tasks[task].completed for task in tasks.values()))

        seconds = reproduce(chosen, out, " ".join(words), force, show)
    for each in chosen:
        took = f"{seconds[each.name]:6.1f} s" if each.name in seconds else "unchanged"
        typer.echo(f"{each.name:6} {took:>10}  {each.title}")
    summarise(out)


def summarise(out: Path) -> None:
    """Print which claims hold in the results of a folder."""
    claims = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    typer.echo(f"{sum(claim['holds'] for claim in claims)} of {len(claims)} claims hold")
    for claim in claims:
        if not claim["holds"]:
            typer.echo(f"  not {claim['id']}: {claim['claim']} ({claim['reason']})")
    typer.echo(f"page: {out / 'index.html'}")
