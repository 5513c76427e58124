"""Gaussian regression: least squares."""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import IDENTITY


def _log_likelihood(b: Array, eta: Array, w: Array, phi: float) -> Array:
    logs: Array = 0.5 * np.log(w / (2 * np.pi * phi)) - w * np.square(b - eta) / (2 * phi)
    return logs


GAUSSIAN = Family(
    name="gaussian",
    link=IDENTITY,
    loss=lambda classes, symmetric, delta: LeastSquares(),
    log_likelihood=_log_likelihood,
    variance=np.ones_like,
    canonical=True,
    dispersed=True,
    profiled=True,
    has_units=True,
)
"""b ~ N(η, φ/w)."""
