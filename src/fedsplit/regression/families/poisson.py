"""Poisson regression: counts with the log link."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from fedsplit.losses.poisson import Poisson
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import LOG

POISSON = Family(
    name="poisson",
    link=LOG,
    loss=lambda classes, symmetric, delta: Poisson(),
    log_likelihood=lambda b, eta, w, phi: -w * (Poisson().value(eta, b) + gammaln(b + 1)),
    variance=np.positive,
    # both are 0 at the limit of separated counts, which then fit exactly
    pearson=lambda b, mu: np.square(b - mu) / np.where(b == mu, 1.0, mu),
    target="a count of at least zero",
    invalid=lambda b: b < 0,
    counts=True,
    canonical=True,
    margin=lambda b, t: np.where(b > 0, -np.abs(t), -t),
)
"""Counts b of mean μ = e^η: log p(b) = bη - e^η - log b!."""
