"""The Euclidean ball, ‖x‖₂ ≤ radius."""

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
