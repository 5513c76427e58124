"""A line search for all clients of a block at once, each with its own step length."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from fedsplit.arrays import Array, Mask, dots
from fedsplit.losses.costs import Costs

Merit: TypeAlias = Callable[[Array], Array]

HALVINGS = 60


class Point(NamedTuple):
    """Where every client is, its merit there, and whether the last search found a step."""

    U: Array
    h: Array
    moved: Mask


def prox_merit(costs: Costs, V: Array, s: float | Array) -> Merit:
    """u ↦ f_j(u) + ½‖u - v_j‖²/s, what prox_{s f_j}(v_j) minimises; +inf where that is not a number."""

    def merit(U: Array) -> Array:
        h = costs.value(U) + 0.5 * dots(U - V, (U - V) / s)
        return np.where(np.isnan(h), np.inf, h)

    return merit


def search(merit: Merit, at: Point, step: Array, slope: Array, share: float) -> Point:
    """Take u - t·step with the first t of 1, ½, ¼, … at which the merit falls by share·t·slope, up to rounding.

    slope is ⟨∇h, step⟩, (k,). A merit of +inf is a rejected step. Clients with a zero slope stay where they are.
    """
    t = np.ones(at.h.shape)
    seeking = slope > 0
    slack = 16 * np.finfo(np.float64).eps * np.abs(at.h)
    U, h = at.U, at.h
    for _ in range(HALVINGS):
        trial = at.U - t[:, None] * step
        value = merit(trial)
        accepted = seeking & (value <= at.h - share * t * slope + slack)
        U, h = np.where(accepted[:, None], trial, U), np.where(accepted, value, h)
        seeking &= ~accepted
        if not seeking.any():
            break
        t = np.where(seeking, 0.5 * t, t)
    return Point(U, h, (slope > 0) & ~seeking)
