"""``fedsplit compare``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import fedsplit as fs
from fedsplit.commands.help import Command, application, filled
from fedsplit.commands.options import Json, with_fit_options
from fedsplit.commands.terminal import progress
from fedsplit.errors import InputError

if TYPE_CHECKING:
    from fedsplit.paper.comparison import ComparedRun

compare_app = application()
problem_option = partial(typer.Option, rich_help_panel="Problem")
method_option = partial(typer.Option, rich_help_panel="Methods")


@compare_app.command("compare", cls=Command)
@with_fit_options("engine", "address", "workers")
def compare_command(
    context: typer.Context,
    ensemble: Annotated[
        str,
        problem_option(
            metavar="NAME",
            help="Kind of random problem: isotropic, spiked, shared, rotated, scaled, logistic, "
            "sorted.",
        ),
    ] = "isotropic",
    clients: Annotated[
        int,
        problem_option("--clients", "-m", min=1, metavar="N", help="Number of clients."),
    ] = 25,
    features: Annotated[
        int,
        problem_option("--features", "-d", min=1, metavar="N", help="Number of coordinates of x."),
    ] = 100,
    observations: Annotated[
        int,
        problem_option(
            "--observations", "-n", min=1, metavar="N", help="Number of observations per client."
        ),
    ] = 500,
    kappa: Annotated[
        float,
        problem_option(metavar="κ", help="Condition number of spiked, shared, rotated."),
    ] = 10.0,
    libsvm: Annotated[
        Path | None,
        problem_option(
            metavar="FILE",
            help="Logistic regression on the rows of a LIBSVM file in the place of a random "
            "problem; they stay sparse.",
        ),
    ] = None,
    split: Annotated[
        str,
        problem_option(
            metavar="NAME",
            help="How the rows of --libsvm are split over the clients: iid, label, dirichlet, "
            "zipf.",
        ),
    ] = "iid",
    ridge: Annotated[
        float,
        problem_option(min=0.0, metavar="λ", help="Ridge (λ/2)‖x‖² on the whole cost of --libsvm."),
    ] = 1.0,
    seed: Annotated[
        int,
        problem_option(min=0, metavar="N", help="Random seed of the problem."),
    ] = 0,
    device: Annotated[
        str | None,
        problem_option(metavar="cuda", help="Draw the clients on a GPU, and run there."),
    ] = None,
    dtype: Annotated[
        str,
        problem_option(metavar="NAME", help="Precision on a device: float32 or float64."),
    ] = "float64",
    rounds: Annotated[
        int,
        method_option(min=2, metavar="N", help="Maximum number of rounds of each method."),
    ] = 50,
    method: Annotated[
        list[str] | None,
        method_option(
            metavar="NAME[:KEY=VALUE,...]",
            help="Method, with its settings; may be repeated. The methods are listed above.",
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

    Example: fedsplit compare --ensemble spiked --kappa 1000 --rounds 300
    fedsplit compare --method fedsplit --method fedprox:step=0.1

    The columns are the number of rounds until the gap F(x) - F* is at most 1e-3, 1e-6 and 1e-9;
    where the run ended, at the optimum or at a gap above it that does not shrink (a floor); and
    the floats sent, both ways.

    Methods: fedsplit (the paper's Algorithm 1), information, quasi-newton, fedgd, fedavg, fedprox,
    gd, agd, cg, lbfgs, admm, scaffold, scaffnew, feddyn, giant, newton. Settings follow a colon, as
    in fedsplit:steps=5,start=iterate and fedgd:local_steps=10.
    """
    from fedsplit.paper import comparison  # NumPy and SciPy take a second to import

    engine = chosen.get("engine", "local")
    comparison.check_choice(engine, plot)
    methods = comparison.methods_of(method or ())
    if libsvm is None:
        _refuse(context, "is for the rows of --libsvm", "split", "ridge")
        if device is None:
            _refuse(context, "is for clients on a --device", "dtype")
        problem = comparison.generate(
            ensemble, clients, features, observations, kappa, seed, device, dtype
        )
        condition = kappa if ensemble in comparison.CONDITIONED else None
        subject = _random(ensemble, clients, features, observations, condition, seed)
        if device is not None:
            subject = subject.on(device, dtype)
    else:
        _refuse(context, "is for random problems", "ensemble", "features", "observations", "kappa")
        _refuse(context, "is for dense rows, and those of --libsvm stay sparse", "device", "dtype")
        problem = fs.Problem.from_libsvm(
            libsvm, clients=clients, split=split, ridge=ridge, seed=seed
        )
        subject = _file(libsvm, split, ridge, problem, seed)
    if not method:
        methods = comparison.with_information(methods, problem)
    with (
        comparison.clients_on(
            engine, problem, chosen.get("workers"), chosen.get("address")
        ) as asked,
        progress() as bar,
    ):
        tasks = {name: bar.add_task(name, total=rounds, gap="") for name, _ in methods}

        def show(name: str, done: int, gap: float) -> None:
            bar.update(tasks[name], completed=done, gap=f"gap {gap:.1e}")

        runs = comparison.compare(problem, methods, rounds, show, asked)
    if as_json:
        record = {
            **subject.facts,
            "seed": seed,
            "rounds": rounds,
            "methods": [_json(run, comparison.TARGETS) for run in runs],
        }
        typer.echo(json.dumps(record, indent=2, allow_nan=False))
    else:
        typer.echo(_table(runs, subject.title, comparison.TARGETS))
    if plot is not None:
        comparison.draw(runs, subject.title, plot)


