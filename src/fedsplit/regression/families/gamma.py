"""Gamma regression: positive amounts with the log link."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, xlogy

from fedsplit.arrays import Array
from fedsplit.losses.gamma import Gamma
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import LOG

EPS = float(np.finfo(np.float64).eps)


def _log_likelihood(b: Array, eta: Array, w: Array, phi: float) -> Array:
    k = 1.0 / phi
    density = xlogy(k, k * b) - np.log(b) - gammaln(k) - k * Gamma().value(eta, b)
    logs: Array = w * density  # R's: a row counts w times, where its shape could be w/φ
    return logs


GAMMA = Family(
    name="gamma",
    link=LOG,
    loss=lambda classes, symmetric, delta: Gamma(),
    log_likelihood=_log_likelihood,
    variance=np.square,
    target="above zero",
    invalid=lambda b: b <= 0,
    # The log link is not canonical: a row has the weight b/μ in the Hessian, and in the expected
    # information (dμ/dη)²/V(μ) = μ²/μ².
    unit_weights=True,
    dispersed=True,
    # the deviance of a perfect fit is rounding, or 0
    likelihood_dispersion=lambda deviance, n, weight: max(deviance / weight, EPS),
    fit_measure="1 - D/D₀",
    pearson=lambda b, mu: np.square(b / mu - 1.0),  # (b - μ)² could overflow
)
"""Amounts b of mean μ = e^η and variance φμ²/w."""
