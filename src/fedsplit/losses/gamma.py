"""Gamma regression with the log link: φ(η, b) = η + b e^{-η}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array, namespace
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.observations import Observations, check_targets


@dataclass(frozen=True)
class Gamma(LinearLoss):
    """f_j(x) = Σ_i w_i (η_i + b_i exp(-η_i)), η_i = a_iᵀx + o_i, for amounts b > 0 of mean exp(η).

    The negative log-likelihood of a gamma distribution, per unit of its shape and up to a constant.
    The least value of a term is 1 + log b_i, so 2(f_j - floor) is the deviance. If e^{-η} exceeds
    float64, the value is +inf and the gradient ±inf, without a warning. There is no global L_j.
    """

    concordance = 1.0

    def value(self, eta: Array, b: Array) -> Array:
        return eta + self.curvature(eta, b)

    def slope(self, eta: Array, b: Array) -> Array:
        return 1.0 - self.curvature(eta, b)

    def curvature(self, eta: Array, b: Array) -> Array:
        return b * namespace(eta).exp(-eta)

    def log_slope(self, eta: Array, b: Array) -> Array:
        return np.log(b) - eta

    def floor(self, b: Array) -> Array:
        return 1.0 + np.log(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return eta + cp.multiply(b, cp.exp(-eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return np.exp(eta) * rng.gamma(4.0, 0.25, size=eta.shape)

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        check_targets(data, lambda b: b <= 0, "above zero")
        return data
