"""Clients that differ: questions, floats and time to a proof, of the default and Newton's method.

``python benchmarks/unlike.py --seeds 20`` prints Markdown. It uses nothing but ``fs.solve`` and
``fs.Newton``, so that it also runs on earlier versions of the package.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import fedsplit as fs
from fedsplit import ensembles
from measuring import head, row

LOSSES: dict[str, Any] = {
    "Huber": fs.Huber(1.0),
    "Poisson": fs.Poisson(),
    "gamma": fs.Gamma(),
    "logistic": fs.Logistic(),
}


def around(loss: Any, seed: int, m: int, rows: tuple[int, int], d: int, spread: float) -> Any:
    """Clients with coefficients of their own around common ones, an intercept, shifted columns."""
    rng = np.random.default_rng([seed, 27])
    x = 0.5 * rng.standard_normal(d) / np.sqrt(d)
    data = []
    for n in rng.integers(*rows, size=m):
        own = x + spread * rng.standard_normal(d) / np.sqrt(d)
        A = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal(d)
        A[:, 0] = 1.0
        data.append((A, loss.sample(np.clip(A @ own, -4.0, 4.0), rng)))
    return fs.Problem(loss, data)


def apart(loss: Any, seed: int, size: float) -> Any:
    """Twelve clients of 400 × 15 with nothing in common, and no intercept."""
    rng = np.random.default_rng([seed, 12])
    data = []
    for _ in range(12):
        A = rng.standard_normal((400, 15))
        x = size * rng.standard_normal(15)
        data.append((A, loss.sample(np.clip(A @ x, -8.0, 8.0), rng)))
    return fs.Problem(loss, data)


def cases() -> dict[str, Callable[[int], Any]]:
    """Return functions of the seed by title."""
    found: dict[str, Callable[[int], Any]] = {}
    for name, loss in LOSSES.items():
        for title, rows, spread in (
            ("142 clients of 4–29 rows", (4, 30), 0.5),
            ("142 of 20–59 rows", (20, 60), 0.5),
            ("142 of 4–29 rows, far apart", (4, 30), 1.5),
        ):
            found[f"{name}, {title}"] = partial(around, loss, m=142, rows=rows, d=12, spread=spread)
        for spread in (0.0, 0.3, 1.0):
            found[f"{name}, 10 of 100 rows, spread {spread:g}"] = partial(
                around, loss, m=10, rows=(100, 101), d=10, spread=spread
            )
    for size in (0.1, 0.3, 0.5):
        found[f"Poisson, 12 of 400 × 15, x_j ~ {size:g} N(0, I)"] = partial(
            apart, fs.Poisson(), size=size
        )
    found["logistic, Figure 3's sizes"] = lambda seed: ensembles.logistic(seed=seed)
    return found


class Spent(NamedTuple):
    """Questions, floats in both directions, and seconds of the processor."""

    questions: int
    floats: int
    seconds: float


def spent(problem: Any, method: Any) -> Spent:
    """Return the costs of a run that ends with a proof."""
    began = time.process_time()
    result = fs.solve(problem, method)
    seconds = time.process_time() - began
    if not result.converged:
        raise RuntimeError(f"not converged: {problem}")
    trace = result.trace
    floats = int(np.sum(trace.floats_up) + np.sum(trace.floats_down))
    return Spent(result.rounds, floats, seconds)


def show(seeds: range, titles: str = "") -> None:
    """Print a row for each kind of problem whose title has these words in it."""
    print(f"Questions to a proof (the most), and medians of floats and time, {len(seeds)} seeds.")
    head("problem", "default", "Newton", "floats", "Newton", "ms", "Newton", "sum of questions")
    for title, make in cases().items():
        if titles not in title:
            continue
        runs = [(spent(make(seed), None), spent(make(seed), fs.Newton())) for seed in seeds]
        ours, newton = (list(zip(*each, strict=True)) for each in zip(*runs, strict=True))
        medians = [[statistics.median(column) for column in each] for each in (ours, newton)]
        row(
            title,
            *(f"{medians[i][0]:g} ({max(each[0])})" for i, each in enumerate((ours, newton))),
            *(f"{each[1] / 1e3:.1f}k" for each in medians),
            *(f"{1e3 * each[2]:.0f}" for each in medians),
            f"{sum(ours[0])} and {sum(newton[0])}",
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="words of the titles")
    arguments = parser.parse_args()
    show(range(arguments.seeds), arguments.only)


if __name__ == "__main__":
    main()
