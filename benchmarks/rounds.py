"""Rounds and floats to a gap: FedSplit as it comes, against the plain method and every baseline.

Prints Markdown. Every run starts at x = 0 with no knowledge of curvature but what the method asks the clients for, and
set-up rounds count. Medians over the seeds. ``python benchmarks/rounds.py --seeds 1 spiked-1e4`` does one row quickly.
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

NEVER = math.inf


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    title: str
    make: Callable[[int], fs.Problem]
    gap: float
    goal: int | None
    most: int
    tries: int = 2500
    prox: fs.GradientProx | None = None


def least_squares(
    make: Callable[..., ensembles.Ensemble], **settings: Any
) -> Callable[[int], fs.Problem]:
    """Least squares on an ensemble, by seed."""
    return lambda seed: fs.Problem(fs.LeastSquares(), make(**settings, seed=seed).clients)


def logistic(seed: int) -> fs.Problem:
    """Figure 3's problem."""
    return fs.Problem(fs.Logistic(), ensembles.logistic(seed=seed).clients)


def label_sorted(seed: int) -> fs.Problem:
    """The same observations, one class at most clients."""
    return fs.Problem(fs.Logistic(), ensembles.label_sorted(seed=seed).clients, ridge=1.0)


CASES = {
    "spiked-1e4": Case(
        "spiked, κ = 10⁴", least_squares(ensembles.spiked, kappa=1e4), 1e-3, 25, 1000
    ),
    "spiked-1e6": Case(
        "spiked, κ = 10⁶", least_squares(ensembles.spiked, kappa=1e6), 1e-6, 40, 6000
    ),
    "shared": Case(
        "log-uniform κ = 10⁴, same eigenvectors",
        least_squares(ensembles.log_uniform),
        1e-6,
        60,
        2000,
    ),
    "spread": Case(
        "the same, clients' own x₀ differ",
        least_squares(ensembles.log_uniform, spread=1.0),
        1e-6,
        75,
        2000,
    ),
    "rotated": Case(
        "log-uniform κ = 10⁴, random eigenvectors",
        least_squares(ensembles.log_uniform, shared=False),
        1e-6,
        40,
        2000,
    ),
    "scaled": Case(
        "features scaled by 10^U(-3, 3)", least_squares(ensembles.badly_scaled), 1e-6, 30, 2500
    ),
    "logistic": Case("logistic, Figure 3's sizes, no ridge", logistic, 1e-6, 18, 1000, 150),
    "logistic-10": Case(
        "the same, ten gradient steps a round", logistic, 1e-6, 20, 1000, 150, fs.GradientProx(10)
    ),
    "sorted": Case("logistic, label-sorted, ridge 1", label_sorted, 1e-6, None, 1000, 150),
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
"""As they come. GD and AGD are told the pooled constants at the optimum, which no client knows."""

GRID = tuple(10.0**power for power in np.arange(-2, 2.51, 0.5))
"""Steps that are tried in hindsight, times Theorem 1's, each for at most ``tries`` rounds."""

LABELS = (
    *("ours", "ours, step × 100", "ours, step / 100", "plain, Theorem 1", "plain, best s"),
    *BASELINES,
    *("ADMM, best s", "GD, pooled ℓ, L", "AGD, pooled L"),
)

Cost = tuple[float, float]
"""Rounds, and floats both ways."""


def cost(problem: fs.Problem, best: float, method: Method[Any], gap: float, most: int) -> Cost:
    """What a method costs until the gap is reached."""

    def near(row: Row, state: State) -> bool:
        return row.objective - best <= gap

    try:
        result = fs.solve(problem, method, rounds=most, tol=0, callbacks=[near])
    except fs.InputError:  # CG, where the costs are not quadratic
        return math.nan, math.nan
    except fs.Diverged:
        return NEVER, NEVER
    if result.stopped_by != "callback" and result.trace.objective[-1] - best > gap:
        return NEVER, NEVER
    return result.rounds, float(result.trace.floats_up.sum() + result.trace.floats_down.sum())


def reach(problem: fs.Problem) -> float:
    """The largest eigenvalue of F's Hessian at the start, where a logistic cost is most curved."""
    return float(np.linalg.eigvalsh(problem.clients.pooled_information(np.zeros(problem.d)))[-1])


def measure(name: str, seed: int) -> dict[str, Cost]:
    """Every method on one problem."""
    case = CASES[name]
    problem = case.make(seed)
    x = problem.solution()
    best = problem.objective(x)

    def run(method: Method[Any], most: int = case.most) -> Cost:
        return cost(problem, best, method, case.gap, most)

    bounds = problem.clients.curvature().rows
    ell, L = bounds[:, 0].min(), bounds[:, 1].max()
    if ell == 0:
        ell = problem.clients.curvature(x).rows[:, 0].min()  # known in hindsight alone
    s = 1.0 / math.sqrt(ell * L)
    paper = fs.GradientProx(10, start="iterate") if case.prox else None
    found = {"ours": run(fs.FedSplit(prox=case.prox))}
    chosen = fs.solve(problem, fs.FedSplit(prox=case.prox), rounds=2, tol=0).state
    first = chosen.learnt.first  # type: ignore[attr-defined]  # FedSplit's state has it
    found["ours, step × 100"] = run(fs.FedSplit(100 * first, case.prox))
    found["ours, step / 100"] = run(fs.FedSplit(first / 100, case.prox))
    found["plain, Theorem 1"] = run(fs.FedSplit.plain(s, paper))
    if case.prox is None:
        found["plain, best s"] = min(
            run(fs.FedSplit.plain(factor * s), min(case.most, case.tries)) for factor in GRID
        )
        found |= {label: run(make()) for label, make in BASELINES.items()}
        found["ADMM, best s"] = min(
            run(fs.ADMM(factor * s), min(case.most, case.tries)) for factor in GRID
        )
        pooled = np.linalg.eigvalsh(problem.clients.pooled_information(x))
        found["GD, pooled ℓ, L"] = run(fs.GD(2.0 / float(pooled[0] + pooled[-1])))
        found["AGD, pooled L"] = run(fs.AGD(1.0 / float(max(pooled[-1], reach(problem)))))
    return found


def median(costs: list[Cost]) -> Cost:
    """The median rounds and the median floats."""
    rounds, floats = zip(*costs, strict=True)
    return statistics.median(rounds), statistics.median(floats)


def show(value: Cost) -> str:
    """Rounds, and thousands of floats."""
    rounds, floats = value
    if math.isnan(rounds):
        return "n/a"
    return "–" if math.isinf(rounds) else f"{rounds:.0f} ({floats / 1e3:.0f}k)"


def main() -> None:
    """Measure the rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="which rows; all where none is named"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    names = arguments.rows or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no row {unknown[0]!r}: use {', '.join(CASES)}")
    print(
        f"Rounds (thousands of floats, both ways), medians of {arguments.seeds} seeds; – is not within the budget.\n"
    )
    print(
        "| problem | gap | goal | "
        + " | ".join(LABELS)
        + " | fewer rounds than ours | fewer floats |"
    )
    print("| --- " * (len(LABELS) + 5) + "|", flush=True)
    with ProcessPoolExecutor(arguments.processes) as pool:
        jobs = {
            name: [pool.submit(measure, name, seed) for seed in range(arguments.seeds)]
            for name in names
        }
        for name, futures in jobs.items():
            runs = [future.result() for future in futures]
            print(
                line(
                    CASES[name], {label: median([run[label] for run in runs]) for label in runs[0]}
                ),
                flush=True,
            )


def line(case: Case, found: dict[str, Cost]) -> str:
    """A row of the table."""
    ours, wrong = found["ours"], max(found["ours, step × 100"][0], found["ours, step / 100"][0])
    goal = case.goal or found["plain, Theorem 1"][0] / 3
    met = f"≤ {goal:.0f}, {'met' if ours[0] <= goal else 'not met'}"
    met += f"; wrong step ≤ {2 * ours[0]:.0f}, {'met' if wrong <= 2 * ours[0] else 'not met'}"
    others = {label: value for label, value in found.items() if not label.startswith("ours")}
    fewer = [
        ", ".join(label for label, value in others.items() if value[i] < ours[i]) or "none"
        for i in (0, 1)
    ]
    cells = [show(found[label]) if label in found else "" for label in LABELS]
    return "| " + " | ".join([case.title, f"{case.gap:.0e}", met, *cells, *fewer]) + " |"


if __name__ == "__main__":
    main()
