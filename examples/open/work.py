"""Runs of FedSplit with inexact proxes, against rounds and passes over the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import fedsplit as fs
from open.figures import lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Mapping[str, NDArray[Any]]


def compare(
    solvers: Mapping[str, fs.local.ProxSolver],
    rounds: Mapping[str, int],
    settings: Mapping[str, Any],
    watch: fs.paper.Watch,
) -> fs.paper.Measurements:
    """Run FedSplit with every local solver on both problems.

    Parameters
    ----------
    solvers, rounds : mapping
        The local solvers, and how many rounds each has, by the names of their curves.
    settings : mapping
    watch : callable
    """
    tables: dict[str, Table] = {}
    problems = solved_problems(settings)
    for problem, (solved, ell, L) in problems.items():
        for name, prox in solvers.items():
            table = run(solved, ell, L, prox, rounds[name], settings["seed"])
            tables[f"{problem}-{name}"] = table
            watch(len(tables) / (len(problems) * len(solvers)), float(table["gap"][-1]))
    return fs.paper.Measurements(settings, tables, {})


def solved_problems(
    settings: Mapping[str, Any],
) -> dict[str, tuple[fs.paper.SolvedProblem, float, float]]:
    """Figure 3's logistic regression and Figure 2b's least squares, each with its ℓ* and L*.

    The logistic cost is nowhere strongly convex without bounds on x, so its ℓ is that at x*.
    """
    seed = settings["seed"]
    m, d, n = settings["logistic"]
    logistic = fs.paper.SolvedProblem(fs.ensembles.logistic(m, d, n, 1 / d, seed))
    m, d, n = settings["spiked"]
    data = fs.ensembles.spiked(m, d, n, settings["kappa"], seed=seed).rows
    spiked = fs.paper.SolvedProblem(fs.Problem(fs.LeastSquares(rows=True), data))
    return {
        "logistic": (logistic, logistic.constants(logistic.x)[0], logistic.constants()[1]),
        "spiked": (spiked, *spiked.constants()),
    }


def run(
    solved: fs.paper.SolvedProblem,
    ell: float,
    L: float,
    prox: fs.local.ProxSolver,
    rounds: int,
    seed: int,
    lowest: float = 1e-10,
) -> Table:
    """Run FedSplit at Theorem 1's step with a local solver, until the gap is at most ``lowest``.

    Returns
    -------
    table
        At the start and after each round: ``round``; ``passes`` over the data per client so far,
        gradients and Hessians of all rows and their shares of minibatches; ``gap``; and ``bound``,
        the gap that follows from the master theorem with the proved errors of the proxes.
    """
    s = fs.theory.fedsplit_step(ell, L)
    m = solved.clients.m

    method = fs.FedSplit(s, prox)
    settings: dict[str, Any] = {"rounds": rounds, "seed": seed}
    trace = fs.paper.run_to_gap(solved.clients, method, solved.best, lowest, **settings).trace
    # the errors of all clients are at most √m times the largest
    z = fs.theory.master_bound(L / ell, solved.distance(s), math.sqrt(m) * trace.error)
    pooled = solved.clients.ask(fs.questions.Information(solved.x)).rows.sum(axis=0)
    passes = np.cumsum(trace.gradients + trace.hessians) / m
    return {
        "round": np.arange(len(trace) + 1, dtype=np.float64),
        "passes": np.concatenate([[0.0], passes]),
        "gap": trace.objective - solved.best,
        "bound": 0.5 * np.linalg.eigvalsh(pooled)[-1] * np.square(z) / m,
    }


def draw(
    measured: fs.paper.Measurements,
    name: str,
    title: str,
    curves: Sequence[str],
    bounds: Sequence[str] = (),
) -> Mapping[str, Figure]:
    """Draw gap against passes and rounds for both problems, and some bounds on least squares."""
    drawn = {}
    for problem, kind in (("logistic", "logistic regression"), ("spiked", "least squares")):
        tables = {each: measured.tables[f"{problem}-{each}"] for each in curves}
        for by, label in (("passes", "passes over the data"), ("round", "rounds")):
            series = {each: (table[by], table["gap"]) for each, table in tables.items()}
            if problem == "spiked":
                series |= {
                    f"bound, {each}": (tables[each][by], tables[each]["bound"]) for each in bounds
                }
            drawn[f"{name}-{problem}-{by}"] = lines(series, f"{title}, {kind}", label)
    return drawn


def passes(measured: fs.paper.Measurements, solver: str, gap: float = 1e-6) -> float:
    """Passes over the logistic data until the gap is at most this; NaN if it never is."""
    table = measured.tables[f"logistic-{solver}"]
    below = np.flatnonzero(table["gap"] <= gap)
    return float(table["passes"][below[0]]) if below.size else math.nan


def bound_claim(
    measured: fs.paper.Measurements, name: str, solvers: Sequence[str]
) -> fs.paper.Claim:
    """Check that the master theorem bounds every gap on least squares."""
    ratios = []
    for solver in solvers:
        table = measured.tables[f"spiked-{solver}"]
        shown = table["gap"] > 1e-9  # above rounding
        ratios.append(float(np.max((table["gap"][shown] / table["bound"][shown])[1:])))
    return fs.paper.Claim(
        f"{name}-bound",
        "on least squares every gap is below that of the master theorem with the proved errors "
        "of the proxes: the largest ratio of each solver",
        "≤ 1",
        ratios,
        max(ratios) <= 1.0 + 1e-9,
    )
