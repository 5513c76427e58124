"""Splines of given knots, as R's ``bs`` and ``ns`` have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array

CUBIC = 3
"""The degree of natural splines."""


class Spline(NamedTuple):
    """A space of splines.

    Attributes
    ----------
    knots : sequence of float
        Inside the boundary.
    boundary : sequence of float
        The lower and the upper boundary knot.
    degree : int
    intercept : bool
        Whether the constant is in the space.
    """

    knots: Sequence[float]
    boundary: Sequence[float]
    degree: int = CUBIC
    intercept: bool = False

    def b_splines(self, x: Array) -> Array:
        """R's ``bs``: B-splines, which go on as polynomials beyond the boundary."""
        return self._values(x)[:, self._first :]

    def natural(self, x: Array) -> Array:
        """R's ``ns``: cubic splines with no second derivative at the boundary, straight beyond."""
        lower, upper = sorted(self.boundary)
        inside = np.clip(x, lower, upper)
        basis = self._values(inside)
        beyond = x != inside
        if beyond.any():
            basis[beyond] += self._values(inside[beyond], 1) * (x - inside)[beyond, None]
        curvature = self._values(np.array([lower, upper]), 2)
        # The last columns of Q span the splines without curvature at the boundary. LAPACK's
        # reflections have the signs of those of LINPACK, which R uses.
        Q, _ = np.linalg.qr(curvature[:, self._first :].T, mode="complete")
        found: Array = basis[:, self._first :] @ Q[:, 2:]
        return found

    @property
    def _first(self) -> int:
        """The first column that is not left out: all of them add up to the constant."""
        return int(not self.intercept)

    def _values(self, x: Array, derivative: int = 0) -> Array:
        """The B-splines or their derivatives at x, (n, knots + degree + 1)."""
        from scipy.interpolate import BSpline  # takes longer to import than a small fit

        ends = np.repeat(np.sort(self.boundary), self.degree + 1)
        t = np.sort(np.concatenate([ends, self.knots]))
        spline = BSpline(t, np.eye(len(t) - self.degree - 1), self.degree, extrapolate=True)
        found: Array = spline(x, nu=derivative)
        return found
