"""Runs of methods on a problem whose minimiser is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import fedsplit as fs
from fedsplit import theory
from fedsplit.arrays import Array
from fedsplit.clients.questions import Curvature
from fedsplit.loop.trace import Row
from fedsplit.methods.fedsplit import FedSplitState
from fedsplit.methods.method import Method
from fedsplit.paper.experiment import Watch
from fedsplit.plots import Columns


def algorithm1(step: float, prox: fs.GradientProx | None = None) -> Method[Any]:
    """FedSplit as the paper has it; every figure makes its FedSplit here."""
    return fs.FedSplit(step, prox)


class PlannedRun(NamedTuple):
    """What to run.

    Attributes
    ----------
    method : Method
    rounds : int
        The most rounds.
    until : float
        The gap F(x) - F* at which the run ends.
    """

    method: Method[Any]
    rounds: int
    until: float = -math.inf


def run_to_gap(
    clients: fs.Clients, run: PlannedRun, best: float, watch: Callable[[int, float], None]
) -> fs.Result:
    """Run a method until F(x) - F* is at most ``run.until``.

    Parameters
    ----------
    clients : Clients
    run : PlannedRun
    best : float
        F*.
    watch : callable
        Called as ``watch(done, gap)`` after each round.

    Returns
    -------
    Result
        Of the rounds before divergence, if the run diverged.
    """
    done = itertools.count(1)

    def look(row: Row, state: Any) -> bool:
        gap = row.objective - best
        watch(next(done), gap)
        return gap <= run.until

    try:
        return fs.solve(clients, run.method, rounds=run.rounds, tol=0, callbacks=[look])
    except fs.Diverged as error:
        return error.result


def portion(watch: Watch, begin: float, share: float) -> Watch:
    """Report the progress of a part of the work, which begins at ``begin`` and is ``share``."""
    return lambda done, gap: watch(begin + share * done, gap)


class SolvedProblem:
    """A problem with its minimiser.

    Parameters
    ----------
    problem : Problem
    watch : callable, optional
        Called as ``watch(share, gap)`` after each round of ``curves``.

    Attributes
    ----------
    problem : Problem
    clients : Clients
    x : (d,) array
        The minimiser.
    best : float
        F*.
    """

    def __init__(self, problem: fs.Problem, watch: Watch = lambda share, gap: None) -> None:
        self.problem = problem
        self.clients = problem.clients
        self.x = problem.solution()
        self.best = problem.objective(self.x)
        self._watch = watch

    def curves(self, runs: Mapping[str, PlannedRun]) -> dict[str, Columns]:
        """Run methods from x = 0, one after the other.

        Returns
        -------
        dict of str to table
            For each run the columns ``round`` and ``gap``, at the start and after each round.
        """
        tables: dict[str, Columns] = {}
        total = sum(run.rounds for run in runs.values())
        for name, run in runs.items():
            before = sum(runs[earlier].rounds for earlier in tables)

            def watch(done: int, gap: float, before: int = before) -> None:
                self._watch((before + done) / total, gap)

            gaps = run_to_gap(self.clients, run, self.best, watch).trace.objective - self.best
            tables[name] = {"round": np.arange(len(gaps), dtype=np.float64), "gap": gaps}
        return tables

    def constants(self, x: Array | None = None) -> tuple[float, float]:
        """Return ℓ* and L*, the least and the largest curvature of any client, at x or anywhere."""
        bounds = self.clients.ask(Curvature(x)).rows
        return float(bounds[:, 0].min()), float(bounds[:, 1].max())

    def distance(self, s: float) -> float:
        """Return ‖z - z*‖ at the start z = 0 of FedSplit(s)."""
        return float(np.linalg.norm(theory.fedsplit_fixed_point(self.clients, self.x, s)))

    def contraction(self, s: float, rounds: int) -> float:
        """Return the largest ‖z⁺ - z*‖/‖z - z*‖ in a run of exact FedSplit."""
        target = theory.fedsplit_fixed_point(self.clients, self.x, s)
        distances = [self.distance(s)]

        def look(row: Row, state: FedSplitState) -> bool:
            distances.append(float(np.linalg.norm(state.z - target)))
            # Ratios of distances near the level of rounding say nothing.
            return distances[-1] < 1e-6 * distances[0]

        fs.solve(self.problem, algorithm1(s), rounds=rounds, tol=0, callbacks=[look])
        return float(np.max(np.divide(distances[1:], distances[:-1])))

    def gap(self, x: Array) -> float:
        """Return F(x) - F*."""
        return self.problem.objective(x) - self.best
