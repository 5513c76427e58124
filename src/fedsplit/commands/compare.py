"""``fedsplit compare``."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fedsplit import plots
from fedsplit.checks import one_of
from fedsplit.commands.options import Json, with_fields
from fedsplit.commands.terminal import progress
from fedsplit.data.splitting import SPLITS
from fedsplit.errors import InputError
from fedsplit.methods import parse
from fedsplit.methods.default import default_method
from fedsplit.methods.information import FedSplitInformation
from fedsplit.paper.comparison import (
    CONDITIONED,
    ENSEMBLES,
    TARGETS,
    ComparedRun,
    compare,
    generate,
)
from fedsplit.problem import Problem
from fedsplit.regression.engines import ENGINES
from fedsplit.regression.options import FitOptions

STYLED = {
    "fedgd": "fedgd-e1",
    "fedgd:local_steps=10": "fedgd-e10",
    "fedgd:local_steps=100": "fedgd-e100",
    "fedsplit:steps=5": "fedsplit-steps5",
}
"""Methods of the command line that have a style of their own in the paper's figures."""

DEFAULT_METHODS = [
    "fedgd",
    "fedgd:local_steps=10",
    "fedgd:local_steps=100",
    "fedprox",
    "lbfgs",
    "fedsplit",
    "fedsplit:steps=5",
    "quasi-newton",
]
"""What is compared unless methods are named, beside "information" where Hessians are affordable."""


@with_fields(
    *(each for each in fields(FitOptions) if each.name in ("engine", "address", "cohorts"))
)
def compare_command(
    context: typer.Context,
    ensemble: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"Kind of random problem: {', '.join(ENSEMBLES)}."),
    ] = "isotropic",
    clients: Annotated[
        int, typer.Option("--clients", "-m", min=1, metavar="N", help="Number of clients.")
    ] = 25,
    features: Annotated[
        int,
        typer.Option("--features", "-d", min=1, metavar="N", help="Number of coordinates of x."),
    ] = 100,
    observations: Annotated[
        int,
        typer.Option(
            "--observations", "-n", min=1, metavar="N", help="Number of observations per client."
        ),
    ] = 500,
    kappa: Annotated[
        float, typer.Option(metavar="κ", help=f"Condition number of {', '.join(CONDITIONED)}.")
    ] = 10.0,
    libsvm: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Logistic regression on the rows of a LIBSVM file in the place of a random "
            "problem; they stay sparse.",
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"How the rows of --libsvm are split over the clients: {', '.join(SPLITS)}.",
        ),
    ] = "iid",
    ridge: Annotated[
        float,
        typer.Option(min=0.0, metavar="λ", help="Ridge (λ/2)‖x‖² on the whole cost of --libsvm."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed of the problem.")] = 0,
    device: Annotated[
        str | None,
        typer.Option(metavar="cuda", help="Draw the clients on a GPU, and run there."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="NAME", help="Precision on a device: float32 or float64.")
    ] = "float64",
    rounds: Annotated[
        int, typer.Option(min=2, metavar="N", help="Maximum number of rounds of each method.")
    ] = 50,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="Method, with its settings; may be repeated. The methods are listed below.",
        ),
    ] = None,
    as_json: Json = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the gaps to this .png, .svg or .pdf file."),
    ] = None,
    **chosen: Any,
) -> None:
    """Run several methods on one problem, and print the rounds that each needs.

    The columns are the number of rounds until the gap F(x) - F* is at most 1e-3, 1e-6 and 1e-9;
    where the run ended, at the optimum or at a gap above it that does not shrink (a floor); and
    the floats sent, both ways. Examples of methods: fedsplit, which is the paper's Algorithm 1,
    fedsplit:steps=5,start=iterate, fedprox:step=0.1, fedgd:local_steps=10.
    """
    one_of("engine", chosen["engine"], ENGINES)
    methods = [(name, parse(name)) for name in method or DEFAULT_METHODS]
    if plot is not None:
        plots.check_target(plot)
    if libsvm is None:
        _refuse(context, "is for the rows of --libsvm", "split", "ridge")
        if device is None:
            _refuse(context, "is for clients on a --device", "dtype")
        problem = generate(ensemble, clients, features, observations, kappa, seed, device, dtype)
        subject = _random(ensemble, clients, features, observations, kappa, seed)
        if device is not None:
            subject = subject.on(device, dtype)
    else:
        _refuse(context, "is for random problems", "ensemble", "features", "observations", "kappa")
        _refuse(context, "is for dense rows, and those of --libsvm stay sparse", "device", "dtype")
        problem = Problem.from_libsvm(libsvm, clients=clients, split=split, ridge=ridge, seed=seed)
        subject = _file(libsvm, split, ridge, problem, seed)
    if not method:
        # FedSplitInformation would refuse many columns, and take long with fewer
        default, _ = default_method(problem.clients.pooled())
        if isinstance(default, FedSplitInformation):
            methods.append(("information", default))
    open_clients = ENGINES[chosen["engine"]].of_problem
    with open_clients(problem, chosen["cohorts"], chosen["address"]) as asked, progress() as bar:
        tasks = {name: bar.add_task(name, total=rounds, gap="") for name, _ in methods}

        def show(name: str, done: int, gap: float) -> None:
            bar.update(tasks[name], completed=done, gap=f"gap {gap:.1e}")

        runs = compare(problem, methods, rounds, show, asked)
    if as_json:
        record = {
            **subject.facts,
            "seed": seed,
            "rounds": rounds,
            "methods": [_json(run) for run in runs],
        }
        typer.echo(json.dumps(record, indent=2, allow_nan=False))
    else:
        Console().print(_table(runs, subject.title))
    if plot is not None:
        _plot(runs, subject.title, plot)


