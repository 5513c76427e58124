"""Penalties on several coordinates together: the group lasso's, a ball, and the simplex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.errors import InputError

Indices: TypeAlias = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class GroupL1:
    """λ Σ_G ‖x_G‖₂ over groups of coordinates; coordinates in no group are free.

    Parameters
    ----------
    lam : float
        λ ≥ 0.
    groups : sequence of sequences of int
        The coordinates of each group; no coordinate is in two of them.
    """

    lam: float
    groups: Sequence[Sequence[int]]

    coordinatewise = False

    def __post_init__(self) -> None:
        number("GroupL1: lam", self.lam, strict=False)
        try:
            members = [index(i) for group in self.groups for i in group]
            wrong = any(len(group) == 0 for group in self.groups)
        except TypeError:  # not sequences, or not whole numbers
            members, wrong = [], True
        if wrong or len(set(members)) != len(members) or min(members, default=0) < 0:
            raise InputError(
                "GroupL1: groups hold coordinates from 0 on, are not empty, and share none"
            )

    def value(self, x: Array) -> float:
        _, lengths = self._lengths(x)
        return self.lam * float(np.sum(lengths))

    def prox(self, v: Array, t: float | Array) -> Array:
        group, lengths = self._lengths(v)
        # a group of length 0 stays where it is, and so do coordinates in no group
        shrunk = np.maximum(0.0, 1.0 - t * self.lam / np.where(lengths > 0, lengths, np.inf))
        result: Array = v * np.append(shrunk, 1.0)[group]
        return result

    def _lengths(self, x: Array) -> tuple[Indices, Array]:
        """The group of every coordinate, -1 for none, (d,), and ‖x_G‖ of every group."""
        group = np.full(len(x), -1)
        members = np.concatenate([np.zeros(0, dtype=np.intp), *self.groups]).astype(np.intp)
        group[members] = np.repeat(np.arange(len(self.groups)), [len(G) for G in self.groups])
        squares = np.bincount(group[members], np.square(x[members]), minlength=len(self.groups))
        return group, np.sqrt(squares)

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        group, lengths = self._lengths(gradient)
        if np.any(gradient[group < 0]):
            return np.inf
        excess = np.inf if lengths.any() else 0.0
        if self.lam > 0:
            excess = float(np.max(lengths, initial=0.0)) / self.lam - 1.0
        # -⟨∇f, y⟩ - g(y) ≤ excess·g(y) by Hölder, group by group, and g(y) ≤ level.
        more = level * excess if excess > 0 else 0.0
        return float(gradient @ x) + self.value(x) + more


@dataclass(frozen=True)
class L2Ball:
    """‖x‖₂ ≤ radius.

    Parameters
    ----------
    radius : float
        Above 0.
    """

    radius: float

    coordinatewise = False

    def __post_init__(self) -> None:
        number("L2Ball: radius", self.radius)

    def value(self, x: Array) -> float:
        # x is the output of a prox, whose length is right only to rounding.
        return float(np.where(np.linalg.norm(x) <= self.radius * (1.0 + 1e-9), 0.0, np.inf))

    def prox(self, v: Array, t: float | Array) -> Array:
        length = float(np.linalg.norm(v))
        return v if length <= self.radius else v * (self.radius / length)

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        return float(gradient @ x) + self.radius * float(np.linalg.norm(gradient))


@dataclass(frozen=True)
class Simplex:
    """x ≥ 0 and Σ x_i = total: the weights of a mixture or a portfolio.

    Parameters
    ----------
    total : float
        The sum of the coordinates, above 0.
    """

    total: float = 1.0

    coordinatewise = False

    def __post_init__(self) -> None:
        number("Simplex: total", self.total)

    def value(self, x: Array) -> float:
        # x is the output of a prox, whose sum is right only to rounding.
        summed = abs(float(np.sum(x)) - self.total) <= 1e-9 * self.total
        return float(np.where(np.all(x >= 0) and summed, 0.0, np.inf))

    def prox(self, v: Array, t: float | Array) -> Array:
        # The projection is max(v - shift, 0); the shift follows from which coordinates stay
        # positive, the largest ones (Held, Wolfe and Crowder, 1974).
        # It is the same for v + const: measured from the largest one, no v is too large for total.
        v = v - np.max(v)
        falling = np.sort(v)[::-1]
        shifts = (np.cumsum(falling) - self.total) / np.arange(1, v.size + 1)
        shift = shifts[np.flatnonzero(falling > shifts)[-1]]
        result: Array = np.maximum(v - shift, 0.0)
        return result

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        return float(gradient @ x - self.total * np.min(gradient))
