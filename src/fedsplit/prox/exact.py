"""The prox to rounding: one stored factor for quadratics, safeguarded Newton for every other cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array, dots, norms
from fedsplit.losses.costs import Costs
from fedsplit.prox.line_search import Merit, Point, search
from fedsplit.prox.solver import Proximal, Start, distance_bound

TOLERANCE = 1e-13
"""Newton stops when ‖∇h_j‖ is at most this, relative to the size of the terms it is the sum of."""

STAGNATION = 1e-10
"""Below this, a Newton step that does not halve ‖∇h_j‖ has met rounding."""

NEWTON_STEPS = 200


@dataclass(frozen=True)
class ExactProx:
    """prox_{s f_j}(v_j), exact to rounding.

    Quadratic costs: (I + s H_j)⁻¹ is made once for each s, and a prox is one product; its error is reported as 0.
    Other costs: Newton with a line search, all clients of a block at once, each frozen when its own ‖∇h_j‖ has met
    rounding. A cost of +inf at a trial point is a rejected step.
    """

    start: ClassVar[Start] = "broadcast"

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        u = costs.quadratic_prox(V, s)
        if u is not None:
            return Proximal(u, np.zeros(u.shape[0]))
        return newton(costs, V, s, start)


def newton(costs: Costs, V: Array, s: float | Array, start: Array, ratio: float = 0.0) -> Proximal:
    """The prox by Newton's method: to rounding, or until ‖∇h_j(u)‖ is at most ratio·‖u - start‖."""
    D = np.broadcast_to(1.0 / np.asarray(s), V.shape[1:])
    merit = Merit(costs, V, s)
    at = _best(merit, [np.broadcast_to(start, V.shape), V, np.zeros_like(V)])
    g = costs.gradient(at.U)
    active, size = np.isfinite(at.h), np.full(at.h.shape, np.inf)
    for _ in range(NEWTON_STEPS):
        E = at.U - V
        scale = norms(at.U) + norms(V) + norms(s * g)
        previous, size = size, norms(s * g + E)
        rounding = (size > 0.5 * previous) & (size <= STAGNATION * scale)
        deserved = ratio * norms(at.U - start) if ratio > 0 else 0.0
        active = active & at.moved & (size > np.maximum(TOLERANCE * scale, deserved)) & ~rounding
        if not active.any():
            break
        G = g + D * E
        step = np.where(active[:, None], costs.solve(at.U, D, G), 0.0)
        at = search(merit, at, step, dots(G, step), share=1e-4)
        g = costs.gradient(at.U)
    return Proximal(at.U, distance_bound(costs, s, s * g + at.U - V), g)


def _best(merit: Merit, candidates: list[Array]) -> Point:
    """Every client's candidate of least merit: from a start far out, Newton would need many steps."""
    h = np.stack([merit.value(U) for U in candidates])
    best = np.argmin(h, axis=0)
    rows = np.arange(best.size)
    return Point(np.stack(candidates)[best, rows], h[best, rows], np.ones(best.shape, dtype=bool))
