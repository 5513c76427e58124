"""The L1 penalty, λ‖x‖₁."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.penalties.penalty import check_weights


@dataclass(frozen=True)
class L1:
    """λ‖x‖₁, or Σ_i λ_i|x_i|.

    Parameters
    ----------
    lam : float or (d,) array
        λ ≥ 0. A zero leaves its coordinate free, such as an intercept.
    """

    lam: float | Sequence[float] | Array

    coordinatewise = True

    def __post_init__(self) -> None:
        check_weights("L1: lam", self.lam)

    def value(self, x: Array) -> float:
        return float(np.sum(np.asarray(self.lam) * np.abs(x)))

    def prox(self, v: Array, t: float | Array) -> Array:
        return soft_threshold(v, t * np.asarray(self.lam))

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        lam = np.broadcast_to(np.asarray(self.lam, dtype=np.float64), x.shape)
        free = np.where(gradient == 0, 0.0, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.max(np.where(lam > 0, np.abs(gradient) / lam, free)) - 1.0
        gap = float(gradient @ x) + self.value(x)
        # -⟨∇f, y⟩ - g(y) ≤ excess·g(y) by Hölder, and g(y) ≤ level.
        if excess > 0:
            gap += level * float(excess)
        return gap

    def nearest_subgradient(self, x: Array, v: Array) -> tuple[Array, Array]:
        lam = np.broadcast_to(np.asarray(self.lam, dtype=np.float64), x.shape)
        nearest = np.where(x == 0, np.clip(v, -lam, lam), lam * np.sign(x))
        return nearest, np.where(x == 0, lam - np.abs(nearest), 0.0)


def soft_threshold(v: Array, t: float | Array) -> Array:
    """sign(v)·max(|v| - t, 0), the prox of t‖x‖₁."""
    shrunk: Array = np.sign(v) * np.maximum(np.abs(v) - t, 0.0)
    return shrunk
