"""Robust regression with Huber's loss."""

from __future__ import annotations

from collections.abc import Callable

from fedsplit.losses.huber import Huber
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import IDENTITY


class HuberFamily(Family):
    """A number whose distribution is left open, so that only the robust covariance has a meaning.

    The Hessian, of the rows within δ, takes the place of the expected information.
    """

    name = "huber"
    link = IDENTITY
    canonical = True
    has_likelihood = False
    dispersed = True
    has_units = True

    def loss(self, classes: int, symmetric: bool, delta: float) -> Huber:
        return Huber(delta)

    def dispersion(self, deviance: float, pearson: Callable[[], float], freedom: int) -> float:
        return deviance / freedom
