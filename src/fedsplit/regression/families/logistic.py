"""Logistic regression: two classes with the logit link."""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.losses.logistic import Logistic
from fedsplit.regression.families.binary import BinaryFamily
from fedsplit.regression.families.link import LOGIT


class LogisticFamily(BinaryFamily):
    """b is 1 with probability μ = 1/(1 + e^{-η})."""

    name = "logistic"
    link = LOGIT
    canonical = True

    def loss(self, classes: int, symmetric: bool, delta: float) -> Logistic:
        return Logistic()

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        return -w * Logistic().value(eta, np.where(b == 1, 1.0, -1.0))
