"""Logistic regression on sparse 0/1 rows: ``fs.solve(problem)`` beside the baselines.

Generated rows are shaped like LIBSVM's adult data: each has about fourteen ones, one per group of
dummies; or a LIBSVM file is read. Seconds are those of the processor, all clients in this process.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.loop.trace import Row
from fedsplit.methods.method import Method
from measuring import head, row

CLIENTS = (12, 142, 1000)
SPLITS = ("iid", "sorted", "zipf")
RIDGES = (1e-3, 1e-6)

GAP = 1e-9
"""Of F(x) - F*, relative to F*."""

LATENCY = 0.05
"""Seconds that a question takes elsewhere, beside the work."""

BETTER = 1.2
"""A baseline may be this many times better in questions or in floats, but not in both."""

SLOWER = 3.0
"""How many times the seconds of the fastest baseline the default may take in one process."""

METHODS: dict[str, Callable[[], Method[Any] | None]] = {
    "default": lambda: None,
    "quasi-Newton": fs.QuasiNewton,
    "L-BFGS": fs.LBFGS,
    "CG": fs.CG,
    "GIANT": fs.GIANT,
    "Newton": fs.Newton,
}


class Cost(NamedTuple):
    """What a run took until the gap was reached; infinite if it was not.

    Attributes
    ----------
    questions, floats : float
        Floats both ways, of all clients.
    seconds : float
        Of the processor, the median of up to three runs.
    factorisations : float
        Of a client, on average.
    """

    questions: float
    floats: float
    seconds: float
    factorisations: float

    @property
    def far(self) -> float:
        """Seconds with clients elsewhere."""
        return self.seconds + LATENCY * self.questions


NEVER = Cost(math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True)
class Rows:
    """A table of 0/1 columns, and its classes."""

    A: Array
    b: Array


def generated(n: int = 8000, groups: int = 14, seed: int = 0) -> Rows:
    """Dummies of categories whose frequencies differ, as of a census, and an intercept."""
    rng = np.random.default_rng(seed)
    columns = []
    for levels in rng.integers(2, 12, size=groups):
        shares = rng.dirichlet(0.7 * np.ones(levels))
        columns.append(np.eye(levels)[rng.choice(levels, p=shares, size=n)])
    A = np.hstack([np.ones((n, 1)), *columns])
    x = rng.standard_normal(A.shape[1])
    x[0] = -1.5
    b = np.where(rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-A @ x)), 1.0, -1.0)
    return Rows(A, b)


def libsvm(path: str) -> Rows:
    """The rows of a LIBSVM file with two classes, and an intercept."""
    from sklearn.datasets import load_svmlight_file

    A, b = load_svmlight_file(path)
    dense = np.hstack([np.ones((A.shape[0], 1)), A.toarray()])
    return Rows(dense, np.where(b == b.max(), 1.0, -1.0))


def problem(rows: Rows, m: int, split: str, ridge: float) -> fs.Problem:
    """The rows over m clients, with a ridge per row."""
    rng = np.random.default_rng(m)
    n = len(rows.b)
    order = rng.permutation(n)
    if split == "sorted":
        order = np.argsort(rows.b, kind="stable")
    shares = np.ones(m)
    if split == "zipf":
        shares = 1.0 / np.arange(1, m + 1)
    ends = np.cumsum(1 + np.floor((n - m) * shares / shares.sum())).astype(int)
    parts = np.split(order, ends[:-1])
    return fs.Problem(fs.Logistic(), [(rows.A[p], rows.b[p]) for p in parts], ridge * n)


def cost(problem: fs.Problem, best: float, method: Method[Any] | None, most: int = 400) -> Cost:
    """What a method takes until F(x) - F* is within the gap."""

    def near(row: Row, state: Any) -> bool:
        return row.objective - best <= GAP * abs(best)

    times: list[float] = []
    while len(times) < 3 and sum(times) < 1.0:
        began = time.process_time()
        try:
            result = fs.solve(problem, method, rounds=most, tol=0, callbacks=[near])
        except (fs.InputError, fs.Diverged):  # conjugate gradients need a quadratic
            return NEVER
        times.append(time.process_time() - began)
    seconds = statistics.median(times)
    if result.stopped_by != "callback":
        return NEVER
    trace = result.trace
    floats = float(trace.floats_up.sum() + trace.floats_down.sum())
    return Cost(result.rounds, floats, seconds, trace.factorisations.sum() / problem.m)


def pooled(rows: Rows, ridge: float) -> float:
    """Seconds of scikit-learn's fastest solver on the pooled rows, to about the same accuracy."""
    from sklearn.linear_model import LogisticRegression

    C = 1.0 / (ridge * len(rows.b))
    times = []
    for solver in ("lbfgs", "newton-cholesky"):
        model = LogisticRegression(C=C, fit_intercept=False, solver=solver, tol=1e-8, max_iter=5000)
        began = time.process_time()
        model.fit(rows.A, rows.b)
        times.append(time.process_time() - began)
    return min(times)


def verdict(found: dict[str, Cost]) -> str:
    """Where a baseline is better than the default by more than the limits."""
    ours = found["default"]
    others = {name: each for name, each in found.items() if name not in ("default", "quasi-Newton")}
    words = [
        f"{name}: fewer questions and floats"
        for name, each in others.items()
        if BETTER * each.questions < ours.questions and BETTER * each.floats < ours.floats
    ]
    words += [
        f"{name}: {ours.seconds / each.seconds:.1f} × faster"
        for name, each in others.items()
        if SLOWER * each.seconds < ours.seconds
    ]
    words += [
        f"{name}: {ours.far / each.far:.1f} × faster with {LATENCY * 1000:.0f} ms a question"
        for name, each in others.items()
        if BETTER * each.far < ours.far
    ]
    return "; ".join(words) or "none"


def cell(each: Cost) -> str:
    """A cost as a cell."""
    if math.isinf(each.questions):
        return "–"
    return (
        f"{each.questions:.0f}; {each.floats / 1e6:.2g}M; {each.seconds:.2g} s "
        f"({each.far:.2g}); {each.factorisations:.0f}"
    )


def rows(path: str | None, quick: bool) -> Rows:
    """Those of a LIBSVM file, or else generated ones."""
    if path is not None:
        return libsvm(path)
    if quick:
        return generated(n=4000)
    return generated()


def show(rows: Rows, quick: bool = False) -> dict[str, dict[str, tuple[float, float]]]:
    """Print the table; return questions and floats by row and method."""
    n, d = rows.A.shape
    print(f"\nLogistic, {n} rows × {d} columns of 0 and 1, to a gap of {GAP:g} of F*. Questions;")
    print(
        "millions of floats; seconds, in brackets with 50 ms a question; Newton systems a client."
    )
    labels = [name for name in METHODS if name != "CG"]  # which needs a quadratic
    head("clients", "split", "ridge a row", *labels, "scikit-learn, pooled", "a baseline is better")
    drawn = {}
    for ridge in RIDGES:
        seconds = pooled(rows, ridge)
        for m, split in product(CLIENTS[: 3 - quick], SPLITS[: 3 - quick]):
            p = problem(rows, m, split, ridge)
            best = p.objective(p.solution())
            found = {name: cost(p, best, METHODS[name]()) for name in labels}
            title = f"sparse rows, {m} clients, {split}, ridge {ridge:g}"
            drawn[title] = {name: each[:2] for name, each in found.items()}
            cells = [cell(each) for each in found.values()]
            row(f"{m}", split, f"{ridge:g}", *cells, f"{seconds:.2g} s", verdict(found))
    return drawn
