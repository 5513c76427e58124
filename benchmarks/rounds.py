"""Questions and floats to a gap: the default, ``fs.QuasiNewton``, and every baseline.

Prints Markdown. Every run starts at x = 0 and knows of the curvature only what the method asks the
clients for; set-up counts. Then the questions of fits, sparse rows, clients that differ, and random
problems.
``python benchmarks/rounds.py --quick`` takes a few minutes, ``--only fits`` does one part.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedsplit as fs
import fit_rounds
import frontier
import random_problems
import sparse_rows
import unlike
from fedsplit import ensembles
from fedsplit.arrays import Array
from fedsplit.clients.questions import Curvature
from fedsplit.loop.trace import Row
from fedsplit.methods.method import Method
from measuring import head, row


@dataclass(frozen=True)
class Case:
    """A row of the table.

    Parameters
    ----------
    title : str
    make : callable
        Returns the problem of a seed.
    gap : float
        F(x) - F* to reach.
    most : int
        The most rounds of each method.
    tries : int
        The most rounds of each step that is tried in hindsight.
    """

    title: str
    make: Callable[[int], fs.Problem]
    gap: float
    most: int
    tries: int = 2500


def least_squares(
    draw: Callable[..., ensembles.Ensemble], **settings: Any
) -> Callable[[int], fs.Problem]:
    """Return a function of the seed that makes least squares of an ensemble."""
    return lambda seed: draw(**settings, seed=seed)


def logistic(seed: int) -> fs.Problem:
    """Return Figure 3's problem."""
    return ensembles.logistic(seed=seed)


def label_sorted(seed: int) -> fs.Problem:
    """Return the same observations, sorted so that most clients have one class."""
    return ensembles.label_sorted(seed=seed).with_ridge(1.0)


CASES = {
    "spiked-1e4": Case("spiked, κ = 10⁴", least_squares(ensembles.spiked, kappa=1e4), 1e-3, 1000),
    "spiked-1e6": Case("spiked, κ = 10⁶", least_squares(ensembles.spiked, kappa=1e6), 1e-6, 6000),
    "shared": Case(
        "log-uniform κ = 10⁴, same eigenvectors", least_squares(ensembles.log_uniform), 1e-6, 2000
    ),
    "spread": Case(
        "the same, clients' own x₀ differ",
        least_squares(ensembles.log_uniform, spread=1.0),
        1e-6,
        2000,
    ),
    "rotated": Case(
        "log-uniform κ = 10⁴, random eigenvectors",
        least_squares(ensembles.log_uniform, shared=False),
        1e-6,
        2000,
    ),
    "scaled": Case(
        "features scaled by 10^U(-3, 3)", least_squares(ensembles.badly_scaled), 1e-6, 2500
    ),
    "logistic": Case("logistic, Figure 3's sizes, no ridge", logistic, 1e-6, 1000, 150),
    "sorted": Case("logistic, label-sorted, ridge 1", label_sorted, 1e-6, 1000, 150),
}

BASELINES: dict[str, Callable[[], Method[Any]]] = {
    "CG": fs.CG,
    "L-BFGS": fs.LBFGS,
    "ADMM": fs.ADMM,
    "SCAFFOLD": fs.SCAFFOLD,
    "Scaffnew": fs.Scaffnew,
    "FedDyn": fs.FedDyn,
    "GIANT": fs.GIANT,
    "Newton": fs.Newton,
}
"""As they come. GD and AGD are given the pooled constants at the optimum, which no client knows."""

FAST = ("CG", "L-BFGS", "GIANT", "Newton")
"""The baselines of a quick run: the others need hundreds of rounds."""

GRID = tuple(10.0**power for power in np.arange(-2, 2.51, 0.5))
"""Steps that are tried in hindsight, as multiples of Theorem 1's."""

OURS = ("default", "quasi-Newton")

LABELS = (
    *OURS,
    *("plain, Theorem 1", "plain, best s"),
    *BASELINES,
    *("GD, pooled ℓ, L", "AGD, pooled L"),
)

Cost = tuple[float, float]
"""Questions, and floats in both directions: infinite if never reached, NaN if not applicable."""


def cost(
    problem: fs.Problem, best: float, method: Method[Any] | None, gap: float, most: int
) -> Cost:
    """Return what a method costs until the gap is reached."""

    def near(row: Row, state: Any) -> bool:
        return row.objective - best <= gap

    try:
        result = fs.solve(problem, method, rounds=most, tol=0, callbacks=[near])
    except fs.InputError:  # CG, where the costs are not quadratic
        return math.nan, math.nan
    except fs.Diverged:
        return math.inf, math.inf
    if result.stopped_by != "callback" and result.trace.objective[-1] - best > gap:
        return math.inf, math.inf
    return result.rounds, float(result.trace.floats_up.sum() + result.trace.floats_down.sum())


