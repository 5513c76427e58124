"""Runs as the paper's figures need them: a gap a round, distances to the fixed point, rounds to a gap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedsplit import theory
from fedsplit.arrays import Array
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.method import Method, State
from fedsplit.paper.record import Table
from fedsplit.problem import Problem
from fedsplit.rounds.result import Diverged
from fedsplit.rounds.solve import solve
from fedsplit.rounds.trace import Row


class Bench:
    """One problem, its optimum, and a meter of how much of an experiment's work is done."""

    def __init__(
        self, problem: Problem, watch: Callable[[float, float], None], work: float
    ) -> None:
        self.problem, self.clients = problem, problem.clients
        self.x = problem.solution()
        self.best = problem.objective(self.x)
        self._watch, self._work, self._done = watch, work, 0.0

    def curve(
        self, method: Method[Any], rounds: int, until: float = -np.inf, cost: float = 1.0
    ) -> Table:
        """Gap F(x) - F* at the start and after each round, to the end, divergence, or a gap of ``until``."""

        def look(row: Row, state: State) -> bool:
            gap = row.objective - self.best
            self._done += cost
            self._watch(min(1.0, self._done / self._work), gap)
            return gap <= until

        try:
            trace = solve(self.problem, method, rounds=rounds, tol=0, callbacks=[look]).trace
        except Diverged as error:
            trace = error.result.trace
        gaps = trace.objective - self.best
        return {"round": np.arange(len(gaps), dtype=np.float64), "gap": gaps}

    def constants(self) -> tuple[float, float]:
        """ℓ* and L*."""
        bounds = self.clients.curvature().rows
        return float(bounds[:, 0].min()), float(bounds[:, 1].max())

    def contraction(self, s: float, rounds: int) -> float:
        """The largest ‖z⁺ - z*‖/‖z - z*‖ of exact FedSplit, while the distance is far above rounding."""
        target = theory.fedsplit_fixed_point(self.clients, self.x, s)
        distances = [float(np.linalg.norm(target))]

        def look(row: Row, state: State) -> bool:
            distances.append(float(np.linalg.norm(state.iterate - target)))
            return distances[-1] < 1e-6 * distances[0]

        solve(self.problem, FedSplit.plain(step=s), rounds=rounds, tol=0, callbacks=[look])
        return float(np.max(np.divide(distances[1:], distances[:-1])))

    def gap_at(self, x: Array) -> float:
        """F(x) - F*."""
        return self.problem.objective(x) - self.best


def rounds_to(gaps: Array, gap: float) -> float:
    """The first round after which the gap was at most this; not a number where none was."""
    below = np.flatnonzero(gaps <= gap)
    return float(below[0]) if below.size else float("nan")


def floor(gaps: Array) -> float:
    """The gap that a run ended at: the median of its last fifth."""
    return float(np.median(gaps[-max(1, len(gaps) // 5) :]))


def linear_fit(gaps: Array, low: float) -> tuple[float, float]:
    """The factor by which the gap falls each round, and R², of a line through log(gap).

    The line is fitted while the gap is above ``low``, without the first sixth of those rounds.
    """
    above = int(np.argmax(gaps <= low)) if (gaps <= low).any() else len(gaps)
    t = np.arange(above // 6, above)
    y = np.log(gaps[t])
    slope, offset = np.polyfit(t, y, 1)
    residual = y - (slope * t + offset)
    return float(np.exp(slope)), float(1 - residual @ residual / np.sum((y - y.mean()) ** 2))


def sizes(settings: Mapping[str, Any]) -> dict[str, int]:
    """m, d, n and the seed of an experiment."""
    return {key: settings[key] for key in ("m", "d", "n", "seed") if key in settings}
