"""Poisson regression: counts with the log link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from fedsplit.arrays import Array, Mask
from fedsplit.losses.poisson import Poisson
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import LOG


@dataclass(frozen=True)
class PoissonFamily(Family):
    """Counts b of mean μ = e^η: log p(b) = bη - e^η - log b!."""

    name = "poisson"
    aliases = ("Poisson",)
    link = LOG
    target = "a count of at least zero"
    information = "hessian"

    def invalid(self, b: Array) -> Mask:
        return b < 0

    def remark(self, b: Array, target: str) -> str:
        if (b == np.floor(b)).all():
            return ""
        return (
            f"values of {target} that are not whole, though it should be a count: for a rate, fit "
            "the count, and name in exposure= the column of what it is per"
        )

    def loss(self, classes: int = 0, symmetric: bool = False) -> Poisson:
        return Poisson()

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = -w * (Poisson().value(eta, b) + gammaln(b + 1))
        return logs

    def variance(self, mu: Array) -> Array:
        return mu

    def pearson(self, b: Array, mu: Array) -> Array:
        # both are 0 at the limit of separated counts, which then fit exactly
        return np.square(b - mu) / np.where(b == mu, 1.0, mu)

    def margin(self, b: Array, t: Array) -> Array:
        return np.where(b > 0, -np.abs(t), -t)