def measure(name: str, seed: int, quick: bool) -> dict[str, Cost]:
    """Return the costs of every method on one problem."""
    case = CASES[name]
    problem = case.make(seed)
    x = problem.solution()
    best = problem.objective(x)

    def run(method: Method[Any] | None) -> Cost:
        return cost(problem, best, method, case.gap, case.most)

    found = {"default": run(None), "quasi-Newton": run(fs.QuasiNewton())}
    found |= {label: run(make()) for label, make in BASELINES.items() if not quick or label in FAST}
    if not quick:
        found |= informed(problem, x, run, case.tries)
    return found


def informed(
    problem: fs.Problem, x: Array, run: Callable[[Method[Any]], Cost], tries: int
) -> dict[str, Cost]:
    """Return the costs of methods that are told about the curvature, at x* where need be."""
    clients = problem.clients
    bounds = clients.ask(Curvature()).rows
    ell = bounds[:, 0].min()
    L = bounds[:, 1].max()
    if ell == 0:
        ell = clients.ask(Curvature(x)).rows[:, 0].min()  # which only hindsight knows
    s = 1.0 / math.sqrt(ell * L)
    pooled = np.linalg.eigvalsh(clients.pooled_information(x))
    # A logistic cost is most curved at the start, x = 0.
    start = np.linalg.eigvalsh(clients.pooled_information(np.zeros(problem.d)))
    return {
        "plain, Theorem 1": run(fs.FedSplit(s)),
        "plain, best s": min(run(fs.FedSplit(factor * s)) for factor in GRID),
        "GD, pooled ℓ, L": run(fs.GD(2.0 / float(pooled[0] + pooled[-1]))),
        "AGD, pooled L": run(fs.AGD(1.0 / float(max(pooled[-1], start[-1])))),
    }


def median(costs: list[Cost]) -> Cost:
    """Return the median questions and the median floats."""
    rounds, floats = zip(*costs, strict=True)
    return statistics.median(rounds), statistics.median(floats)


def show(value: Cost) -> str:
    """Return questions, and thousands of floats, as a cell."""
    rounds, floats = value
    if math.isnan(rounds):
        return "n/a"
    if math.isinf(rounds):
        return "–"
    return f"{rounds:.0f} ({floats / 1e3:.0f}k)"


def better(found: dict[str, Cost]) -> str:
    """Return the baselines that beat the default by 1.2 times in questions and in floats."""
    questions, floats = found["default"]
    names = [
        label
        for label, (q, f) in found.items()
        if label not in OURS
        and sparse_rows.BETTER * q < questions
        and sparse_rows.BETTER * f < floats
    ]
    return ", ".join(names) or "none"


def show_suite(names: list[str], seeds: range, quick: bool) -> frontier.Costs:
    """Print the table of the suite; return the costs by title."""
    labels = [each for each in LABELS if not quick or each in (*OURS, *FAST)]
    print(
        f"Questions (thousands of floats, both directions), medians of {len(seeds)} seeds; "
        "– is not within the budget."
    )
    head("problem", "gap", *labels, f"better by {sparse_rows.BETTER} × in both")
    drawn: frontier.Costs = {}
    for name in names:
        case = CASES[name]
        runs = [measure(name, seed, quick) for seed in seeds]
        found = {label: median([run[label] for run in runs]) for label in runs[0]}
        drawn[case.title] = found
        cells = [show(found[label]) for label in labels]
        row(case.title, f"{case.gap:.0e}", *cells, better(found))
    return drawn


PARTS = ("fits", "random", "sparse", "suite", "unlike")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows of the suite; by default all")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="fewer methods, smaller problems")
    parser.add_argument("--libsvm", metavar="FILE", help="sparse rows in the place of generated")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw questions and floats")
    arguments = parser.parse_args()
    names = arguments.rows or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no row {unknown[0]!r}: use {', '.join(CASES)}")
    drawn: frontier.Costs = {}
    if "suite" in arguments.only:
        drawn |= show_suite(names, range(arguments.seeds), arguments.quick)
    if "fits" in arguments.only:
        fit_rounds.show(list(fit_rounds.FITS))
    if "sparse" in arguments.only:
        drawn |= sparse_rows.show(
            sparse_rows.rows(arguments.libsvm, arguments.quick), arguments.quick
        )
    if "unlike" in arguments.only:
        unlike.show(range(3 if arguments.quick else 20))
    if "random" in arguments.only:
        random_problems.show(arguments.quick)
    if arguments.figure is not None:
        frontier.draw(drawn, arguments.figure)


if __name__ == "__main__":
    main()
