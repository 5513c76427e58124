"""Poisson regression with the log link: φ(η, b) = e^η - bη."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy

from fedsplit.arrays import Array, namespace
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.observations import Observations, check_targets


@dataclass(frozen=True)
class Poisson(LinearLoss):
    """f_j(x) = Σ_i w_i (exp(η_i) - b_i η_i), η_i = a_iᵀx + o_i, for counts b ≥ 0 of mean exp(η).

    The negative log-likelihood without log b!. An offset of log t_i is an exposure of t_i. If e^η
    exceeds float64, the value is +inf and the gradient ±inf, without a warning. There is no
    global L_j.
    """

    concordance = 1.0
    code = """
    __device__ float value(float t, float b) { return expf(t) - b * t; }
    __device__ float slope(float t, float b) { return expf(t) - b; }
    __device__ float bend(float t, float b) { return expf(t); }
    """

    def value(self, eta: Array, b: Array) -> Array:
        return self.curvature(eta, b) - b * eta

    def slope(self, eta: Array, b: Array) -> Array:
        return self.curvature(eta, b) - b

    def curvature(self, eta: Array, b: Array) -> Array:
        return namespace(eta).exp(eta)

    def log_slope(self, eta: Array, b: Array) -> Array:
        return eta

    def floor(self, b: Array) -> Array:
        return b - xlogy(b, b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return cp.exp(eta) - cp.multiply(b, eta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return rng.poisson(np.exp(eta)).astype(np.float64)

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        check_targets(data, lambda b: b < 0, "a count of at least zero")
        return data
