"""Bounds on coordinates: lower ≤ x ≤ upper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError


@dataclass(frozen=True)
class Box:
    """lower ≤ x ≤ upper.

    Parameters
    ----------
    lower, upper : float or (d,) array
        The bounds, for all coordinates or one per coordinate; -inf and inf where there is none.
    """

    lower: float | Sequence[float] | Array = -np.inf
    upper: float | Sequence[float] | Array = np.inf

    coordinatewise = True

    def __post_init__(self) -> None:
        try:
            lower = np.asarray(self.lower, np.float64)
            upper = np.asarray(self.upper, np.float64)
            ordered = bool(np.all(lower <= upper))
        except (TypeError, ValueError):
            ordered = False
        if not ordered:
            raise InputError(
                "Box: lower must be at most upper everywhere, "
                f"not {self.lower!r} and {self.upper!r}"
            )

    def value(self, x: Array) -> float:
        return float(np.where(np.all((self.lower <= x) & (x <= self.upper)), 0.0, np.inf))

    def prox(self, v: Array, t: float | Array) -> Array:
        projected: Array = np.clip(v, np.asarray(self.lower), np.asarray(self.upper))
        return projected

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        lower = np.asarray(self.lower)
        upper = np.asarray(self.upper)
        with np.errstate(invalid="ignore"):  # 0·inf, where the next line puts 0
            lowest = np.where(gradient > 0, gradient * lower, gradient * upper)
        return float(gradient @ x - np.sum(np.where(gradient == 0, 0.0, lowest)))


@dataclass(frozen=True)
class NonNegative:
    """x ≥ 0, for all coordinates or for those named.

    Parameters
    ----------
    coordinates : sequence of int, optional
        Which coordinates; None is all of them.
    """

    coordinates: Sequence[int] | None = None

    coordinatewise = True

    def value(self, x: Array) -> float:
        return float(np.where(np.all(self._lower(x) <= x), 0.0, np.inf))

    def prox(self, v: Array, t: float | Array) -> Array:
        return np.maximum(v, self._lower(v))

    def _lower(self, x: Array) -> Array:
        """The lower bound of every coordinate, (d,)."""
        if self.coordinates is None:
            return np.zeros(x.shape)
        lower = np.full(x.shape, -np.inf)
        lower[list(self.coordinates)] = 0.0
        return lower
