"""Losses whose slope grows like an exponential of the predictor, beyond float64."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array
from fedsplit.losses.linear import LinearLoss, LinearTerms


@dataclass(frozen=True, eq=False)
class ExponentialTerms(LinearTerms):
    """Terms whose gradient overflows to ±inf in the right coordinates, with the right signs."""

    phi: ExponentialLoss

    def gradient(self, X: Array) -> Array:
        eta = self.eta(X)
        r = self.w * self.phi.slope(eta, self.b)
        g = self.adjoint(r)
        if np.isfinite(g).all():
            return g
        # A slope, or a sum of slopes, exceeds float64, and inf - inf or 0·inf may have given nan.
        # The large slopes are summed on the scale of the largest one, the others as they are.
        with np.errstate(divide="ignore"):
            log_slope = self.phi.log_slope(eta, self.b).clip(max=1e300)
            large = log_slope > 600.0
            top = np.max(np.where(large, log_slope, 0.0), axis=1, keepdims=True)
            shares = np.where(large, np.sign(r) * self.w * np.exp(log_slope - top), 0.0)
            scaled = self.adjoint(shares)
            size = np.exp(np.log(np.abs(scaled)) + top)
        g = self.adjoint(np.where(large, 0.0, r))
        g += np.copysign(size, scaled)
        return g


class ExponentialLoss(LinearLoss):
    """A loss of the linear predictor whose slope can be beyond float64."""

    terms: ClassVar[type[LinearTerms]] = ExponentialTerms

    @abstractmethod
    def log_slope(self, eta: Array, b: Array) -> Array:
        """log|φ'(η, b)|, needed only where φ' is large."""
