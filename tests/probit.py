"""A family as a contributor would add it: one file, and one line of the table, here by a test.

Φ is not the canonical link of two classes: the Hessian of its loss depends on the target.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from fedsplit.arrays import Array
from fedsplit.losses.linear import LinearLoss
from fedsplit.regression.families.classes import BinaryFamily
from fedsplit.regression.families.family import Link


def density(eta: Array) -> Array:
    """Of the standard normal distribution."""
    return np.asarray(np.exp(-0.5 * np.square(eta)) / np.sqrt(2 * np.pi))


@dataclass(frozen=True)
class Probit(LinearLoss):
    """φ(η, b) = -log Φ(bη) for labels b in {-1, 1}, with φ'' = λ(bη + λ), λ = density/Φ at bη."""

    curvature_range = (0.0, 1.0)
    classifies = True
    # φ'''/φ'' grows like η: there is no bound, and so no certificate

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def value(self, eta: Array, b: Array) -> Array:
        return np.asarray(-log_ndtr(b * eta))

    def slope(self, eta: Array, b: Array) -> Array:
        return -b * self._ratio(b * eta)

    def curvature(self, eta: Array, b: Array) -> Array:
        ratio = self._ratio(b * eta)
        return ratio * (b * eta + ratio)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return np.where(rng.standard_normal(eta.shape) < eta, 1.0, -1.0)

    def _ratio(self, t: Array) -> Array:
        """λ(t), without a quotient of two tiny numbers."""
        return np.asarray(np.exp(-0.5 * np.square(t) - 0.5 * np.log(2 * np.pi) - log_ndtr(t)))


@dataclass(frozen=True)
class ProbitFamily(BinaryFamily):
    """b is 1 with probability Φ(η), and 0 otherwise."""

    name = "probit"
    link = Link("probit", eta=ndtri, mean=ndtr, slope=density)

    def loss(self, classes: int = 0, symmetric: bool = False) -> Probit:
        return Probit()


PROBIT = ProbitFamily()
