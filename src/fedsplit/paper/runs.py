"""Runs of methods on a problem whose minimiser is known, and the curves of their gaps F(x) - F*.

A curve has one gap at the start and one after each round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import fedsplit as fs
from fedsplit import plots, theory
from fedsplit.arrays import Array
from fedsplit.clients.questions import Curvature
from fedsplit.loop.trace import Row
from fedsplit.methods.fedsplit import FedSplitState
from fedsplit.methods.method import Method
from fedsplit.paper.experiment import Measurements, Watch
from fedsplit.plots import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LOCAL_STEPS = (1, 5, 10)
"""Gradient steps e of the inexact prox in Figures 2 and 3 (§4.1, §4.2)."""


def rounds_to(gaps: Array, gap: float) -> float:
    """Return the first round after which the gap was at most this, NaN if there was none."""
    below = np.flatnonzero(gaps <= gap)
    return float(below[0]) if below.size else float("nan")


def floor(gaps: Array) -> float:
    """Return the gap that a run ended at: the median of its last fifth."""
    return float(np.median(gaps[-max(1, len(gaps) // 5) :]))


def linear_fit(gaps: Array, low: float) -> tuple[float, float]:
    """Fit a line to log(gap) while the gap is above ``low``, less the first sixth of these rounds.

    Returns the factor by which the gap falls in each round, and the line's R².
    """
    above = int(np.argmax(gaps <= low)) if (gaps <= low).any() else len(gaps)
    t = np.arange(above // 6, above)
    y = np.log(gaps[t])
    slope, offset = np.polyfit(t, y, 1)
    residual = y - (slope * t + offset)
    return float(np.exp(slope)), float(1 - residual @ residual / np.sum((y - y.mean()) ** 2))


def draw_curves(
    measured: Measurements, figures: Mapping[str, tuple[str, Sequence[str]]]
) -> dict[str, Figure]:
    """Draw figures of gaps against rounds: each has a title and the names of its curves."""
    return {
        file: plots.curves(measured.tables, names, title)
        for file, (title, names) in figures.items()
    }


def inexact_methods(s: float, alpha: float, suffix: str = "") -> dict[str, fs.FedSplit]:
    """FedSplit(s) with the exact prox, and with e gradient steps α from the previous iterate."""
    inexact = {
        f"fedsplit-e{e}{suffix}": fs.FedSplit(s, fs.GradientProx(e, start="iterate", step=alpha))
        for e in LOCAL_STEPS
    }
    return {f"fedsplit-exact{suffix}": fs.FedSplit(s), **inexact}


def broadcast_methods(s: float) -> dict[str, fs.FedSplit]:
    """FedSplit(s) with e gradient steps from the broadcast point, which the paper does not have."""
    return {f"fedsplit-e{e}-broadcast": fs.FedSplit(s, fs.GradientProx(e)) for e in LOCAL_STEPS}


def floors(measured: Measurements, suffix: str = "") -> list[float]:
    """Return the gap that each inexact run ended at."""
    return [floor(measured.gap(f"fedsplit-e{e}{suffix}")) for e in LOCAL_STEPS]


def draw_both(
    measured: Measurements, name: str, title: str, setting: str = ""
) -> Mapping[str, Figure]:
    """Draw the paper's figure, and ours with the inner solver started at the broadcast point."""
    paper = ["fedgd-e1", *(f"fedsplit-e{e}" for e in LOCAL_STEPS), "fedsplit-exact"]
    ours = ["fedgd-e1", *(f"fedsplit-e{e}-broadcast" for e in LOCAL_STEPS), "fedsplit-exact"]
    figures = {
        name: (f"{title}{setting}", paper),
        f"{name}-ours": (f"{title}; inner steps from the broadcast point", ours),
    }
    return draw_curves(measured, figures)


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
