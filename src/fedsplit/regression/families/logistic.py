"""Logistic regression: two classes with the logit link."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import expit, logit

from fedsplit.losses.logistic import Logistic
from fedsplit.regression.families.binary import BinaryFamily
from fedsplit.regression.families.link import Link


@dataclass(frozen=True)
class LogisticFamily(BinaryFamily):
    """b is 1 with probability μ = 1/(1 + e^{-η}), and 0 otherwise."""

    name = "logistic"
    aliases = ("binomial", "Binomial", "logit", "bernoulli")
    link = Link("logit", eta=logit, mean=expit, slope=lambda eta: expit(eta) * expit(-eta))
    information = "hessian"

    def loss(self, classes: int = 0, symmetric: bool = False) -> Logistic:
        return Logistic()
