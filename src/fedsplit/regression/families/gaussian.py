"""Gaussian regression: least squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import IDENTITY


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
