"""Runs of methods on a problem whose minimiser is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fedsplit.clients.questions import Curvature

from fedsplit import theory
from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.loop.result import Diverged, Result
from fedsplit.loop.solve import solve
from fedsplit.loop.trace import Row
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.method import Method, State
from fedsplit.paper.experiment import Watch
from fedsplit.plots import Columns
from fedsplit.problem import Problem


def run_to_gap(
    clients: Clients,
    method: Method[Any],
    rounds: int,
    best: float,
    until: float,
    watch: Callable[[float], None],
) -> Result:
    """Run a method until F(x) - F* is at most ``until``.

    Parameters
    ----------
    clients : Clients
    method : Method
    rounds : int
        The most rounds.
    best : float
        F*.
    until : float
    watch : callable
        Called as ``watch(gap)`` after each round.

    Returns
    -------
    Result
        Of the rounds before divergence, if the run diverged.
    """

    def look(row: Row, state: State) -> bool:
        gap = row.objective - best
        watch(gap)
        return gap <= until

    try:
        return solve(clients, method, rounds=rounds, tol=0, callbacks=[look])
    except Diverged as error:
        return error.result


def meter(watch: Watch, work: float) -> Callable[[float, float], None]:
    """Return ``advance(cost, gap)``, which tells ``watch`` what share of the work is done."""
    done = 0.0

    def advance(cost: float, gap: float) -> None:
        nonlocal done
        done += cost
        watch(min(1.0, done / work), gap)

    return advance


class SolvedProblem:
    """A problem with its minimiser.

    Parameters
    ----------
    problem : Problem
    advance : callable
        Called as ``advance(cost, gap)`` after each round of a run.

    Attributes
    ----------
    problem : Problem
    clients : Clients
    x : (d,) array
        The minimiser.
    best : float
        F*.
    """

    def __init__(self, problem: Problem, advance: Callable[[float, float], None]) -> None:
        self.problem = problem
        self.clients = problem.clients
        self.x = problem.solution()
        self.best = problem.objective(self.x)
        self._advance = advance

    def curve(
        self, method: Method[Any], rounds: int, until: float = -np.inf, cost: float = 1.0
    ) -> Columns:
        """Run a method.

        Parameters
        ----------
        method : Method
        rounds : int
            The most rounds.
        until : float
            The gap at which the run ends.
        cost : float
            Of one round, in the units of the progress meter.

        Returns
        -------
        table
            Columns ``round`` and ``gap``, at the start and after each round.
        """
        result = run_to_gap(
            self.clients, method, rounds, self.best, until, lambda gap: self._advance(cost, gap)
        )
        gaps = result.trace.objective - self.best
        return {"round": np.arange(len(gaps), dtype=np.float64), "gap": gaps}

    def constants(self, x: Array | None = None) -> tuple[float, float]:
        """Return ℓ* and L*, the least and the largest curvature of any client, at x or anywhere."""
        bounds = self.clients.ask(Curvature(x)).rows
        return float(bounds[:, 0].min()), float(bounds[:, 1].max())

    def contraction(self, s: float, rounds: int) -> float:
        """Return the largest ‖z⁺ - z*‖/‖z - z*‖ in a run of exact FedSplit."""
        target = theory.fedsplit_fixed_point(self.clients, self.x, s)
        distances = [float(np.linalg.norm(target))]

        def look(row: Row, state: State) -> bool:
            distances.append(float(np.linalg.norm(state.iterate - target)))
            # Ratios of distances near the level of rounding say nothing.
            return distances[-1] < 1e-6 * distances[0]

        solve(self.problem, FedSplitVectors(step=s), rounds=rounds, tol=0, callbacks=[look])
        return float(np.max(np.divide(distances[1:], distances[:-1])))

    def gap(self, x: Array) -> float:
        """Return F(x) - F*."""
        return self.problem.objective(x) - self.best
