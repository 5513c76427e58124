"""``fedsplit compare``."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fedsplit import plots
from fedsplit.checks import one_of
from fedsplit.commands.options import Json, with_fields
from fedsplit.commands.progress import progress
from fedsplit.methods import METHODS, parse
from fedsplit.paper.comparison import (
    CONDITIONED,
    ENSEMBLES,
    TARGETS,
    ComparedRun,
    compare,
    generate,
)
from fedsplit.regression.engines import ENGINES
from fedsplit.regression.options import FitOptions

STYLED = {
    "fedgd": "fedgd-e1",
    "fedgd:local_steps=10": "fedgd-e10",
    "fedgd:local_steps=100": "fedgd-e100",
    "fedsplit:steps=5": "fedsplit-steps5",
}
"""Methods of the command line that have a style of their own in the paper's figures."""

PLACE = ("engine", "address", "cohorts")
"""Options of ``fit`` that say where clients run."""

DEFAULT_METHODS = [
    "fedgd",
    "fedgd:local_steps=10",
    "fedgd:local_steps=100",
    "fedprox",
    "fedsplit-plain",
    "fedsplit:steps=5",
    "fedsplit",
]


@with_fields(*(each for each in fields(FitOptions) if each.name in PLACE))
def compare_command(
    ensemble: Annotated[
        str, typer.Option(help=f"The kind of random problem: {', '.join(ENSEMBLES)}.")
    ] = "isotropic",
    clients: Annotated[int, typer.Option("--clients", "-m", min=1, help="Number of clients.")] = 25,
    features: Annotated[
        int, typer.Option("--features", "-d", min=1, help="Number of coordinates of x.")
    ] = 100,
    observations: Annotated[
        int, typer.Option("--observations", "-n", min=1, help="Observations a client.")
    ] = 500,
    kappa: Annotated[
        float, typer.Option(help=f"Condition number, of {', '.join(CONDITIONED)}.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random problem.")] = 0,
    rounds: Annotated[int, typer.Option(min=2, help="Most rounds for each method.")] = 50,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method with its settings; repeat for more: fedsplit, fedsplit-plain:steps=5,start=iterate, "
            f"fedprox:step=0.1, fedgd:local_steps=10. All: {', '.join(METHODS)}."
        ),
    ] = None,
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw gap against rounds to this .png, .svg or .pdf.")
    ] = None,
    **chosen: Any,
) -> None:
    """Run several methods on one random problem and print how many rounds each needs, or where it stops wrongly.

    Columns: rounds until the gap F(x) - F* is at most 1e-3, 1e-6 and 1e-9; where the run ended, the optimum or a floor
    of the gap; floats sent both ways.
    """
    one_of("engine", chosen["engine"], ENGINES)
    names = method or DEFAULT_METHODS
    methods = [(name, parse(name)) for name in names]
    if plot is not None:
        plots.check_target(plot)
    problem = generate(ensemble, clients, features, observations, kappa, seed)
    open_clients = ENGINES[chosen["engine"]].of_problem
    with open_clients(problem, chosen["cohorts"], chosen["address"]) as asked, progress() as bar:
        tasks = {name: bar.add_task(name, total=rounds, gap="") for name in names}
        runs = compare(
            problem,
            methods,
            rounds,
            lambda name, done, gap: bar.update(tasks[name], completed=done, gap=f"gap {gap:.1e}"),
            asked,
        )
    name = f"{ensemble}, κ = {kappa:g}" if ensemble in CONDITIONED else ensemble
    title = (
        f"{name}: m = {clients} clients, d = {features}, n = {observations} a client, seed {seed}"
    )
    if as_json:
        settings = {
            "ensemble": ensemble,
            "clients": clients,
            "features": features,
            "observations": observations,
            "kappa": kappa if ensemble in CONDITIONED else None,
            "seed": seed,
            "rounds": rounds,
        }
        typer.echo(
            json.dumps(
                settings | {"methods": [_json(run) for run in runs]}, indent=2, allow_nan=False
            )
        )
    else:
        Console().print(_table(runs, title))
    if plot is not None:
        tables = {
            STYLED.get(run.label, run.label): {"round": np.arange(len(run.gaps)), "gap": run.gaps}
            for run in runs
        }
        plots.save(plots.curves(tables, list(tables), title), plot)


def _table(runs: list[ComparedRun], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("method", overflow="fold")
    for target in TARGETS:
        table.add_column(f"{target:.0e}", justify="right")
    table.add_column("end")
    table.add_column("floats sent", justify="right")
    for run in runs:
        reached = [run.rounds_to(target) for target in TARGETS]
        cells = [
            str(found) if found is not None else "never" if run.outcome == "floor" else "–"
            for found in reached
        ]
        table.add_row(run.label, *cells, _end(run), f"{run.floats_up + run.floats_down:,}")
    return table


def _end(run: ComparedRun) -> str:
    gap, rounds = run.gaps[-1], len(run.gaps) - 1
    return {
        "reached": "optimum",
        "floor": f"floor {gap:.2g}",
        "falling": f"falling, {gap:.1e}",
        "diverged": f"diverged, round {rounds + 1}",
    }[run.outcome]


def _json(run: ComparedRun) -> dict[str, object]:
    return {
        "method": run.label,
        "step": np.asarray(run.step).tolist() if np.isfinite(run.step).all() else None,
        "rounds": len(run.gaps) - 1,
        "rounds_to": {f"{target:.0e}": run.rounds_to(target) for target in TARGETS},
        "outcome": run.outcome,
        "floor": run.gaps[-1] if run.outcome == "floor" else None,
        "floats_up": run.floats_up,
        "floats_down": run.floats_down,
        "gaps": [gap if math.isfinite(gap) else None for gap in run.gaps.tolist()],
    }
