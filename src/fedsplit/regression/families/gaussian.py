"""Gaussian regression: least squares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsplit.arrays import Array
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import IDENTITY


class GaussianFamily(Family):
    """b ~ N(η, φ/w), where φ is the deviance over n - d."""

    name = "gaussian"
    link = IDENTITY
    canonical = True
    dispersed = True
    has_units = True

    def loss(self, classes: int, symmetric: bool, delta: float) -> LeastSquares:
        return LeastSquares()

    def variance(self, mu: Array) -> Array:
        return np.ones_like(mu)

    def dispersion(self, deviance: float, pearson: Callable[[], float], freedom: int) -> float:
        return deviance / freedom

    def likelihood_dispersion(self, phi: float, unit: float, freedom: int, n: int) -> float:
        # the likelihood at its maximum over φ too, which is at the deviance over n
        return phi * (unit * freedom / n)

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = 0.5 * np.log(w / (2 * np.pi * phi)) - w * np.square(b - eta) / (2 * phi)
        return logs
