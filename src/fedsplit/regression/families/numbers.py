"""Families whose target is a number: least squares, Huber's loss, counts and positive amounts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import gammaln, xlogy

from fedsplit.arrays import EPS, Array, Mask
from fedsplit.checks import number
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.scalar import Gamma, Huber, Poisson
from fedsplit.regression.families.family import IDENTITY, LOG, Family


@dataclass(frozen=True)
class GaussianFamily(Family):
    """b ~ N(η, φ/w)."""

    name = "gaussian"
    aliases = ("normal", "Gaussian")
    link = IDENTITY
    information = "hessian"
    dispersion = "deviance"
    fit_measure = "R²"
    has_units = True
    quadratic = True

    def loss(self, classes: int = 0, symmetric: bool = False) -> LeastSquares:
        return LeastSquares()

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        constant = 0.5 * (np.log(w) - np.log(2 * np.pi * phi))
        logs: Array = constant - w * np.square(b - eta) / (2 * phi)
        return logs

    def variance(self, mu: Array) -> Array:
        return np.ones_like(mu)

    def likelihood_dispersion(self, deviance: float, n: int, weight: float) -> float:
        return deviance / n


@dataclass(frozen=True)
class HuberFamily(Family):
    """A number whose distribution is left open, so that only the robust covariance has a meaning.

    Parameters
    ----------
    delta : float
        δ, the residual at which the loss turns from quadratic to linear, in robust deviations of
        the residuals. 1.345 keeps 95 % efficiency under Gaussian noise.
    """

    delta: float = 1.345

    name = "huber"
    link = IDENTITY
    # The Hessian, of the rows within δ, takes the place of the expected information.
    information = "hessian"
    dispersion = "deviance"
    has_units = True
    robust = True

    def __post_init__(self) -> None:
        number("delta", self.delta)

    def loss(self, classes: int = 0, symmetric: bool = False) -> Huber:
        return Huber(self.delta)

    def in_units(self, unit: float) -> Self:
        return replace(self, delta=self.delta / unit)


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


@dataclass(frozen=True)
class GammaFamily(Family):
    """Amounts b of mean μ = e^η and variance φμ²/w."""

    name = "gamma"
    aliases = ("Gamma",)
    link = LOG
    target = "above zero"
    # The log link is not canonical: a row has the weight b/μ in the Hessian, and in the expected
    # information (dμ/dη)²/V(μ) = μ²/μ².
    information = "moments"
    dispersion = "pearson"
    fit_measure = "1 - D/D₀"

    def invalid(self, b: Array) -> Mask:
        return b <= 0

    def loss(self, classes: int = 0, symmetric: bool = False) -> Gamma:
        return Gamma()

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        k = 1.0 / phi
        density = xlogy(k, k * b) - np.log(b) - gammaln(k) - k * Gamma().value(eta, b)
        logs: Array = w * density  # R's: a row counts w times, where its shape could be w/φ
        return logs

    def variance(self, mu: Array) -> Array:
        return np.square(mu)

    def pearson(self, b: Array, mu: Array) -> Array:
        return np.square(b / mu - 1.0)  # (b - μ)² could overflow

    def likelihood_dispersion(self, deviance: float, n: int, weight: float) -> float:
        return max(deviance / weight, EPS)  # the deviance of a perfect fit is rounding, or 0
