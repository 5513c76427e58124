"""``bs(x, ...)`` and ``ns(x, ...)``: splines whose knots are written, or agreed by all clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.function import PooledFunction, State, constants, numbered, spread
from fedsplit.dialogue import Dialogue

MOST_KNOTS = 50
"""The most knots of a spline between those of the boundary."""


@dataclass(frozen=True)
class Spline(PooledFunction):
    """R's ``bs``, or ``ns`` if it is natural: cubic, and straight at both ends.

    The ``inner`` knots, and those of the boundary, have to be agreed if they are None. With
    ``intercept`` the constant is in the space.
    """

    natural: bool
    inner: int
    knots: tuple[float, ...] | None
    boundary: tuple[float, ...] | None
    degree: int = 3
    intercept: bool = False

    def __post_init__(self) -> None:
        if self.inner < 0:
            raise ValueError(f"df must be {self._narrowest} or more")
        if self.boundary is not None:
            _check_inside(self.knots or (), self.boundary)

    def agreement(self) -> Dialogue[State] | None:
        if self.knots is not None and self.boundary is not None:
            return None
        return self._agree()

    def _agree(self) -> Dialogue[State]:
        values = yield from spread()
        knots = values.quantiles(self.inner) if self.knots is None else self.knots
        boundary = self.boundary or values.boundary
        _check_inside(knots, boundary)
        return {"knots": list(knots), "boundary": list(boundary)}

    def labels(self, state: State) -> list[str]:
        return numbered(self._narrowest + self.inner)

    def values(self, x: Array, state: State) -> Array:
        return self._natural(x, state) if self.natural else self._basis(x, state)

    def report(self, state: State) -> str:
        if not state:
            return ""
        knots = f"knots={constants(state['knots'])}, " if state["knots"] else ""
        return f"{knots}Boundary.knots={constants(state['boundary'])}"

    def extrapolates(self, x: Array) -> bool:
        """Return whether a value lies beyond boundary knots that are written, as R warns of it.

        Natural splines are straight there, and harmless.
        """
        if self.natural or self.boundary is None:
            return False
        lower, upper = self.boundary
        return bool(((x < lower) | (x > upper)).any())

    @property
    def _narrowest(self) -> int:
        """The number of columns without knots between those of the boundary."""
        return (1 if self.natural else self.degree) + self.intercept

    def _natural(self, x: Array, state: State) -> Array:
        """Cubic splines with no second derivative at the boundary, straight beyond it."""
        lower, upper = sorted(state.get("boundary", self.boundary or ()))
        inside = np.clip(x, lower, upper)
        basis = self._basis(inside, state)
        beyond = x != inside
        if beyond.any():
            basis[beyond] += self._basis(inside[beyond], state, 1) * (x - inside)[beyond, None]
        curvature = self._basis(np.array([lower, upper]), state, 2)
        # The last columns of Q span the splines without curvature at the boundary. LAPACK's
        # reflections have the signs of those of LINPACK, which R uses.
        Q, _ = np.linalg.qr(curvature.T, mode="complete")
        # column by column: in a product of matrices the rounding of a row depends on how many
        # others there are, which a guarantee for one row more or less must not
        columns = np.zeros((len(x), Q.shape[1] - 2))
        for column, weights in zip(basis.T, Q[:, 2:], strict=True):
            columns += column[:, None] * weights
        return columns

    def _basis(self, x: Array, state: State, derivative: int = 0) -> Array:
        """B-splines, or their derivatives, which go on as polynomials beyond the boundary.

        All of them add up to the constant, so that the first one is left out unless the constant is
        in the space.
        """
        from scipy.interpolate import BSpline  # takes longer to import than a small fit

        knots = state.get("knots", self.knots or ())
        ends = np.repeat(state.get("boundary", self.boundary or ()), self.degree + 1)
        t = np.sort(np.concatenate([ends, knots]))
        spline = BSpline(t, np.eye(len(t) - self.degree - 1), self.degree, extrapolate=True)
        columns: Array = spline(x, nu=derivative)
        return columns if self.intercept else columns[:, 1:]


def _check_inside(knots: Sequence[float], boundary: Sequence[float]) -> None:
    """Raise ValueError unless there are two boundary knots, and the others lie between them."""
    if len(boundary) != 2 or boundary[0] == boundary[1]:
        raise ValueError("Boundary.knots must be two numbers, as in Boundary.knots=c(0, 10)")
    if len(knots) > MOST_KNOTS:
        raise ValueError(f"it has {len(knots)} knots, more than {MOST_KNOTS}")
    lower, upper = boundary
    if any(not lower < knot < upper for knot in knots):
        raise ValueError(
            f"the knots {constants(knots)} must lie between {lower:.12g} and {upper:.12g}, "
            "which Boundary.knots can change"
        )
