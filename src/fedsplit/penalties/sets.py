"""Constraints on all coordinates together: the Euclidean ball and the simplex."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import number


@dataclass(frozen=True)
class L2Ball:
    """‖x‖₂ ≤ radius.

    Parameters
    ----------
    radius : float
        Above 0.
    """

    radius: float

    coordinatewise = False

    def __post_init__(self) -> None:
        number("L2Ball: radius", self.radius)

    def value(self, x: Array) -> float:
        # x is the output of a prox, whose length is right only to rounding.
        return float(np.where(np.linalg.norm(x) <= self.radius * (1.0 + 1e-9), 0.0, np.inf))

    def prox(self, v: Array, t: float | Array) -> Array:
        length = float(np.linalg.norm(v))
        if length <= self.radius:
            return v
        return v * (self.radius / length)

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        return float(gradient @ x) + self.radius * float(np.linalg.norm(gradient))


@dataclass(frozen=True)
class Simplex:
    """x ≥ 0 and Σ x_i = total: the weights of a mixture or a portfolio.

    Parameters
    ----------
    total : float
        The sum of the coordinates, above 0.
    """

    total: float = 1.0

    coordinatewise = False

    def __post_init__(self) -> None:
        number("Simplex: total", self.total)

    def value(self, x: Array) -> float:
        # x is the output of a prox, whose sum is right only to rounding.
        summed = abs(float(np.sum(x)) - self.total) <= 1e-9 * self.total
        return float(np.where(np.all(x >= 0) and summed, 0.0, np.inf))

    def prox(self, v: Array, t: float | Array) -> Array:
        # The projection is max(v - shift, 0); the shift follows from which coordinates stay
        # positive, the largest ones (Held, Wolfe and Crowder, 1974).
        # It is the same for v + const: measured from the largest one, no v is too large for total.
        v = v - np.max(v)
        falling = np.sort(v)[::-1]
        shifts = (np.cumsum(falling) - self.total) / np.arange(1, v.size + 1)
        shift = shifts[np.flatnonzero(falling > shifts)[-1]]
        return np.maximum(v - shift, 0.0)

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        return float(gradient @ x - self.total * np.min(gradient))