def _refuse(context: typer.Context, reason: str, *names: str) -> None:
    """Raise InputError if one of these options was given, instead of leaving it without effect."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--{name} {reason}: leave it out")


def _plot(runs: list[ComparedRun], title: str, target: Path) -> None:
    """Write a figure of all gaps."""
    tables = {
        STYLED.get(run.label, run.label): {"round": np.arange(len(run.gaps)), "gap": run.gaps}
        for run in runs
    }
    plots.save(plots.curves(tables, list(tables), title), target)


class Subject(NamedTuple):
    """What is compared on: a line about it, and its part of the JSON object."""

    title: str
    facts: dict[str, object]

    def on(self, device: str, dtype: str) -> Subject:
        """The same, drawn on a device: another problem than the one that NumPy draws."""
        facts = {**self.facts, "device": device, "dtype": dtype}
        return Subject(f"{self.title}, on {device} in {dtype}", facts)


def _random(ensemble: str, m: int, d: int, n: int, kappa: float, seed: int) -> Subject:
    condition = None
    name = ensemble
    if ensemble in CONDITIONED:
        condition = kappa
        name = f"{ensemble}, κ = {kappa:g}"
    title = f"{name}: m = {m} clients, d = {d}, n = {n} per client, seed {seed}"
    facts = {"clients": m, "features": d, "observations": n, "kappa": condition}
    return Subject(title, {"ensemble": ensemble, **facts})


def _file(path: Path, split: str, ridge: float, problem: Problem, seed: int) -> Subject:
    m = problem.m
    d = problem.d
    title = f"{path.name}, split {split}: m = {m} clients, d = {d}, ridge {ridge:g}, "
    facts = {"clients": m, "features": d, "observations": None, "kappa": None}
    return Subject(
        title + f"seed {seed}",
        {"ensemble": None, "libsvm": str(path), "split": split, "ridge": ridge, **facts},
    )


def _table(runs: list[ComparedRun], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("method", overflow="fold")
    for target in TARGETS:
        table.add_column(f"{target:.0e}", justify="right")
    table.add_column("end")
    table.add_column("floats sent", justify="right")
    for run in runs:
        # A run that ended at a floor would never reach a target that it has not reached.
        absent = "never" if run.outcome == "floor" else "–"
        reached = [run.rounds_to(target) for target in TARGETS]
        cells = [absent if rounds is None else str(rounds) for rounds in reached]
        gap = run.gaps[-1]
        ending = {
            "reached": "optimum",
            "floor": f"floor {gap:.2g}",
            "falling": f"falling, {gap:.1e}",
            "diverged": f"diverged, round {len(run.gaps)}",
        }[run.outcome]
        table.add_row(run.label, *cells, ending, f"{run.floats_up + run.floats_down:,}")
    return table


def _json(run: ComparedRun) -> dict[str, object]:
    step = None
    if np.isfinite(run.step).all():
        step = np.asarray(run.step).tolist()
    floor = None
    if run.outcome == "floor":
        floor = run.gaps[-1]
    return {
        "method": run.label,
        "step": step,
        "rounds": len(run.gaps) - 1,
        "rounds_to": {f"{target:.0e}": run.rounds_to(target) for target in TARGETS},
        "outcome": run.outcome,
        "floor": floor,
        "floats_up": run.floats_up,
        "floats_down": run.floats_down,
        "gaps": [gap if math.isfinite(gap) else None for gap in run.gaps.tolist()],
    }
