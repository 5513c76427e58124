"""Gaussian regression: least squares."""

from __future__ import annotations

import numpy as np

from fedsplit.losses.least_squares import LeastSquares
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import IDENTITY

GAUSSIAN = Family(
    name="gaussian",
    link=IDENTITY,
    loss=lambda classes, symmetric, delta: LeastSquares(),
    log_likelihood=lambda b, eta, w, phi: (
        0.5 * (np.log(w) - np.log(2 * np.pi * phi)) - w * np.square(b - eta) / (2 * phi)
    ),
    variance=np.ones_like,
    canonical=True,
    dispersed=True,
    likelihood_dispersion=lambda deviance, n, weight: deviance / n,
    fit_measure="R²",
    overall_f=True,
    has_units=True,
    quadratic=True,
)
"""b ~ N(η, φ/w)."""
