"""Logistic regression: φ(η, b) = log(1 + e^{-bη}), b in {-1, 1}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedsplit.arrays import Array, matvec
from fedsplit.errors import InputError
from fedsplit.losses.linear import LinearTerms, least, stack_linear
from fedsplit.losses.observations import Observations, check_columns, read
from fedsplit.losses.terms import Block


@dataclass(frozen=True)
class Logistic:
    """f_j(x) = Σ_i w_i log(1 + exp(-b_i η_i)), η_i = a_iᵀx + o_i, the paper's (logistic regression, §4.2).

    Labels are {-1, 1}, {0, 1} or bool, the same coding at every client. No margin overflows: at bη = -1e4 the value
    is 1e4. L_j = λ_max(A_jᵀW_jA_j)/4 and ℓ_j = 0.
    """

    @property
    def curvature_range(self) -> tuple[float, float]:
        return 0.0, 0.25

    @property
    def concordance(self) -> float:
        return 1.0

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def value(self, eta: Array, b: Array) -> Array:
        margin = b * eta
        loss: Array = np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0.0)
        return loss

    def slope(self, eta: Array, b: Array) -> Array:
        slope: Array = -b * expit(-b * eta)
        return slope

    def curvature(self, eta: Array, b: Array) -> Array:
        e = np.exp(-np.abs(eta))
        curvature: Array = e / np.square(1.0 + e)
        return curvature

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge)
        return data[0].A.shape[1], stack_linear(self, signed(data), range(len(data)), LogisticTerms)


@dataclass(frozen=True, eq=False)
class LogisticTerms(LinearTerms):
    """The terms of two classes, whose margin is min_i b_i a_iᵀx: without offsets, which separate nothing for ever."""

    def margin(self, X: Array) -> Array:
        return least(self.b * matvec(self.A, X), self.w)


def signed(data: Sequence[Observations]) -> list[Observations]:
    """Labels as -1 and 1, whichever of the two codings all the clients use."""
    negative = next((j for j, (_, b, *_) in enumerate(data) if (b == -1).any()), None)
    low = -1 if negative is not None else 0
    for j, (_, b, *_) in enumerate(data):
        wrong = np.flatnonzero((b != low) & (b != 1))
        if wrong.size:
            why = f" (client {negative} uses -1 and 1)" if b[wrong[0]] == 0 else ""
            raise InputError(
                f"client {j}, row {wrong[0]}: label {b[wrong[0]]:g}; labels must be {{-1, 1}}, or {{0, 1}}, or bool, "
                f"the same at every client{why}"
            )
    return [Observations(A, np.where(b == 1, 1.0, -1.0), w, o) for A, b, w, o in data]
