"""Robust regression: φ(η, b) is quadratic in η - b up to δ and linear beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsplit.arrays import Array, norms
from fedsplit.checks import number
from fedsplit.losses.linear import LinearLoss, LinearTerms, least


@dataclass(frozen=True, eq=False)
class HuberTerms(LinearTerms):
    """The terms of ``Huber``, which are quadratic while no residual r_i crosses ±δ."""

    phi: Huber

    def steady(self, X: Array) -> Array:
        # |r_i| reaches δ no nearer than ||r_i| - δ|/‖a_i‖, less what rounding may do to r_i
        length = self.design.lengths()
        rounding = 2 * (self.d + 4) * np.finfo(np.float64).eps
        size = length * norms(X)[:, None] + np.abs(self.o) + np.abs(self.b) + self.phi.delta
        error = rounding * size
        room = np.abs(np.abs(self.eta(X) - self.b) - self.phi.delta) - error
        nonzero = np.where(length > 0, length, 1.0)
        steady = np.where(length > 0, np.maximum(room, 0.0) / nonzero, np.inf)
        return (1.0 - rounding) * least(steady, self.w)


@dataclass(frozen=True)
class Huber(LinearLoss):
    """f_j(x) = Σ_i w_i φ(a_iᵀx + o_i - b_i), with φ(r) = r²/2 for |r| ≤ δ, else δ|r| - δ²/2.

    ``curvature`` is the generalised second derivative: 1 inside, 0 outside.

    Parameters
    ----------
    delta : float
        δ, in the unit of b.
    """

    delta: float = 1.345

    curvature_range = (0.0, 1.0)
    terms: ClassVar[type[LinearTerms]] = HuberTerms

    def __post_init__(self) -> None:
        number("Huber: delta", self.delta)

    def value(self, eta: Array, b: Array) -> Array:
        r = np.abs(eta - b)
        loss: Array = np.where(r <= self.delta, 0.5 * r * r, self.delta * (r - 0.5 * self.delta))
        return loss

    def slope(self, eta: Array, b: Array) -> Array:
        return np.clip(eta - b, -self.delta, self.delta)

    def curvature(self, eta: Array, b: Array) -> Array:
        return (np.abs(eta - b) <= self.delta).astype(np.float64)

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return 0.5 * cp.huber(eta - b, self.delta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return eta + rng.standard_t(1.5, size=eta.shape)