def _refuse(context: typer.Context, reason: str, *names: str) -> None:
    """Raise InputError if one of these options was given, instead of leaving it without effect."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--{name} {reason}: leave it out")


class Subject(NamedTuple):
    """What is compared on: a line about it, and its part of the JSON object."""

    title: str
    facts: dict[str, object]

    def on(self, device: str, dtype: str) -> Subject:
        """The same, drawn on a device: another problem than the one that NumPy draws."""
        facts = {**self.facts, "device": device, "dtype": dtype}
        return Subject(f"{self.title}, on {device} in {dtype}", facts)


def _random(ensemble: str, m: int, d: int, n: int, kappa: float | None, seed: int) -> Subject:
    name = ensemble if kappa is None else f"{ensemble}, κ = {kappa:g}"
    title = f"{name}: m = {m} clients, d = {d}, n = {n} per client, seed {seed}"
    facts = {"clients": m, "features": d, "observations": n, "kappa": kappa}
    return Subject(title, {"ensemble": ensemble, **facts})


def _file(path: Path, split: str, ridge: float, problem: fs.Problem, seed: int) -> Subject:
    m, d = problem.m, problem.d
    title = f"{path.name}, split {split}: m = {m} clients, d = {d}, ridge {ridge:g}, "
    facts = {"clients": m, "features": d, "observations": None, "kappa": None}
    return Subject(
        title + f"seed {seed}",
        {"ensemble": None, "libsvm": str(path), "split": split, "ridge": ridge, **facts},
    )


def _table(runs: Sequence[ComparedRun], title: str, targets: Sequence[float]) -> str:
    rows = [["method", *(f"{target:.0e}" for target in targets), "end", "floats sent"]]
    for run in runs:
        # A run that ended at a floor would never reach a target that it has not reached.
        absent = "never" if run.outcome == "floor" else "–"
        reached = [run.rounds_to(target) for target in targets]
        gap = run.gaps[-1]
        ending = {
            "reached": "optimum",
            "floor": f"floor {gap:.2g}",
            "falling": f"falling, {gap:.1e}",
            "diverged": f"diverged, round {len(run.gaps)}",
        }[run.outcome]
        cells = [absent if rounds is None else str(rounds) for rounds in reached]
        rows.append([run.label, *cells, ending, f"{run.floats_up + run.floats_down:,}"])
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sizes[0] = min(sizes[0], 80 - sum(sizes[1:]) - 2 * len(sizes[1:]))
    lines = [filled(title)]
    for method, *cells in rows:
        if len(method) > sizes[0]:  # on a line of its own
            lines.append(method)
            method = ""
        line = method.ljust(sizes[0])
        for size, cell, head in zip(sizes[1:], cells, rows[0][1:], strict=True):
            line += "  " + (cell.ljust(size) if head == "end" else cell.rjust(size))
        lines.append(line)
    return "\n".join(lines)


def _json(run: ComparedRun, targets: Sequence[float]) -> dict[str, object]:
    step: Any = run.step
    if not isinstance(step, float):  # one for each coordinate
        step = step.tolist()
    if not all(map(math.isfinite, step if isinstance(step, list) else [step])):
        step = None
    return {
        "method": run.label,
        "step": step,
        "rounds": len(run.gaps) - 1,
        "rounds_to": {f"{target:.0e}": run.rounds_to(target) for target in targets},
        "outcome": run.outcome,
        "floor": run.gaps[-1] if run.outcome == "floor" else None,
        "floats_up": run.floats_up,
        "floats_down": run.floats_down,
        "gaps": [gap if math.isfinite(gap) else None for gap in run.gaps.tolist()],
    }
