"""The elastic net, λ₁‖x‖₁ + (λ₂/2)‖x‖²."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.penalties.l1 import L1, soft_threshold
from fedsplit.penalties.penalty import check_weights


@dataclass(frozen=True)
class ElasticNet:
    """λ₁‖x‖₁ + (λ₂/2)‖x‖².

    Parameters
    ----------
    l1, l2 : float or (d,) array
        λ₁ ≥ 0 and λ₂ ≥ 0, for all coordinates or one per coordinate.
    """

    l1: float | Sequence[float] | Array
    l2: float | Sequence[float] | Array

    coordinatewise = True

    def __post_init__(self) -> None:
        check_weights("ElasticNet: l1", self.l1)
        check_weights("ElasticNet: l2", self.l2)

    @property
    def convexity(self) -> float:
        return float(np.min(self.l2))

    def value(self, x: Array) -> float:
        return float(np.sum(np.asarray(self.l1) * np.abs(x) + 0.5 * np.asarray(self.l2) * x * x))

    def prox(self, v: Array, t: float | Array) -> Array:
        return soft_threshold(v, t * np.asarray(self.l1)) / (1.0 + t * np.asarray(self.l2))

    def nearest_subgradient(self, x: Array, v: Array) -> tuple[Array, Array]:
        ridge = np.asarray(self.l2) * x
        nearest, slack = L1(self.l1).nearest_subgradient(x, v - ridge)
        return ridge + nearest, slack

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        l2 = np.asarray(self.l2, dtype=np.float64)
        excess = np.maximum(np.abs(gradient) - np.asarray(self.l1), 0.0)
        # The conjugate of g, coordinate by coordinate: +inf where λ₂ = 0 and there is an excess.
        with np.errstate(divide="ignore", invalid="ignore"):
            conjugate = np.where(excess > 0, excess**2 / (2.0 * l2), 0.0)
        if np.isinf(conjugate).any() and np.all(l2 == 0):
            return L1(self.l1).dual_gap(x, gradient, level)
        return float(gradient @ x) + self.value(x) + float(np.sum(conjugate))
