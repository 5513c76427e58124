"""Runs of methods on a problem whose minimiser is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

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


def run_to_gap(
    clients: fs.Clients,
    method: Method[Any],
    best: float,
    until: float,
    watch: Callable[[int, float], None] = lambda done, gap: None,
    **settings: Any,
) -> fs.Result:
    """Run a method until F(x) - F* is at most ``until``, or until it diverges.

    ``best`` is F*, ``watch(done, gap)`` is called after each round, and ``settings`` are others of
    ``solve``, such as ``rounds``.
    """
    done = itertools.count(1)

    def look(row: Row, state: Any) -> bool:
        gap = row.objective - best
        watch(next(done), gap)
        return gap <= until

    try:
        return fs.solve(clients, method, tol=0, callbacks=[look], **settings)
    except fs.Diverged as error:
        return error.result


def portion(watch: Watch, begin: float, share: float) -> Watch:
    """Report the progress of a part of the work, which begins at ``begin`` and is ``share``."""
    return lambda done, gap: watch(begin + share * done, gap)


class SolvedProblem:
    """A problem with its minimiser x, (d,), and ``best``, which is F*."""

    def __init__(self, problem: fs.Problem) -> None:
        self.problem = problem
        self.clients = problem.clients
        self.x = problem.solution()
        self.best = problem.objective(self.x)

    def curves(
        self,
        methods: Mapping[str, Method[Any]],
        rounds: int,
        watch: Watch,
        until: float = -math.inf,
    ) -> dict[str, Columns]:
        """Run methods from x = 0, one after the other, for so many rounds, or until this gap.

        The table of each run has the columns ``round`` and ``gap``, at the start and after each
        round, of which ``watch(share, gap)`` is called.
        """
        tables: dict[str, Columns] = {}
        for name, method in methods.items():
            part = portion(watch, len(tables) / len(methods), 1.0 / (len(methods) * rounds))
            trace = run_to_gap(self.clients, method, self.best, until, part, rounds=rounds).trace
            gaps = trace.objective - self.best
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

        fs.solve(self.problem, fs.FedSplit(s), rounds=rounds, tol=0, callbacks=[look])
        return float(np.max(np.divide(distances[1:], distances[:-1])))

    def gap(self, x: Array) -> float:
        """Return F(x) - F*."""
        return self.problem.objective(x) - self.best
