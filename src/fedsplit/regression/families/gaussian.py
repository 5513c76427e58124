"""Families with the identity link: least squares, and Huber's robust loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.losses.huber import Huber
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.regression.families.family import IDENTITY, Family


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
