"""Logistic regression: two classes with the logit link."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from fedsplit.losses.logistic import Logistic
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import Link

LOGISTIC = Family(
    name="logistic",
    link=Link("logit", eta=logit, mean=expit, slope=lambda eta: expit(eta) * expit(-eta)),
    loss=lambda classes, symmetric, delta: Logistic(),
    log_likelihood=lambda b, eta, w, phi: -w * Logistic().value(eta, np.where(b == 1, 1.0, -1.0)),
    variance=lambda mu: mu * (1.0 - mu),
    target="0 or 1",
    invalid=lambda b: (b != 0) & (b != 1),
    canonical=True,
    margin=lambda b, t: np.where(b == 1, t, -t),
    classifies=True,
)
"""b is 1 with probability μ = 1/(1 + e^{-η}), and 0 otherwise."""
