"""A line search for all clients of a block at once, each with its own step length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask, dots
from fedsplit.losses.costs import Costs

HALVINGS = 1100
"""From 1 to below the smallest float: a search ends long before, where a step no longer moves the point."""


@dataclass(frozen=True)
class Merit:
    """h_j(u) = f_j(u) + ½‖u - v_j‖²/s, what prox_{s f_j}(v_j) minimises."""

    costs: Costs
    V: Array
    s: float | Array

    def value(self, U: Array) -> Array:
        """h_j(u_j), +inf where that is not a number."""
        E = U - self.V
        h = self.costs.value(U) + 0.5 * dots(E, E / self.s)
        return np.where(np.isnan(h), np.inf, h)

    def gradient(self, U: Array) -> Array:
        return self.costs.gradient(U) + (U - self.V) / self.s


class Point(NamedTuple):
    """Where every client is, its merit there, and whether the last search found a step."""

    U: Array
    h: Array
    moved: Mask


def search(merit: Merit, at: Point, step: Array, slope: Array, share: float) -> Point:
    """Take u - t·step with the first t of 1, ½, ¼, … at which h falls by at least share·t·slope.

    slope is ⟨∇h, step⟩, (k,). A merit of +inf is a rejected step. Where the change of h drowns in rounding, the same
    test is made on slopes, as for a quadratic: ⟨∇h(u - t·step), step⟩ ≥ -(1 - 2 share)·slope. Clients with no slope
    stay where they are.
    """
    t = np.ones(at.h.shape)
    seeking = slope > 0
    rounding = 16 * np.finfo(np.float64).eps * np.abs(at.h)
    U, h = at.U, at.h
    for _ in range(HALVINGS):
        trial = at.U - t[:, None] * step
        value = merit.value(trial)
        enough = np.where(
            np.isfinite(at.h),
            at.h - np.maximum(share * t * slope, rounding),
            np.finfo(np.float64).max,
        )
        accepted = seeking & (value <= enough)
        drowned = seeking & (np.abs(value - at.h) < rounding)
        if drowned.any():
            accepted |= drowned & (
                dots(merit.gradient(trial), step) >= -(1.0 - 2.0 * share) * slope
            )
        U, h = np.where(accepted[:, None], trial, U), np.where(accepted, value, h)
        seeking &= ~accepted
        if not seeking.any():
            break
        t = np.where(seeking, 0.5 * t, t)
        if (np.abs(t[:, None] * step) <= 1e-17 * np.abs(at.U))[seeking].all():
            break
    return Point(U, h, (slope > 0) & ~seeking)
