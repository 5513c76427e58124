"""Logistic regression: φ(η, b) = log(1 + e^{-bη}), b in {-1, 1}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from fedsplit.arrays import Array
from fedsplit.losses.two_classes import BinaryLoss


@dataclass(frozen=True)
class Logistic(BinaryLoss):
    """f_j(x) = Σ_i w_i log(1 + exp(-b_i η_i)), η_i = a_iᵀx + o_i (the paper's §4.2).

    Labels are {-1, 1}, {0, 1} or bool, the same coding at every client. No margin overflows: at
    bη = -1e4 the value is 1e4. L_j = λ_max(A_jᵀW_jA_j)/4 and ℓ_j = 0.
    """

    curvature_range = (0.0, 0.25)
    concordance = 1.0

    def value(self, eta: Array, b: Array) -> Array:
        margin = b * eta
        loss: Array = np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0.0)
        return loss

    def slope(self, eta: Array, b: Array) -> Array:
        slope: Array = -b * expit(-b * eta)
        return slope

    def curvature(self, eta: Array, b: Array) -> Array:
        e = np.exp(-np.abs(eta))
        curvature: Array = e / np.square(1.0 + e)
        return curvature

    def tilt(self, eta: Array, b: Array) -> Array:
        tilt: Array = -np.tanh(0.5 * eta)
        return tilt

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return cp.logistic(-cp.multiply(b, eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return np.where(rng.logistic(size=eta.shape) < eta, 1.0, -1.0)
