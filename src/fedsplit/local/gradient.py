"""The paper's approximate prox: a fixed number of gradient steps on h_j (Corollary 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from fedsplit.arrays import Array, dots, namespace
from fedsplit.checks import count, number, one_of
from fedsplit.errors import InputError
from fedsplit.local.solver import Merit, Proximal, Start, backtrack, bounded
from fedsplit.losses.costs import Costs

Number = TypeVar("Number", float, Array)
Rule = Literal["client", "paper", "backtracking"]


@dataclass(frozen=True)
class GradientProx:
    """e steps u ← u - α[s∇f_j(u) + u - v_j] (Corollary 1, with the erratum of its display).

    Parameters
    ----------
    steps : int
        The number e of gradient steps.
    start : {"broadcast", "iterate", "argument"}
        Where the first step is taken from. "broadcast", the server's x: the fixed point is exact
        for every e. "iterate", the client's z_j: the error floors of the paper's Figures 2 and 3.
        "argument", v_j = 2x - z_j: as Corollary 1 is written; the outer iteration can diverge.
    step : number, "client", "paper" or "backtracking"
        α. "client" is 1/(1 + s L_j), which is stable at every client, and a backtracking line
        search at clients whose L_j is not known. "paper" is 1/(1 + s(ℓ_* + L^*)/2) with the
        extremes over all clients, which ``FedSplit`` and ``FedProx`` ask for; with other methods it
        is that of each client's own ℓ_j and L_j.
    curvature : float, optional
        (ℓ_* + L^*)/2 for the paper's step.
    """

    steps: int = 10
    start: Start = "broadcast"
    step: float | Rule = "client"
    curvature: float | None = None

    def __post_init__(self) -> None:
        count("GradientProx: steps", self.steps)
        one_of("GradientProx: start", self.start, get_args(Start))
        if self.step not in get_args(Rule):
            number('GradientProx: step, if not "client", "paper" or "backtracking",', self.step)
        if self.curvature is not None:
            number("GradientProx: curvature", self.curvature)

    def for_bounds(self, ell: float, L: float) -> GradientProx:
        """The solver to ask for where ℓ_* and L^*, the extremes over all clients, are known."""
        if self.step != "paper":
            return self
        return replace(self, curvature=0.5 * (ell + L))

    def solve(self, costs: Costs, V: Array, s: float, start: Array) -> Proximal:
        xp = namespace(V)
        alpha = self.inner_steps(s, lambda: costs.bounds) + 0.0 * V[:, 0]
        known = xp.isfinite(alpha)
        all_known = bool(xp.all(known))  # once, as a device has to be waited for
        own = xp.where(known, alpha, 1.0)[:, None]
        merit = Merit(V, 1.0 / s)
        at = costs.at(xp.broadcast_to(start, V.shape))
        for _ in range(self.steps):
            r = s * at.gradient + at.X - V
            step = own * r
            moved = costs.at(at.X - step)
            if not all_known:
                # a share of ½ ends in a step of at least 1/(2L), though L is not known
                slope = xp.where(known, 0.0, dots(r, step) / s)
                searched = backtrack(merit, at, merit.value(at), step, slope, decrease=0.5)
                moved = searched.at.merged(moved, known)
            at = moved
        return bounded(V, s, at)

    def inner_steps(self, s: float, bounds: Callable[[], tuple[Array, Array]]) -> float | Array:
        """α_j, (k,), or α of all clients, by ℓ_j and L_j if needed; nan for a line search."""
        if self.step == "backtracking":
            return math.nan
        if self.step == "paper" and self.curvature is not None:
            return inner_step(s, self.curvature, self.curvature)
        if not isinstance(self.step, str):
            return float(self.step)
        ell, L = bounds()
        xp = namespace(L)
        known = xp.isfinite(L)
        if self.step == "client":
            result: float | Array = xp.where(known, 1.0 / (1.0 + s * L), math.nan)
            return result
        if not xp.all(known):
            raise unknown_curvature()
        return inner_step(s, ell, L)


def unknown_curvature() -> InputError:
    """What is wrong where the paper's step has no L_j to follow from."""
    return InputError(
        'GradientProx(step="paper") needs a loss with a known L_j: '
        'use step="client" or "backtracking"'
    )


def inner_step(s: float, ell: Number, L: Number) -> Number:
    """α = 1/(1 + s(ℓ + L)/2), the inner gradient step of Corollary 1."""
    return 1.0 / (1.0 + 0.5 * s * (ell + L))
