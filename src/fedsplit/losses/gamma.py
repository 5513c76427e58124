"""Gamma regression with the log link: φ(η, b) = η + b e^{-η}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.linear import ExponentialTerms, stack_linear
from fedsplit.losses.observations import check_columns, read
from fedsplit.losses.terms import Block


@dataclass(frozen=True)
class Gamma:
    """f_j(x) = Σ_i w_i (η_i + b_i exp(-η_i)), η_i = a_iᵀx + o_i, for amounts b > 0 of mean exp(η).

    Minus the log-likelihood of a gamma distribution, per unit of its shape and up to a constant. The least value of a
    term is 1 + log b_i, so 2(f_j - floor) is the deviance. Where e^{-η} exceeds float64 the value is +inf and the
    gradient ±inf, without a warning. There is no global L_j.
    """

    @property
    def curvature_range(self) -> tuple[float, float]:
        return 0.0, np.inf

    @property
    def concordance(self) -> float:
        return 1.0

    def floor(self, b: Array) -> Array:
        floor: Array = 1.0 + np.log(np.where(b > 0, b, 1.0))  # b is 0 in the padding
        return floor

    def value(self, eta: Array, b: Array) -> Array:
        return eta + self.curvature(eta, b)

    def slope(self, eta: Array, b: Array) -> Array:
        return 1.0 - self.curvature(eta, b)

    def curvature(self, eta: Array, b: Array) -> Array:
        curvature: Array = b * np.exp(-eta)
        return curvature

    def log_slope(self, eta: Array, b: Array) -> Array:
        log_slope: Array = np.log(b) - eta
        return log_slope

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge)
        for j, (_, b, *_) in enumerate(data):
            if (b <= 0).any():
                row = int(np.flatnonzero(b <= 0)[0])
                raise InputError(f"client {j}, row {row}: b is {b[row]:g}, it must be above zero")
        return data[0].A.shape[1], stack_linear(self, data, range(len(data)), ExponentialTerms)
