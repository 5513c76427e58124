"""The prox to rounding: Newton's method, or one stored factor for quadratic costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array, dots, norms
from fedsplit.losses.costs import Costs
from fedsplit.prox.line_search import Merit, Point, search
from fedsplit.prox.solver import Proximal, Start, bounded

TOLERANCE = 1e-13
"""Newton stops when ‖∇h_j‖ is at most this, relative to the size of the terms that it sums."""

STAGNATION = 1e-10
"""Below this relative size, a Newton step that does not halve ‖∇h_j‖ has reached rounding."""

MAX_STEPS = 200
"""Far more Newton steps than a convex cost with a line search needs."""


@dataclass(frozen=True)
class ExactProx:
    """prox_{s f_j}(v_j), exact to rounding.

    Quadratic costs: (I + s H_j)⁻¹ is computed once for each s, and a prox is one product; its error
    is reported as 0. Other costs: Newton's method with a line search, all clients of a block
    together, each one stopped when its own ‖∇h_j‖ has reached rounding. A cost of +inf at a trial
    point is a rejected step.
    """

    start: ClassVar[Start] = "broadcast"
    per_coordinate: ClassVar[bool] = True  # s may be (d,)

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        return newton(costs, V, s, start)


def newton(costs: Costs, V: Array, s: float | Array, start: Array, ratio: float = 0.0) -> Proximal:
    """The prox by Newton's method: to rounding, or until ‖∇h_j(u)‖ ≤ ratio·‖u - start‖.

    h_j = s f_j + ½‖· - v_j‖². Quadratic costs are always solved to rounding.
    """
    exact = costs.quadratic_prox(V, s)
    if exact is not None:
        return Proximal(exact, np.zeros(exact.shape[0]))
    D = np.broadcast_to(1.0 / np.asarray(s), V.shape[1:])
    merit = Merit(costs, V, s)
    at = _best(merit, [np.broadcast_to(start, V.shape), V, np.zeros_like(V)])
    g = costs.gradient(at.U)
    active = np.isfinite(at.h)
    size = np.full(at.h.shape, np.inf)
    for _ in range(MAX_STEPS):
        E = at.U - V
        scale = norms(at.U) + norms(V) + norms(s * g)
        previous = size
        size = norms(s * g + E)
        rounding = (size > 0.5 * previous) & (size <= STAGNATION * scale)
        enough = TOLERANCE * scale
        if ratio > 0:
            enough = np.maximum(enough, ratio * norms(at.U - start))
        active = active & at.moved & (size > enough) & ~rounding
        if not active.any():
            break
        G = g + D * E
        step = np.where(active[:, None], costs.solve(at.U, D, G), 0.0)
        at = search(merit, at, step, dots(G, step), share=1e-4)
        g = costs.gradient(at.U)
    return bounded(costs, V, s, at.U, g)


def _best(merit: Merit, candidates: list[Array]) -> Point:
    """Every client's candidate of least merit: from a distant start, Newton needs many steps."""
    h = np.stack([merit.value(U) for U in candidates])
    best = np.argmin(h, axis=0)
    rows = np.arange(best.size)
    return Point(np.stack(candidates)[best, rows], h[best, rows], np.ones(best.shape, dtype=bool))
