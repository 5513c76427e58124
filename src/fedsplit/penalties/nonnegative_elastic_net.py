"""The elastic net with some coordinates nonnegative: the penalty of a fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.penalties.l1 import soft_threshold


@dataclass(frozen=True, eq=False)
class NonNegativeElasticNet:
    """Σ_i l1_i|x_i| + (l2_i/2)x_i², with x_i ≥ 0 where ``nonnegative``.

    It has no ``dual_gap``: fits prove their distance from the optimum by curvature.

    Parameters
    ----------
    l1, l2 : (d,) array
        The weights, all at least 0.
    nonnegative : (d,) bool array
        Which coordinates are constrained.
    """

    l1: Array
    l2: Array
    nonnegative: Mask

    coordinatewise = True

    @property
    def convexity(self) -> float:
        return float(self.l2.min())

    @property
    def bounded(self) -> bool:
        """Whether it keeps coefficients finite whatever the data (unpenalised ones aside)."""
        return bool(self.l1.any() or self.l2.any())

    def value(self, x: Array) -> float:
        if (x[self.nonnegative] < 0).any():
            return np.inf
        return float(np.sum(self.l1 * np.abs(x) + 0.5 * self.l2 * x * x))

    def prox(self, v: Array, t: float | Array) -> Array:
        shrunk = soft_threshold(v, t * self.l1) / (1.0 + t * self.l2)
        kept: Array = np.where(self.nonnegative, np.maximum(shrunk, 0.0), shrunk)
        return kept
