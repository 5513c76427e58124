"""Runs of FedSplit with inexact proxes, against rounds and passes over the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsplit import ensembles, theory
from fedsplit.arrays import Array
from fedsplit.local.solver import ProxSolver
from fedsplit.loop.result import Diverged
from fedsplit.loop.solve import solve
from fedsplit.loop.trace import Row
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.logistic import Logistic
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.paper.runs import SolvedProblem
from fedsplit.plots import Columns
from fedsplit.problem import Problem

LOWEST = 1e-10
"""The gap at which a run ends."""


def solved_problems(settings: Mapping[str, Any]) -> dict[str, tuple[SolvedProblem, float, float]]:
    """Figure 3's logistic regression and Figure 2b's least squares, each with its ℓ* and L*.

    The logistic cost is nowhere strongly convex without bounds on x, so its ℓ is that at x*.
    """
    seed = settings["seed"]
    m, d, n = settings["logistic"]
    data = ensembles.logistic(m, d, n, 1 / d, seed).rows
    logistic = SolvedProblem(Problem(Logistic(), data), lambda cost, gap: None)
    m, d, n = settings["spiked"]
    data = ensembles.spiked(m, d, n, settings["kappa"], seed=seed).rows
    spiked = SolvedProblem(Problem(LeastSquares(rows=True), data), lambda cost, gap: None)
    return {
        "logistic": (logistic, logistic.constants(logistic.x)[0], logistic.constants()[1]),
        "spiked": (spiked, *spiked.constants()),
    }


def run(
    solved: SolvedProblem, ell: float, L: float, prox: ProxSolver, rounds: int, seed: int
) -> Columns:
    """Run plain FedSplit at Theorem 1's step with a local solver.

    Returns
    -------
    table
        At the start and after each round: ``round``; ``passes`` over the data per client so far,
        gradients and Hessians of all rows and their shares of minibatches; ``gap``; and ``bound``,
        the gap that follows from the master theorem with the proved errors of the proxes.
    """
    s = theory.fedsplit_step(ell, L)
    m = solved.clients.m
    distance = float(np.linalg.norm(theory.fedsplit_fixed_point(solved.clients, solved.x, s)))

    def look(row: Row, state: Any) -> bool:
        return row.objective - solved.best <= LOWEST

    method = FedSplit(s, prox)
    try:
        result = solve(solved.clients, method, rounds=rounds, tol=0, seed=seed, callbacks=[look])
    except Diverged as error:
        result = error.result
    trace = result.trace
    # the errors of all clients are at most √m times the largest
    z = theory.master_bound(L / ell, distance, math.sqrt(m) * trace.error)
    pooled = float(np.linalg.eigvalsh(solved.clients.pooled_information(solved.x))[-1])
    passes = np.cumsum(trace.gradients + trace.hessians) / m
    return {
        "round": np.arange(len(trace) + 1, dtype=np.float64),
        "passes": np.concatenate([[0.0], passes]),
        "gap": trace.objective - solved.best,
        "bound": 0.5 * pooled * np.square(z) / m,
    }


def passes_to(table: Columns, gap: float) -> float:
    """Passes over the data until the gap is at most this; NaN if it never is."""
    below = np.flatnonzero(table["gap"] <= gap)
    if not below.size:
        return math.nan
    return float(table["passes"][below[0]])


def bound_ratios(table: Columns) -> Array:
    """Return the gap over its bound after each round, where it is above rounding."""
    shown = table["gap"] > 1e-9
    ratio: Array = table["gap"][shown] / table["bound"][shown]
    return ratio[1:]
