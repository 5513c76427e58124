"""Logistic regression: φ(η, b) = log(1 + e^{-bη}), b in {-1, 1}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array, namespace
from fedsplit.losses.linear import LinearLoss


@dataclass(frozen=True)
class Logistic(LinearLoss):
    """f_j(x) = Σ_i w_i log(1 + exp(-b_i η_i)), η_i = a_iᵀx + o_i (the paper's §4.2).

    Labels are {-1, 1}, {0, 1} or bool, the same coding at every client. No margin overflows: at
    bη = -1e4 the value is 1e4. L_j = λ_max(A_jᵀW_jA_j)/4 and ℓ_j = 0.
    """

    curvature_range = (0.0, 0.25)
    concordance = 1.0
    steepest = 1.0
    classifies = True
    code = """
    __device__ float value(float t, float b) {
        return log1pf(expf(-fabsf(t))) + fmaxf(-b * t, 0.0f);
    }
    __device__ float slope(float t, float b) { return __fdividef(-b, 1.0f + expf(b * t)); }
    __device__ float bend(float t, float b) {
        float e = expf(-fabsf(t));
        return __fdividef(e, (1.0f + e) * (1.0f + e));
    }
    """

    def value(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        margin = b * eta
        size = xp.abs(margin)
        # log(1 + e^-m) = log(1 + e^-|m|) + max(-m, 0): no margin overflows
        return xp.log1p(xp.exp(-size)) + 0.5 * (size - margin)

    def slope(self, eta: Array, b: Array) -> Array:
        with np.errstate(over="ignore"):  # e^m beyond float64 is a slope of 0, as it should be
            slope: Array = -b / (1.0 + namespace(eta).exp(b * eta))
        return slope

    def curvature(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        e = xp.exp(-xp.abs(eta))  # even in η, and the same for both b
        return e / (1.0 + e) ** 2

    def tilt(self, eta: Array, b: Array) -> Array:
        return -np.tanh(0.5 * eta)

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return cp.logistic(-cp.multiply(b, eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return np.where(rng.logistic(size=eta.shape) < eta, 1.0, -1.0)
