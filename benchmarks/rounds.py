"""Rounds and floats to a gap: FedSplit with its defaults, the plain method, and every baseline.

Prints Markdown. Every run starts at x = 0 and knows of the curvature only what the method asks the
clients for; set-up rounds count. Medians over the seeds.
``python benchmarks/rounds.py --seeds 1 spiked-1e4`` does one row quickly.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import fedsplit as fs
from fedsplit import ensembles
from fedsplit.methods.method import Method, State
from fedsplit.rounds.trace import Row
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
    prox : GradientProx, optional
        The local solver; then only FedSplit is run.
    """

    title: str
    make: Callable[[int], fs.Problem]
    gap: float
    most: int
    tries: int = 2500
    prox: fs.GradientProx | None = None


def least_squares(
    draw: Callable[..., ensembles.Ensemble], **settings: Any
) -> Callable[[int], fs.Problem]:
    """Return a function of the seed that makes least squares of an ensemble."""
    return lambda seed: fs.Problem(fs.LeastSquares(), draw(**settings, seed=seed).clients)


def logistic(seed: int) -> fs.Problem:
    """Return Figure 3's problem."""
    return fs.Problem(fs.Logistic(), ensembles.logistic(seed=seed).clients)


def label_sorted(seed: int) -> fs.Problem:
    """Return the same observations, sorted so that most clients have one class."""
    return fs.Problem(fs.Logistic(), ensembles.label_sorted(seed=seed).clients, ridge=1.0)


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
    "logistic-10": Case(
        "the same, ten gradient steps per round", logistic, 1e-6, 1000, 150, fs.GradientProx(10)
    ),
    "sorted": Case("logistic, label-sorted, ridge 1", label_sorted, 1e-6, 1000, 150),
}

BASELINES: dict[str, Callable[[], Method[Any]]] = {
    "Anderson": lambda: fs.FedSplit(accelerate=fs.Anderson()),
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

GRID = tuple(10.0**power for power in np.arange(-2, 2.51, 0.5))
"""Steps that are tried in hindsight, as multiples of Theorem 1's."""

LABELS = (
    *("ours", "ours, step × 100", "ours, step / 100", "plain, Theorem 1", "plain, best s"),
    *BASELINES,
    *("ADMM, best s", "GD, pooled ℓ, L", "AGD, pooled L"),
)

Cost = tuple[float, float]
"""Rounds, and floats in both directions: infinite if never reached, NaN if not applicable."""


def cost(problem: fs.Problem, best: float, method: Method[Any], gap: float, most: int) -> Cost:
    """Return what a method costs until the gap is reached."""

    def near(row: Row, state: State) -> bool:
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


def measure(name: str, seed: int) -> dict[str, Cost]:
    """Return the costs of every method on one problem."""
    case = CASES[name]
    problem = case.make(seed)
    clients = problem.clients
    x = problem.solution()
    best = problem.objective(x)

    def run(method: Method[Any], most: int = case.most) -> Cost:
        return cost(problem, best, method, case.gap, most)

    def best_of(make: Callable[[float], Method[Any]]) -> Cost:
        return min(run(make(factor * s), min(case.most, case.tries)) for factor in GRID)

    bounds = clients.curvature().rows
    ell = bounds[:, 0].min()
    L = bounds[:, 1].max()
    if ell == 0:
        ell = clients.curvature(x).rows[:, 0].min()  # which only hindsight knows
    s = 1.0 / math.sqrt(ell * L)
    found = {"ours": run(fs.FedSplit(prox=case.prox))}
    first = first_step(problem, case.prox)
    found["ours, step × 100"] = run(fs.FedSplit(100 * first, case.prox))
    found["ours, step / 100"] = run(fs.FedSplit(first / 100, case.prox))
    if case.prox is not None:
        paper = fs.GradientProx(10, start="iterate")
        found["plain, Theorem 1"] = run(fs.FedSplit.plain(s, paper))
        return found
    found["plain, Theorem 1"] = run(fs.FedSplit.plain(s))
    found["plain, best s"] = best_of(fs.FedSplit.plain)
    found |= {label: run(make()) for label, make in BASELINES.items()}
    found["ADMM, best s"] = best_of(fs.ADMM)
    pooled = np.linalg.eigvalsh(clients.pooled_information(x))
    # A logistic cost is most curved at the start, x = 0.
    start = np.linalg.eigvalsh(clients.pooled_information(np.zeros(problem.d)))
    found["GD, pooled ℓ, L"] = run(fs.GD(2.0 / float(pooled[0] + pooled[-1])))
    found["AGD, pooled L"] = run(fs.AGD(1.0 / float(max(pooled[-1], start[-1]))))
    return found


def first_step(problem: fs.Problem, prox: fs.GradientProx | None) -> float:
    """Return the step that FedSplit begins with."""
    state = fs.solve(problem, fs.FedSplit(prox=prox), rounds=2, tol=0).state
    first: float = state.step.first  # type: ignore[attr-defined]  # FedSplit's state has it
    return first


def median(costs: list[Cost]) -> Cost:
    """Return the median rounds and the median floats."""
    rounds, floats = zip(*costs, strict=True)
    return statistics.median(rounds), statistics.median(floats)


def show(value: Cost) -> str:
    """Return rounds, and thousands of floats, as a cell."""
    rounds, floats = value
    if math.isnan(rounds):
        return "n/a"
    if math.isinf(rounds):
        return "–"
    return f"{rounds:.0f} ({floats / 1e3:.0f}k)"


def show_case(case: Case, found: dict[str, Cost]) -> None:
    """Print a row of the table."""
    cells = [show(found[label]) if label in found else "" for label in LABELS]
    fewer = []
    for i in (0, 1):
        others = [label for label in found if not label.startswith("ours")]
        better = [label for label in others if found[label][i] < found["ours"][i]]
        fewer.append(", ".join(better) or "none")
    row(case.title, f"{case.gap:.0e}", *cells, *fewer)


def main() -> None:
    """Measure the rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="which rows; by default all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    names = arguments.rows or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no row {unknown[0]!r}: use {', '.join(CASES)}")
    seeds = range(arguments.seeds)
    print(
        f"Rounds (thousands of floats, both directions), medians of {len(seeds)} seeds; "
        "– is not within the budget."
    )
    head("problem", "gap", *LABELS, "fewer rounds than ours", "fewer floats")
    with ProcessPoolExecutor(arguments.processes) as pool:
        jobs = {name: [pool.submit(measure, name, seed) for seed in seeds] for name in names}
        for name, futures in jobs.items():
            runs = [future.result() for future in futures]
            costs = {label: median([run[label] for run in runs]) for label in runs[0]}
            show_case(CASES[name], costs)


if __name__ == "__main__":
    main()
