"""The group lasso's penalty, λ Σ_G ‖x_G‖₂."""

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
        factor = np.append(shrunk, 1.0)[group]
        return v * factor

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
        if self.lam > 0:
            excess = float(np.max(lengths, initial=0.0)) / self.lam - 1.0
        else:
            excess = np.inf if lengths.any() else 0.0
        gap = float(gradient @ x) + self.value(x)
        # -⟨∇f, y⟩ - g(y) ≤ excess·g(y) by Hölder, group by group, and g(y) ≤ level.
        if excess > 0:
            gap += level * excess
        return gap
