"""The one Newton method of a client: argmin_u f_j(u) + ½‖u - v_j‖²_M, for all clients of a block.

With M = I/s this is the paper's prox_{s f_j}(v_j). With a matrix M it is the step of a client in
the metric of the Hessians, for which a share of the way is enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import (
    EPS,
    Array,
    Mask,
    Metric,
    dots,
    matvec,
    metric_times,
    namespace,
    norms,
)
from fedsplit.local.solver import Merit, Proximal, Start, backtrack, bounded
from fedsplit.losses.costs import Costs, Evaluation
from fedsplit.losses.systems import Solver


@dataclass(frozen=True)
class LocalNewton:
    """Newton's method with a line search, each client stopped when it is accurate enough."""

    # stop when the next Newton step is at most this share of the way from the start, both in the
    # norm of ∇²f_j + M; 0 solves to rounding
    ratio: float = 0.0
    # ‖∇h_j‖ relative to the terms that it sums, at which rounding is reached: some hundred times
    # the unit roundoff, as a gradient is a sum over many rows
    tolerance: float = 1e-13
    # below this relative size a step that does not halve ‖∇h_j‖ shows rounding too, on costs whose
    # rows cancel more than ``tolerance`` allows for
    stagnation: float = 1e-10
    most_steps: int = 200  # far more than a convex cost with a line search needs
    # steps with a first guess of the inverse, if there is one, before those of Newton: they take a
    # gradient each, not a Hessian
    chords: int = 2

    def solve(
        self, start: Evaluation, V: Array, M: Metric, first: Solver | None = None
    ) -> Evaluation:
        """The costs at the minimisers, from ``start`` and with the centres v_j, (k, d).

        ``first`` is a guess of the inverse of ∇²f_j + M.
        """
        merit = Merit(V, M)
        at = start  # the way is measured from ``start`` to the end
        h = merit.value(at)
        G = merit.gradient(at)
        xp = namespace(h)
        active: Mask = xp.isfinite(h)  # beyond float64 there is no direction to go in
        if first is None:
            size, rounded = self._rounded(merit, at, G, xp.full_like(h, math.inf))
            active &= ~rounded
        else:
            at, active = self._chord_steps(merit, at, h, G, first)
            h = merit.value(at)
            G = merit.gradient(at)
            size = norms(G)
        for _ in range(self.most_steps):
            if not xp.any(active):
                break
            before = at
            inverse = before.factor(M)
            # whoever is done has a step of 0, so that the block stays in one piece
            step = xp.where(active[:, None], inverse.solve(G), 0.0)
            at, h, moved = backtrack(merit, at, h, step, dots(G, step))
            G = merit.gradient(at)
            size, rounded = self._rounded(merit, at, G, size)
            active &= moved & ~rounded
            if self.ratio > 0:
                active &= ~self._near(merit, start, before, at, h, G, inverse)
            del inverse  # as large as the Hessians, which are to come next
        return at

    def _rounded(self, merit: Merit, at: Evaluation, G: Array, before: Array) -> tuple[Array, Mask]:
        """‖∇h_j‖, (k,), and whether it is at the level of rounding, or was not halved near it."""
        # ‖Mu‖ and ‖Mv‖ apart: their difference is small where u is near v
        scale = norms(at.gradient)
        scale = scale + norms(metric_times(merit.M, at.X)) + norms(metric_times(merit.M, merit.V))
        size = norms(G)
        stagnates = (size > 0.5 * before) & (size <= self.stagnation * scale)
        return size, ~(size > self.tolerance * scale) | stagnates

    def _near(
        self,
        merit: Merit,
        start: Evaluation,
        before: Evaluation,
        at: Evaluation,
        h: Array,
        G: Array,
        inverse: Solver,
    ) -> Mask:
        """Whether what is left is a small share of the way from the start, (k,)."""
        way = at.X - start.X
        # the inverse at hand says whether a new one is worth its price
        travelled = dots(way, metric_times(merit.M, way) + matvec(before.hessian, way))
        left = dots(G, inverse.solve(G))
        return np.asarray(left <= np.maximum(self.ratio**2 * travelled, 16 * EPS * np.abs(h)))

    def _chord_steps(
        self, merit: Merit, at: Evaluation, h: Array, G: Array, inverse: Solver
    ) -> tuple[Evaluation, Mask]:
        """Steps by one inverse while they halve what is left, and who is not there after them."""
        step = inverse.solve(G)
        length = _length(G, step)
        least = np.sqrt(16 * EPS * np.abs(h))  # a shorter step changes h by less than rounding
        travelled = np.zeros_like(length)
        active = length > least
        hard = np.zeros_like(active)
        for _ in range(self.chords):
            if not active.any():
                break
            trial = at.costs.at(np.where(active[:, None], at.X - step, at.X))
            G = merit.gradient(trial)
            step = inverse.solve(G)
            left = _length(G, step)
            taken = active & (left <= 0.5 * length)
            hard |= active & ~taken
            # for clients that were done before, the trial is the point they are at
            at = at.merged(trial, taken | ~active)
            travelled = np.where(taken, travelled + length, travelled)
            length = np.where(taken, left, length)
            active = taken & (length > self.ratio * travelled) & (length > least)
        return at, hard | active


@dataclass(frozen=True)
class ExactProx:
    """prox_{s f_j}(v_j), exact to rounding.

    Quadratic costs: (I + s H_j)⁻¹ is computed once for each s, and a prox is one product. Other
    costs: Newton's method with a line search, all clients of a block together, each one stopped
    when its own ‖∇h_j‖ has reached rounding. A cost of +inf at a trial point is a rejected step.
    """

    start: ClassVar[Start] = "broadcast"

    def solve(self, costs: Costs, V: Array, s: float, start: Array) -> Proximal:
        M = 1.0 / s
        closed = costs.minimiser(M, V)
        if closed is not None:
            U, error = closed
            return bounded(V, s, costs.at(U)) if error is None else Proximal(U, error)
        at = costs.at(namespace(V).broadcast_to(start, V.shape))
        centre = costs.at(V)
        merit = Merit(V, M)
        # From a distant start Newton's method needs many steps: clients to which v_j or 0 is better
        # start there. h_j(v_j) is f_j(v_j); a comparison with nan is false, so that nan is left.
        at = at.merged(centre, ~(merit.value(at) <= centre.value))
        far: Mask = ~(merit.value(at) <= costs.value_at_origin + 0.5 * M * dots(V, V))
        if namespace(V).any(far):
            at = at.merged(costs.at(0.0 * V), far)
        return bounded(V, s, LocalNewton().solve(at, V, M))


def _length(X: Array, Y: Array) -> Array:
    """√⟨x_j, y_j⟩ for every j, where y_j is a positive definite matrix times x_j, (k,)."""
    return np.sqrt(np.maximum(dots(X, Y), 0.0))
