"""The penalty and the constraints of a fit: a sum over coordinates, so that each may have its own step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, Mask


@dataclass(frozen=True, eq=False)
class SignedElasticNet:
    """Σ_i l1_i|x_i| + (l2_i/2)x_i², with x_i ≥ 0 where ``nonnegative``; all (d,)."""

    l1: Array
    l2: Array
    nonnegative: Mask

    coordinatewise = True

    @property
    def convexity(self) -> float:
        return float(self.l2.min())

    @property
    def bounded(self) -> bool:
        """Whether coefficients cannot grow without end, but for those that are free."""
        return bool(self.l1.any() or self.l2.any())

    def value(self, x: Array) -> float:
        if (x[self.nonnegative] < 0).any():
            return np.inf
        return float(np.sum(self.l1 * np.abs(x) + 0.5 * self.l2 * x * x))

    def prox(self, v: Array, t: float | Array) -> Array:
        shrunk = np.sign(v) * np.maximum(np.abs(v) - t * self.l1, 0.0) / (1.0 + t * self.l2)
        kept: Array = np.where(self.nonnegative, np.maximum(shrunk, 0.0), shrunk)
        return kept
