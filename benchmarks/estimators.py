"""Estimators and paths beside scikit-learn's, in this run: ``make bench-estimators``.

scikit-learn fits the pooled rows to about the accuracy of ours, whose tolerance is 1e-9 standard
errors: how far the coefficients are apart is printed. Seconds are of the processor, the least of
interleaved repetitions. Prints Markdown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn import linear_model
from sklearn.model_selection import LeaveOneGroupOut

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.threads import one_blas_thread
from measuring import head, row

Fit = Callable[[], Any]

ROWS = 50_000
COLUMNS = 50
GROUPS = 20
REPETITIONS = 3


def processor_seconds(work: Fit) -> tuple[float, Any]:
    """Return the time of the processor that the work takes, and what it returns."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def beside(what: str, ours: Fit, theirs: Fit, coef: Callable[[Any], Array] | None) -> None:
    """Print a row: the seconds of both, their ratio, and how far the coefficients are apart."""
    times = []
    for _ in range(REPETITIONS):
        spent, found = processor_seconds(ours)
        reference_spent, reference = processor_seconds(theirs)
        times.append((spent, reference_spent))
    least, reference_least = np.min(times, axis=0)
    apart = ""
    if coef is not None:
        apart = f"{np.max(np.abs(coef(found) - coef(reference))):.0e}"
    cells = (f"{least:.3f} s", f"{reference_least:.3f} s", f"{least / reference_least:.1f}")
    row(what, *cells, apart)


def estimators() -> None:
    """Every kind of estimator on the same rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    groups = np.arange(ROWS) % GROUPS
    eta = X @ rng.standard_normal(COLUMNS) / 5
    classes = X @ rng.standard_normal((COLUMNS, 3)) / 4 + rng.gumbel(size=(ROWS, 3))
    newton = {"solver": "newton-cholesky", "tol": 1e-8}
    targets = {
        "two": rng.logistic(size=ROWS) < eta,
        "three": np.argmax(classes, axis=1),
        "amounts": eta + rng.standard_normal(ROWS),
        "counts": rng.poisson(np.exp(eta / 2)),
        "positive": np.exp(eta / 2) * rng.gamma(2.0, 0.5, ROWS),
    }
    sklearn = linear_model
    lbfgs = {"tol": 1e-10, "max_iter": 1000}
    for what, target, ours, theirs in (
        ("logistic", "two", fs.FedLogisticRegression(), sklearn.LogisticRegression(**newton)),
        ("by L-BFGS", "two", fs.FedLogisticRegression(), sklearn.LogisticRegression(**lbfgs)),
        (
            "three classes",
            "three",
            fs.FedLogisticRegression(),
            sklearn.LogisticRegression(**newton),
        ),
        ("by L-BFGS", "three", fs.FedLogisticRegression(), sklearn.LogisticRegression(**lbfgs)),
        ("Poisson", "counts", fs.FedPoissonRegressor(), sklearn.PoissonRegressor(**newton)),
        ("gamma", "positive", fs.FedGammaRegressor(), sklearn.GammaRegressor(**newton)),
        ("least squares", "amounts", fs.FedLinearRegression(), sklearn.LinearRegression()),
        ("ridge", "amounts", fs.FedRidge(), sklearn.Ridge()),
        ("lasso", "amounts", fs.FedLasso(alpha=0.05), sklearn.Lasso(alpha=0.05, tol=1e-10)),
    ):
        y = targets[target]
        pooled = partial(theirs.fit, X, y)
        beside(what, partial(ours.fit, X, y, groups=groups), pooled, lambda model: model.coef_)


def paths() -> None:
    """A lasso path of 50 values of λ, alone and cross-validated by held-out clients."""
    rng = np.random.default_rng(0)
    n = 5000
    X = rng.standard_normal((n, 30))
    y = X[:, :8] @ rng.standard_normal(8) + 2.0 * rng.standard_normal(n)
    client = np.arange(n) % 8
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(30)]).assign(y=y)
    frames = {str(k): rows for k, rows in table.groupby(client)}
    alphas = fs.path(frames, target="y").lambdas / n
    held_out = list(LeaveOneGroupOut().split(X, y, client))
    beside(
        "lasso path, 50 values of λ",
        lambda: fs.path(frames, target="y"),
        lambda: linear_model.lasso_path(X, y, alphas=alphas, tol=1e-10),
        None,
    )
    beside(
        "the same, each client held out in turn",
        lambda: fs.path(frames, target="y", folds="clients"),
        lambda: linear_model.LassoCV(alphas=alphas, cv=held_out, tol=1e-10).fit(X, y),
        None,
    )


def main() -> None:
    """Measure everything and print the tables."""
    with one_blas_thread():
        head(f"{ROWS:,} × {COLUMNS}, {GROUPS} groups", "fedsplit", "scikit-learn", "ratio", "apart")
        estimators()
        head("5,000 × 30, 8 clients", "fedsplit", "scikit-learn", "ratio", "")
        paths()


if __name__ == "__main__":
    main()
