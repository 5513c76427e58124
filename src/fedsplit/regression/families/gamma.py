"""Gamma regression: positive amounts with the log link."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, xlogy

from fedsplit.arrays import Array, Mask
from fedsplit.losses.gamma import Gamma
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import LOG


class GammaFamily(Family):
    """Amounts b > 0 of mean μ = e^η and shape w/φ, where φ is Pearson's X² over n - d.

    The link is not the canonical one: the Hessian weighs a row by b/μ, the expected information by
    (dμ/dη)²/V(μ) = μ²/μ² = 1.
    """

    name = "gamma"
    link = LOG
    target = "above zero"
    unit_weights = True
    dispersed = True

    def loss(self, classes: int, symmetric: bool, delta: float) -> Gamma:
        return Gamma()

    def invalid(self, b: Array) -> Mask:
        return b <= 0

    def variance(self, mu: Array) -> Array:
        return np.square(mu)

    def pearson(self, b: Array, mu: Array) -> Array:
        return np.square(b / mu - 1.0)  # where (b - μ)² and μ² could overflow

    def dispersion(self, deviance: float, pearson: Callable[[], float], freedom: int) -> float:
        return pearson() / freedom

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        k = w / phi
        logs: Array = xlogy(k, k * b) - np.log(b) - gammaln(k) - k * Gamma().value(eta, b)
        return logs
