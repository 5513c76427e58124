"""Penalties that are sums over coordinates: λ₁|x_i| + (λ₂/2)x_i², between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.checks import weights
from fedsplit.errors import InputError

Numbers = float | Sequence[float] | Array
"""One number for all coordinates, or one for each."""


class Coordinatewise:
    """g(x) = Σ_i l1_i|x_i| + (l2_i/2)x_i² with lower_i ≤ x_i ≤ upper_i; a subclass says which."""

    coordinatewise = True

    def weights(self) -> tuple[Array, Array]:
        """l1 and l2, each () or (d,)."""
        return np.zeros(()), np.zeros(())

    def bounds(self, d: int) -> tuple[Numbers, Numbers]:
        """The bounds of d coordinates."""
        return -np.inf, np.inf

    @property
    def convexity(self) -> float:
        return float(np.min(self.weights()[1]))

    def value(self, x: Array) -> float:
        lower, upper = self.bounds(len(x))
        if not np.all((lower <= x) & (x <= upper)):
            return np.inf
        l1, l2 = self.weights()
        return float(np.sum(l1 * np.abs(x) + 0.5 * l2 * x * x))

    def prox(self, v: Array, t: float | Array) -> Array:
        lower, upper = self.bounds(len(v))
        l1, l2 = self.weights()
        shrunk = soft_threshold(v, t * l1) / (1.0 + t * l2)
        # in one dimension the minimum within bounds is the bound that is nearest to the minimum
        return np.minimum(np.maximum(shrunk, lower), upper)


class Shrinking(Coordinatewise):
    """Without bounds: what a certificate uses of the lasso's penalty and of the elastic net's."""

    def nearest_subgradient(self, x: Array, v: Array) -> tuple[Array, Array]:
        l1, l2 = self.weights()
        ridge = l2 * x
        nearest = np.where(x == 0, np.clip(v - ridge, -l1, l1), l1 * np.sign(x))
        return ridge + nearest, np.where(x == 0, l1 - np.abs(nearest), 0.0)

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        l1, l2 = self.weights()
        gap = float(gradient @ x) + self.value(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            if np.all(l2 == 0):
                # -⟨∇f, y⟩ - g(y) ≤ excess·g(y) by Hölder, and g(y) ≤ level.
                free = np.where(gradient == 0, 0.0, np.inf)
                excess = float(np.max(np.where(l1 > 0, np.abs(gradient) / l1, free))) - 1.0
                return gap + level * excess if excess > 0 else gap
            # The conjugate of g, by coordinate: +inf where λ₂ = 0 and there is an excess.
            over = np.maximum(np.abs(gradient) - l1, 0.0)
            return gap + float(np.sum(np.where(over > 0, over**2 / (2.0 * l2), 0.0)))


@dataclass(frozen=True)
class L1(Shrinking):
    """λ‖x‖₁, or Σ_i λ_i|x_i|.

    Parameters
    ----------
    lam : float or (d,) array
        λ ≥ 0. A zero leaves its coordinate free, such as an intercept.
    """

    lam: Numbers

    def __post_init__(self) -> None:
        weights("L1: lam", self.lam)

    def weights(self) -> tuple[Array, Array]:
        return np.asarray(self.lam, dtype=np.float64), np.zeros(())


@dataclass(frozen=True)
class ElasticNet(Shrinking):
    """λ₁‖x‖₁ + (λ₂/2)‖x‖².

    Parameters
    ----------
    l1, l2 : float or (d,) array
        λ₁ ≥ 0 and λ₂ ≥ 0, for all coordinates or one per coordinate.
    """

    l1: Numbers
    l2: Numbers

    def __post_init__(self) -> None:
        weights("ElasticNet: l1", self.l1)
        weights("ElasticNet: l2", self.l2)

    def weights(self) -> tuple[Array, Array]:
        return np.asarray(self.l1, dtype=np.float64), np.asarray(self.l2, dtype=np.float64)


@dataclass(frozen=True)
class Box(Coordinatewise):
    """lower ≤ x ≤ upper.

    Parameters
    ----------
    lower, upper : float or (d,) array
        The bounds, for all coordinates or one per coordinate; -inf and inf where there is none.
    """

    lower: Numbers = -np.inf
    upper: Numbers = np.inf

    def __post_init__(self) -> None:
        try:
            lower, upper = (np.asarray(each, np.float64) for each in (self.lower, self.upper))
            ordered = bool(np.all(lower <= upper))
        except (TypeError, ValueError):
            ordered = False
        if not ordered:
            raise InputError(
                "Box: lower must be at most upper everywhere, "
                f"not {self.lower!r} and {self.upper!r}"
            )

    def bounds(self, d: int) -> tuple[Numbers, Numbers]:
        return self.lower, self.upper

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        with np.errstate(invalid="ignore"):  # 0·inf, where the next line puts 0
            lowest = np.where(
                gradient > 0, gradient * np.asarray(self.lower), gradient * np.asarray(self.upper)
            )
        return float(gradient @ x - np.sum(np.where(gradient == 0, 0.0, lowest)))


@dataclass(frozen=True)
class NonNegative(Coordinatewise):
    """x ≥ 0, for all coordinates or for those named.

    Parameters
    ----------
    coordinates : sequence of int, optional
        Which coordinates; None is all of them.
    """

    coordinates: Sequence[int] | None = None

    def bounds(self, d: int) -> tuple[Numbers, Numbers]:
        if self.coordinates is None:
            return 0.0, np.inf
        lower = np.full(d, -np.inf)
        lower[list(self.coordinates)] = 0.0
        return lower, np.inf


@dataclass(frozen=True, eq=False)
class NonNegativeElasticNet(Coordinatewise):
    """Σ_i l1_i|x_i| + (l2_i/2)x_i², with x_i ≥ 0 where ``nonnegative``: the penalty of a fit.

    It has no ``dual_gap``: fits prove their distance from the optimum by curvature.
    """

    # (d,): the weights, all at least 0
    l1: Array
    l2: Array
    nonnegative: Mask  # (d,): which coordinates are constrained

    def weights(self) -> tuple[Array, Array]:
        return self.l1, self.l2

    def bounds(self, d: int) -> tuple[Numbers, Numbers]:
        return np.where(self.nonnegative, 0.0, -np.inf), np.inf

    @property
    def bounded(self) -> bool:
        """Whether it keeps coefficients finite whatever the data (unpenalised ones aside)."""
        return bool(self.l1.any() or self.l2.any())


def soft_threshold(v: Array, t: float | Array) -> Array:
    """sign(v)·max(|v| - t, 0), the prox of t‖x‖₁."""
    return np.sign(v) * np.maximum(np.abs(v) - t, 0.0)
