"""The command ``fedsplit``: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from fedsplit import plots
from fedsplit.compare import ENSEMBLES, TARGETS, Run, compare, generate
from fedsplit.errors import InputError, NoMinimiser
from fedsplit.methods import parse

# Newer versions of Typer bring a click of their own, older ones need the package: this is the usage error of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

DEFAULT_METHODS = ["fedgd", "fedgd:local_steps=10", "fedgd:local_steps=100", "fedprox", "fedsplit:steps=5", "fedsplit"]


@app.callback(invoke_without_command=True)
def _describe(context: typer.Context) -> None:
    """Federated convex optimisation: the pooled answer from clients that never pool their data."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("compare")
def compare_command(
    ensemble: Annotated[str, typer.Option(help=f"The kind of random problem: {', '.join(ENSEMBLES)}.")] = "isotropic",
    clients: Annotated[int, typer.Option("--clients", "-m", min=1, help="Number of clients.")] = 25,
    features: Annotated[int, typer.Option("--features", "-d", min=1, help="Number of coordinates of x.")] = 100,
    observations: Annotated[int, typer.Option("--observations", "-n", min=1, help="Observations a client.")] = 500,
    kappa: Annotated[float, typer.Option(help="Condition number of the spiked ensemble.")] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random problem.")] = 0,
    rounds: Annotated[int, typer.Option(min=2, help="Most rounds for each method.")] = 50,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method with its settings; repeat for more: fedsplit, fedsplit:steps=5,start=iterate, "
            "fedprox:step=0.1, fedgd:local_steps=10."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw gap against rounds to this .png, .svg or .pdf.")] = None,
) -> None:
    """Run several methods on one random problem and print how many rounds each needs, or where it stops wrongly.

    Columns: rounds until the gap F(x) - F* is at most 1e-3, 1e-6 and 1e-9; where the run ended, the optimum or a floor
    of the gap; floats sent both ways.
    """
    names = method or DEFAULT_METHODS
    methods = [(name, parse(name)) for name in names]
    if plot is not None:
        plots.check_target(plot)
    problem = generate(ensemble, clients, features, observations, kappa, seed)
    with _progress() as bar:
        tasks = {name: bar.add_task(name, total=rounds, gap="") for name in names}
        runs = compare(
            problem,
            methods,
            rounds,
            lambda name, done, gap: bar.update(tasks[name], completed=done, gap=f"gap {gap:.1e}"),
        )
    name = f"spiked, κ = {kappa:g}" if ensemble == "spiked" else ensemble
    title = f"{name}: m = {clients} clients, d = {features}, n = {observations} a client, seed {seed}"
    if as_json:
        settings = {
            "ensemble": ensemble,
            "clients": clients,
            "features": features,
            "observations": observations,
            "seed": seed,
        }
        typer.echo(json.dumps(settings | {"methods": [_json(run) for run in runs]}, indent=2))
    else:
        Console().print(_table(runs, title))
    if plot is not None:
        plots.save(plots.gap_figure(runs, title), plot)


def _progress() -> Progress:
    """Live on a terminal, silent elsewhere."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[gap]}"),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _table(runs: list[Run], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("method", overflow="fold")
    for target in TARGETS:
        table.add_column(f"{target:.0e}", justify="right")
    table.add_column("end")
    table.add_column("floats sent", justify="right")
    for run in runs:
        reached = [run.rounds_to(target) for target in TARGETS]
        cells = [str(found) if found is not None else "never" if run.outcome == "floor" else "–" for found in reached]
        table.add_row(run.label, *cells, _end(run), f"{run.floats_up + run.floats_down:,}")
    return table


def _end(run: Run) -> str:
    gap, rounds = run.gaps[-1], len(run.gaps) - 1
    return {
        "reached": "optimum",
        "floor": f"floor {gap:.2g}",
        "falling": f"falling, {gap:.1e}",
        "diverged": f"diverged, round {rounds + 1}",
    }[run.outcome]


def _json(run: Run) -> dict[str, object]:
    return {
        "method": run.label,
        "step": run.step,
        "rounds": len(run.gaps) - 1,
        "rounds_to": {f"{target:.0e}": run.rounds_to(target) for target in TARGETS},
        "outcome": run.outcome,
        "floor": run.gaps[-1] if run.outcome == "floor" else None,
        "floats_up": run.floats_up,
        "floats_down": run.floats_down,
        "gaps": run.gaps.tolist(),
    }


def run(arguments: list[str]) -> int:
    """Run the command and return its exit status; every error is one line on stderr."""
    try:
        return int(app(arguments, prog_name="fedsplit", standalone_mode=False) or 0)
    except UsageError as error:
        return _fail(f"{error.format_message()} (see fedsplit --help)")  # type: ignore[attr-defined]  # click's name
    except (InputError, NoMinimiser) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    except (typer.Abort, KeyboardInterrupt):
        return 130


def _fail(message: str) -> int:
    typer.echo(f"fedsplit: error: {message}", err=True)
    return 2


def main() -> None:
    """The entry point of the command ``fedsplit``."""
    sys.exit(run(sys.argv[1:]))
