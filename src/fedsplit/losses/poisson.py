"""Poisson regression with the log link: φ(η, b) = e^η - bη."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.linear import ExponentialTerms, stack_linear
from fedsplit.losses.observations import check_columns, read
from fedsplit.losses.terms import Block


@dataclass(frozen=True)
class Poisson:
    """f_j(x) = Σ_i w_i (exp(η_i) - b_i η_i), η_i = a_iᵀx + o_i: minus the log-likelihood of counts b, without log b!.

    An offset of log t_i is an exposure of t_i. Where e^η exceeds float64 the value is +inf and the gradient ±inf,
    without a warning. There is no global L_j.
    """

    @property
    def curvature_range(self) -> tuple[float, float]:
        return 0.0, np.inf

    @property
    def concordance(self) -> float:
        return 1.0

    def floor(self, b: Array) -> Array:
        floor: Array = b - xlogy(b, b)
        return floor

    def value(self, eta: Array, b: Array) -> Array:
        return self.curvature(eta, b) - b * eta

    def slope(self, eta: Array, b: Array) -> Array:
        return self.curvature(eta, b) - b

    def curvature(self, eta: Array, b: Array) -> Array:
        return np.exp(eta)

    def log_slope(self, eta: Array, b: Array) -> Array:
        return eta

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge)
        for j, (_, b, *_) in enumerate(data):
            if (b < 0).any():
                row = int(np.flatnonzero(b < 0)[0])
                raise InputError(f"client {j}, row {row}: count {b[row]:g} is below zero")
        return data[0].A.shape[1], stack_linear(self, data, range(len(data)), ExponentialTerms)
