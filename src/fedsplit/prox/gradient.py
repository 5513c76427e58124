"""The paper's approximate prox: a fixed number of gradient steps on h_j (Corollary 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np

from fedsplit.arrays import Array, dots
from fedsplit.checks import count, number
from fedsplit.errors import InputError
from fedsplit.losses.costs import Costs
from fedsplit.prox.line_search import Merit, Point, search
from fedsplit.prox.solver import Proximal, Start, bounded

Number = TypeVar("Number", float, Array)


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
    step : number, "paper" or "backtracking", optional
        α. None is 1/(1 + s L_j), which is stable, and a backtracking line search at clients whose
        L_j is not known. "paper" is 1/(1 + s(ℓ_j + L_j)/2).
    """

    steps: int = 10
    start: Start = "broadcast"
    step: float | Literal["paper", "backtracking"] | None = None

    def __post_init__(self) -> None:
        count("GradientProx: steps", self.steps)
        if self.start not in get_args(Start):
            raise InputError(
                f"GradientProx: start must be one of {', '.join(get_args(Start))}, "
                f"not {self.start!r}"
            )
        if self.step not in (None, "paper", "backtracking"):
            number('GradientProx: step, if not None, "paper" or "backtracking",', self.step)

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        U = np.broadcast_to(start, V.shape)
        alpha = self._alpha(costs, float(np.max(s)))
        known = np.isfinite(alpha)
        merit = Merit(costs, V, s)
        for _ in range(self.steps):
            r = s * costs.gradient(U) + U - V
            step = np.where(known, alpha, 1.0)[:, None] * r
            moved = U - step
            if not known.all():
                at = Point(U, merit.value(U), known)
                searched = search(merit, at, step, dots(r / s, step), share=0.5)
                moved = np.where(known[:, None], moved, searched.U)
            U = moved
        return bounded(costs, V, s, U, costs.gradient(U))

    def _alpha(self, costs: Costs, s: float) -> Array:
        """α_j, (k,); nan where a line search has to find it."""
        ell, L = costs.bounds
        if self.step is None:
            return np.where(np.isfinite(L), 1.0 / (1.0 + s * L), np.nan)
        if self.step == "backtracking":
            return np.full(L.shape, np.nan)
        if self.step == "paper":
            if not np.isfinite(L).all():
                raise InputError(
                    'GradientProx(step="paper") needs a loss with a known L_j: '
                    'use step=None or "backtracking"'
                )
            return inner_step(s, ell, L)
        return np.full(L.shape, float(self.step))


def inner_step(s: float, ell: Number, L: Number) -> Number:
    """α = 1/(1 + s(ℓ + L)/2), the inner gradient step of Corollary 1."""
    return 1.0 / (1.0 + 0.5 * s * (ell + L))
