"""Convex terms g(x) at the server: penalties and constraints, each by its prox. The clients never see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import instance, number
from fedsplit.errors import InputError


class Penalty(Protocol):
    """g: convex, perhaps not smooth, perhaps +inf outside a set. An object of your own needs ``value`` and ``prox``.

    ``coordinatewise`` says that g is a sum over coordinates, so that the prox may have a step for each: t is then a
    number or (d,). Without the attribute it is taken to be False.
    """

    def value(self, x: Array) -> float:
        """g(x), +inf outside the set of a constraint."""

    def prox(self, v: Array, t: float | Array) -> Array:
        """argmin_x g(x) + ½‖x - v‖²/t."""


def _weights(name: str, values: object) -> Array:
    try:
        array: Array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} must be a number or one number a coordinate, not {values!r}"
        ) from None
    if array.ndim > 1 or not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(f"{name} must be finite and at least zero, not {values!r}")
    return array


def _soft(v: Array, t: float | Array) -> Array:
    shrunk: Array = np.sign(v) * np.maximum(np.abs(v) - t, 0.0)
    return shrunk


@dataclass(frozen=True)
class L1:
    """λ‖x‖₁; λ a number, or one for each coordinate (0 leaves a coordinate free, such as an intercept)."""

    lam: float | Sequence[float] | Array

    coordinatewise = True

    def __post_init__(self) -> None:
        _weights("L1: lam", self.lam)

    def value(self, x: Array) -> float:
        return float(np.sum(np.asarray(self.lam) * np.abs(x)))

    def prox(self, v: Array, t: float | Array) -> Array:
        return _soft(v, t * np.asarray(self.lam))

    def dual_gap(self, x: Array, g: Array, level: float) -> float:
        lam = np.broadcast_to(np.asarray(self.lam, dtype=np.float64), x.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.max(np.where(lam > 0, np.abs(g) / lam, np.where(g == 0, 0.0, np.inf))) - 1.0
        return float(g @ x) + self.value(x) + (level * float(excess) if excess > 0 else 0.0)


@dataclass(frozen=True)
class ElasticNet:
    """λ₁‖x‖₁ + (λ₂/2)‖x‖²; each a number, or one for each coordinate."""

    l1: float | Sequence[float] | Array
    l2: float | Sequence[float] | Array

    coordinatewise = True

    def __post_init__(self) -> None:
        _weights("ElasticNet: l1", self.l1)
        _weights("ElasticNet: l2", self.l2)

    @property
    def convexity(self) -> float:
        return float(np.min(self.l2))

    def value(self, x: Array) -> float:
        return float(np.sum(np.asarray(self.l1) * np.abs(x) + 0.5 * np.asarray(self.l2) * x * x))

    def prox(self, v: Array, t: float | Array) -> Array:
        return _soft(v, t * np.asarray(self.l1)) / (1.0 + t * np.asarray(self.l2))

    def dual_gap(self, x: Array, g: Array, level: float) -> float:
        excess = np.maximum(np.abs(g) - np.asarray(self.l1), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(
                excess > 0, excess**2 / (2.0 * np.asarray(self.l2, dtype=np.float64)), 0.0
            )
        if np.isinf(most).any() and np.all(np.asarray(self.l2) == 0):
            return L1(self.l1).dual_gap(x, g, level)
        return float(g @ x) + self.value(x) + float(np.sum(most))


@dataclass(frozen=True)
class GroupL1:
    """λ Σ_G ‖x_G‖₂ over groups of coordinates; coordinates in no group are free.

    Parameters
    ----------
    lam : float
        λ.
    groups : sequence of sequences of int
        The coordinates of each group; no coordinate is in two of them.
    """

    lam: float
    groups: Sequence[Sequence[int]]

    coordinatewise = False

    def __post_init__(self) -> None:
        number("GroupL1: lam", self.lam, strict=False)
        members = [i for group in self.groups for i in group]
        if (
            len(set(members)) != len(members)
            or any(len(group) == 0 for group in self.groups)
            or min(members) < 0
        ):
            raise InputError(
                "GroupL1: groups hold coordinates from 0 on, are not empty, and share none"
            )

    def value(self, x: Array) -> float:
        return self.lam * sum(float(np.linalg.norm(x[list(group)])) for group in self.groups)

    def prox(self, v: Array, t: float | Array) -> Array:
        x = np.array(v)
        for group in map(list, self.groups):
            length = np.linalg.norm(v[group])
            x[group] *= max(0.0, 1.0 - t * self.lam / length) if length > 0 else 0.0
        return x

    def dual_gap(self, x: Array, g: Array, level: float) -> float:
        inside = np.zeros(x.shape, dtype=bool)
        excess = 0.0
        for group in map(list, self.groups):
            inside[group] = True
            length = float(np.linalg.norm(g[group]))
            excess = max(
                excess, length / self.lam - 1.0 if self.lam > 0 else (np.inf if length else 0.0)
            )
        if np.any(g[~inside]):
            return np.inf
        return float(g @ x) + self.value(x) + (level * excess if excess > 0 else 0.0)


@dataclass(frozen=True)
class Box:
    """lower ≤ x ≤ upper; each a number or one for each coordinate, -inf and inf where there is none."""

    lower: float | Sequence[float] | Array = -np.inf
    upper: float | Sequence[float] | Array = np.inf

    coordinatewise = True

    def __post_init__(self) -> None:
        try:
            fine = bool(
                np.all(np.asarray(self.lower, np.float64) <= np.asarray(self.upper, np.float64))
            )
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise InputError(
                f"Box: lower must be at most upper everywhere, not {self.lower!r} and {self.upper!r}"
            )

    def value(self, x: Array) -> float:
        return 0.0 if np.all((self.lower <= x) & (x <= self.upper)) else np.inf

    def prox(self, v: Array, t: float | Array) -> Array:
        projected: Array = np.clip(v, np.asarray(self.lower), np.asarray(self.upper))
        return projected

    def dual_gap(self, x: Array, g: Array, level: float) -> float:
        with np.errstate(invalid="ignore"):
            lowest = np.where(g > 0, g * np.asarray(self.lower), g * np.asarray(self.upper))
        return float(g @ x - np.sum(np.where(g == 0, 0.0, lowest)))


@dataclass(frozen=True)
class NonNegative:
    """x ≥ 0, for all coordinates or for those named.

    Parameters
    ----------
    coordinates : sequence of int, optional
        Which; None is all of them.
    """

    coordinates: Sequence[int] | None = None

    coordinatewise = True

    def value(self, x: Array) -> float:
        return 0.0 if np.all(self._bound(x) <= x) else np.inf

    def prox(self, v: Array, t: float | Array) -> Array:
        return np.maximum(v, self._bound(v))

    def _bound(self, x: Array) -> Array:
        if self.coordinates is None:
            return np.zeros(x.shape)
        bound = np.full(x.shape, -np.inf)
        bound[list(self.coordinates)] = 0.0
        return bound


@dataclass(frozen=True)
class Simplex:
    """x ≥ 0 and Σ x_i = total: weights of a mixture or a portfolio."""

    total: float = 1.0

    coordinatewise = False

    def __post_init__(self) -> None:
        number("Simplex: total", self.total)

    def value(self, x: Array) -> float:
        on = np.all(x >= 0) and abs(float(np.sum(x)) - self.total) <= 1e-9 * self.total
        return 0.0 if on else np.inf

    def prox(self, v: Array, t: float | Array) -> Array:
        falling = np.sort(v)[::-1]
        shifts = (np.cumsum(falling) - self.total) / np.arange(1, v.size + 1)
        shift = shifts[np.flatnonzero(falling > shifts)[-1]]
        projected: Array = np.maximum(v - shift, 0.0)
        return projected * (self.total / np.sum(projected))  # what rounding took, where v is large

    def dual_gap(self, x: Array, g: Array, level: float) -> float:
        return float(g @ x - self.total * np.min(g))


@dataclass(frozen=True)
class L2Ball:
    """‖x‖₂ ≤ radius."""

    radius: float

    coordinatewise = False

    def __post_init__(self) -> None:
        number("L2Ball: radius", self.radius)

    def value(self, x: Array) -> float:
        return 0.0 if np.linalg.norm(x) <= self.radius * (1.0 + 1e-9) else np.inf

    def prox(self, v: Array, t: float | Array) -> Array:
        length = float(np.linalg.norm(v))
        return v if length <= self.radius else v * (self.radius / length)

    def dual_gap(self, x: Array, g: Array, level: float) -> float:
        return float(g @ x) + self.radius * float(np.linalg.norm(g))


def coordinatewise(penalty: Penalty | None) -> bool:
    """Whether the penalty's prox takes a step for each coordinate."""
    return penalty is None or bool(getattr(penalty, "coordinatewise", False))


def fits(penalty: Penalty, d: int) -> None:
    """Refuse a penalty that is not one of d coordinates."""
    check_penalty(penalty)
    try:
        shape = np.shape(penalty.prox(np.zeros(d), 1.0))
        value = penalty.value(np.zeros(d))
    except (ValueError, IndexError, TypeError) as error:
        raise InputError(
            f"penalty: it does not fit x, which has {d} coordinates ({error})"
        ) from None
    if shape != (d,) or np.ndim(value) != 0:
        raise InputError(
            f"penalty: prox must return {d} numbers and value one, not shapes {shape} and {np.shape(value)}"
        )


def check_penalty(penalty: object) -> None:
    """Refuse a penalty that is none."""
    if penalty is not None:
        instance("penalty", penalty, "value")
        instance("penalty", penalty, "prox")
