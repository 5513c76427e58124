"""Sparse, wide logistic regression over 20 clients, to a proved 1e-6 of F: ``make bench-sparse``.

``fs.solve(problem)`` beside our own L-BFGS and scikit-learn's, the latter on the pooled rows.
Seconds are of the processor, medians of interleaved repetitions; memory is the peak of a process
that draws the rows and solves once. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

import fedsplit as fs
from fedsplit.arrays import Array
from measuring import head, resident, row

CLIENTS = 20
RIDGE = 1e-3
"""Per row."""

TOL = 1e-6
REPETITIONS = 5


class Shape(NamedTuple):
    """Rows, columns, entries per row, and how the columns of these are drawn."""

    n: int
    d: int
    entries: int
    columns: str = "uniform"


SIDE_BY_SIDE = (
    Shape(20_000, 20_000, 50),
    Shape(20_000, 20_000, 50, "1/rank, as words of a text"),
)
LARGE = Shape(100_000, 1_000_000, 100)


def drawn(shape: Shape, seed: int = 0) -> tuple[csr_array, Array]:
    """Rows with N(0, 1) entries, and classes with logits of a few units."""
    rng = np.random.default_rng(seed)
    size = shape.n * shape.entries
    if shape.columns == "uniform":
        places = rng.integers(shape.d, size=size, dtype=np.int32)
    else:
        places = (shape.d ** rng.random(size)).astype(np.int32) - 1
    ends = np.arange(0, size + 1, shape.entries, dtype=np.int32)
    A = csr_array((rng.standard_normal(size), places, ends), shape=(shape.n, shape.d))
    A.sum_duplicates()
    x = 2.0 / np.sqrt(shape.entries) * rng.standard_normal(shape.d)
    return A, np.where(rng.logistic(size=shape.n) < A @ x, 1.0, -1.0)


def federated(A: csr_array, b: Array) -> fs.Problem:
    """The rows, already in random order, over the clients."""
    cuts = np.linspace(0, len(b), CLIENTS + 1).astype(int)
    parts = [slice(*ends) for ends in pairwise(cuts)]
    return fs.Problem(fs.Logistic(), [(A[own], b[own]) for own in parts], RIDGE * len(b))


def pooled(A: csr_array, b: Array) -> LogisticRegression:
    """scikit-learn's fit of all rows, with a tolerance that gives about our gap."""
    C = 1.0 / (RIDGE * len(b))
    model = LogisticRegression(C=C, fit_intercept=False, tol=1e-6, max_iter=2000)
    return model.fit(A, b)


def processor_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """The time of the processor that the work takes, and what it returns."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def compare(shape: Shape) -> None:
    """Rows of the table: each solver on one problem."""
    A, b = drawn(shape)
    problem = federated(A, b)
    works: dict[str, Callable[[], Any]] = {
        "`fs.solve(problem)`": lambda: fs.solve(problem, tol=TOL, rounds=1000),
        "`fs.LBFGS()`": lambda: fs.solve(problem, fs.LBFGS(), tol=TOL, rounds=1000),
        "scikit-learn, pooled": lambda: pooled(A, b),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    found = {}
    for _ in range(REPETITIONS):
        for name, work in works.items():
            spent, found[name] = processor_seconds(work)
            times[name].append(spent)
    medians = {name: statistics.median(each) for name, each in times.items()}
    best = problem.objective(problem.solution())
    for name, result in found.items():
        rounds = proved = ""
        if isinstance(result, fs.Result):
            rounds = str(result.rounds)
            proved = f"{result.certificate.gap or np.nan:.1e}"
            x = result.x
        else:
            x = result.coef_[0]
        gap = f"{problem.objective(x) - best:.1e}"
        ratio = f"{medians[name] / medians['`fs.LBFGS()`']:.2f}"
        row(shape.columns, name, f"{medians[name]:.2f} s", ratio, rounds, proved, gap)
    print(f"\n{TOL:g}·F is {TOL * best:.1e}.\n", flush=True)


def large(shape: Shape) -> None:
    """Solve the large problem in this process, and print what it took as JSON."""
    problem = federated(*drawn(shape))
    began = time.perf_counter()
    spent, result = processor_seconds(lambda: fs.solve(problem, tol=TOL, rounds=200))
    facts = {
        "seconds": time.perf_counter() - began,
        "processor": spent,
        "rounds": result.rounds,
        "stopped_by": result.stopped_by,
        "gap": result.certificate.gap,
        "objective": result.certificate.objective,
        "peak": resident("VmHWM") / 1e9,
        "notes": result.notes,
    }
    print(json.dumps(facts))


def in_its_own_process() -> None:
    """The table of the large problem."""
    command = [sys.executable, __file__, "--large"]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    facts = json.loads(told.stdout)
    head("rows × columns", "entries", "rounds", "proved gap / F", "processor", "peak memory")
    row(
        f"{LARGE.n:,} × {LARGE.d:,}",
        f"{LARGE.n * LARGE.entries:,}",
        str(facts["rounds"]),
        f"{facts['gap'] / facts['objective']:.1e}",
        f"{facts['processor']:.0f} s",
        f"{facts['peak']:.2f} GB",
    )
    print("\n`notes`: " + "; ".join(facts["notes"]) + ".", flush=True)


def main() -> None:
    """Print all tables, or what the large problem took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="only that problem, as JSON")
    parser.add_argument("--beside", action="store_true", help="only the solvers side by side")
    arguments = parser.parse_args()
    if arguments.large:
        large(LARGE)
        return
    head(
        "columns",
        "20,000 × 20,000, 50 entries per row",
        "processor",
        "ratio",
        "rounds",
        "proved gap",
        "gap",
    )
    for shape in SIDE_BY_SIDE:
        compare(shape)
    if not arguments.beside:
        in_its_own_process()


if __name__ == "__main__":
    main()
