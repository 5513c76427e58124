"""The elastic net on the coefficients of all classes, of which the first is the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.penalties.coordinatewise import soft_threshold


@dataclass(frozen=True, eq=False)
class ClassElasticNet:
    """g(x) = Σ_j min_t Σ_c l1_j|x_cj - t| + (ridge_j/2)(x_cj - t)², over K classes with x_0 = 0.

    Coefficients of K classes are determined up to a number t_j that is common to all of them. x has
    those of the classes but the first, relative to it; the penalty is that of the K coefficients
    x_cj - t_j, with the t_j that makes it least. It treats all classes alike.
    """

    # (p,): the weights of each column, all at least 0, and ridge is 0 where l1 is
    l1: Array
    ridge: Array
    classes: int  # K

    coordinatewise = False

    @property
    def l2(self) -> Array:
        """A ridge on x, (d,), that is part of g: Σ_c (x_c - t)² ≥ ‖x‖²/K for every t."""
        return np.tile(self.ridge / self.classes, self.classes - 1)

    @property
    def convexity(self) -> float:
        return float(self.l2.min())

    @property
    def bounded(self) -> bool:
        """Whether it keeps coefficients finite whatever the data (unpenalised ones aside)."""
        return bool(self.l1.any())

    def value(self, x: Array) -> float:
        shifted = self.of_all_classes(x.reshape(self.classes - 1, -1))
        return float(np.sum(self.l1 * np.abs(shifted) + 0.5 * self.ridge * np.square(shifted)))

    def of_all_classes(self, x: Array) -> Array:
        """The x_c - t of all classes, (K, p), from x, (K - 1, p): many of them are exactly zero."""
        every = np.concatenate([np.zeros_like(x[:1]), x])
        # The minimiser of Σ|x_c - t| + a quadratic is the median of the x_c and of the minimisers
        # that each number i of classes below t would give. Without a ridge those are infinite.
        centre = every.mean(axis=0)
        sides = self.classes - 2.0 * np.arange(self.classes + 1)[:, None]
        weight = np.maximum(self.classes * self.ridge, np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            turns = centre + self.l1 * sides / weight
        result: Array = every - np.median(np.concatenate([every, turns]), axis=0)
        return result

    def prox(self, v: Array, t: float | Array) -> Array:
        step = float(np.max(t))  # one for all: it is no sum over coordinates
        V = v.reshape(self.classes - 1, -1)
        shift = self._shift(V, step)
        kept = shift + soft_threshold(V - shift, step * self.l1) / (1.0 + step * self.ridge)
        return kept.ravel()

    def _shift(self, V: Array, step: float) -> Array:
        """The t_j, (p,), at which the prox of V, (K - 1, p), has its minimum."""
        pull = self._slope(V, step)
        side = np.sign(pull) * (np.abs(pull) > self.l1)  # 0 where the reference stays at zero
        # The derivative in t, on that side of 0, is linear between these and rises through 0.
        width = step * self.l1
        turns = np.sort(np.concatenate([V - width, V + width, np.zeros_like(V[:1])]), axis=0)
        rises = np.stack(
            [side * self.l1 + self.ridge * turn - self._slope(V - turn, step) for turn in turns]
        )
        above = np.clip(np.sum(rises <= 0, axis=0), 1, len(turns) - 1)
        low, high = (np.take_along_axis(turns, at[None], axis=0)[0] for at in (above - 1, above))
        below, over = (np.take_along_axis(rises, at[None], axis=0)[0] for at in (above - 1, above))
        rise = np.where(over > below, over - below, 1.0)
        return np.where(side == 0, 0.0, low - below * (high - low) / rise)

    def _slope(self, R: Array, step: float) -> Array:
        """Σ_c of the derivative in r of min_u l1|u| + (ridge/2)u² + (u - r)²/(2 step), (p,)."""
        u = soft_threshold(R, step * self.l1) / (1.0 + step * self.ridge)
        result: Array = np.sum((R - u) / step, axis=0)
        return result
