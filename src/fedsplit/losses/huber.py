"""Robust regression: φ(η, b) is quadratic in η - b up to δ and linear beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, norms
from fedsplit.checks import number
from fedsplit.losses.linear import LinearTerms, least, stack_linear
from fedsplit.losses.observations import check_columns, read
from fedsplit.losses.terms import Block


@dataclass(frozen=True)
class Huber:
    """f_j(x) = Σ_i w_i φ(a_iᵀx + o_i - b_i), with φ(r) = r²/2 for |r| ≤ δ, else δ|r| - δ²/2.

    δ is in units of b. ``curvature`` is the generalised second derivative: 1 inside, 0 outside.
    """

    delta: float = 1.345

    def __post_init__(self) -> None:
        number("Huber: delta", self.delta)

    @property
    def curvature_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @property
    def concordance(self) -> float:
        return np.inf

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def value(self, eta: Array, b: Array) -> Array:
        r = np.abs(eta - b)
        loss: Array = np.where(r <= self.delta, 0.5 * r * r, self.delta * (r - 0.5 * self.delta))
        return loss

    def slope(self, eta: Array, b: Array) -> Array:
        return np.clip(eta - b, -self.delta, self.delta)

    def curvature(self, eta: Array, b: Array) -> Array:
        return (np.abs(eta - b) <= self.delta).astype(np.float64)

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge)
        return data[0].A.shape[1], stack_linear(self, data, range(len(data)), HuberTerms)


@dataclass(frozen=True, eq=False)
class HuberTerms(LinearTerms):
    """The terms of ``Huber``, quadratic while no residual r_i crosses δ: within min_i ||r_i| - δ|/‖a_i‖."""

    phi: Huber

    def steady(self, X: Array) -> Array:
        length = np.linalg.norm(self.A, axis=2)
        rounding = 2 * (self.d + 4) * np.finfo(np.float64).eps
        error = rounding * (
            length * norms(X)[:, None] + np.abs(self.o) + np.abs(self.b) + self.phi.delta
        )
        room = np.abs(np.abs(self.eta(X) - self.b) - self.phi.delta) - error
        steady = np.where(
            length > 0, np.maximum(room, 0.0) / np.where(length > 0, length, 1.0), np.inf
        )
        return (1.0 - rounding) * least(steady, self.w)
