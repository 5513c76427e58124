"""Poisson regression: counts with the log link."""

from __future__ import annotations

from scipy.special import gammaln

from fedsplit.arrays import Array, Mask
from fedsplit.losses.poisson import Poisson
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import LOG


class PoissonFamily(Family):
    """Counts b ≥ 0 of mean μ = e^η: log p(b) = bη - e^η - log b!."""

    name = "poisson"
    link = LOG
    target = "a count of at least zero"
    canonical = True

    def loss(self, classes: int, symmetric: bool, delta: float) -> Poisson:
        return Poisson()

    def invalid(self, b: Array) -> Mask:
        return b < 0

    def variance(self, mu: Array) -> Array:
        return mu

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = -w * (Poisson().value(eta, b) + gammaln(b + 1))
        return logs
