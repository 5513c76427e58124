"""A line search for all clients of a block at once, each with its own step length.

There are two others, with other needs. ``Problem.solution`` searches in one process for any
decrease, and may lengthen a step. ``methods.newton`` asks for all trial points in one question,
because a round costs more than a few values. Neither can take this one's sufficient decrease
without ending at other points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fedsplit.arrays import Array, Mask, dots
from fedsplit.losses.costs import Costs

HALVINGS = 1100
"""From 1 to below the least float: searches end long before, when a step moves nothing."""


class Objective(Protocol):
    """What is searched on: h_j and ∇h_j, at one point of every client."""

    def value(self, U: Array) -> Array:
        """h_j(u_j), (k,); +inf where that is not a number."""

    def gradient(self, U: Array) -> Array:
        """∇h_j(u_j), (k, d)."""


@dataclass(frozen=True)
class Merit:
    """h_j(u) = f_j(u) + ½‖u - v_j‖²/s, which prox_{s f_j}(v_j) minimises.

    Attributes
    ----------
    costs : Costs
        The f_j.
    V : (k, d) array
        The v_j.
    s : float or (d,) array
        The step.
    """

    costs: Costs
    V: Array
    s: float | Array

    def value(self, U: Array) -> Array:
        """h_j(u_j), (k,); +inf where that is not a number."""
        E = U - self.V
        h = self.costs.value(U) + 0.5 * dots(E, E / self.s)
        return np.where(np.isnan(h), np.inf, h)

    def gradient(self, U: Array) -> Array:
        """∇h_j(u_j), (k, d)."""
        return self.costs.gradient(U) + (U - self.V) / self.s


class Point(NamedTuple):
    """Where the clients are.

    Attributes
    ----------
    U : (k, d) array
        The points u_j.
    h : (k,) array
        Their merit h_j(u_j).
    moved : (k,) mask
        Whether the last search found a step.
    """

    U: Array
    h: Array
    moved: Mask


def search(merit: Objective, at: Point, step: Array, slope: Array, share: float) -> Point:
    """Take u - t·step with the first t of 1, ½, ¼, … at which h falls by at least share·t·slope.

    A merit of +inf is a rejected step. If the change of h is lost in rounding, the same test is
    made on slopes, as for a quadratic: ⟨∇h(u - t·step), step⟩ ≥ -(1 - 2 share)·slope.

    Parameters
    ----------
    merit : Objective
        h.
    at : Point
        The points to start from.
    step : (k, d) array
        The directions, to be subtracted.
    slope : (k,) array
        ⟨∇h(u), step⟩; a client whose slope is not positive stays where it is.
    share : float
        The share of the linear decrease that is enough.
    """
    t = np.ones(at.h.shape)
    seeking = slope > 0
    rounding = 16 * np.finfo(np.float64).eps * np.abs(at.h)
    U = at.U
    h = at.h
    for _ in range(HALVINGS):
        trial = at.U - t[:, None] * step
        value = merit.value(trial)
        decrease = np.maximum(share * t * slope, rounding)
        # from a merit of +inf, any finite one is enough
        enough = np.where(np.isfinite(at.h), at.h - decrease, np.finfo(np.float64).max)
        accepted = seeking & (value <= enough)
        lost = seeking & (np.abs(value - at.h) < rounding)
        if lost.any():
            flat = dots(merit.gradient(trial), step) >= -(1.0 - 2.0 * share) * slope
            accepted |= lost & flat
        U = np.where(accepted[:, None], trial, U)
        h = np.where(accepted, value, h)
        seeking &= ~accepted
        if not seeking.any():
            break
        t = np.where(seeking, 0.5 * t, t)
        if (np.abs(t[:, None] * step) <= 1e-17 * np.abs(at.U))[seeking].all():
            break
    return Point(U, h, (slope > 0) & ~seeking)
