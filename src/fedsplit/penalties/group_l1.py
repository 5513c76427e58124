"""The group lasso's penalty, λ Σ_G ‖x_G‖₂."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.errors import InputError


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
        members = [i for group in self.groups for i in group]
        empty = any(len(group) == 0 for group in self.groups)
        if empty or len(set(members)) != len(members) or min(members, default=0) < 0:
            raise InputError(
                "GroupL1: groups hold coordinates from 0 on, are not empty, and share none"
            )

    def value(self, x: Array) -> float:
        return self.lam * sum(float(np.linalg.norm(x[list(group)])) for group in self.groups)

    def prox(self, v: Array, t: float | Array) -> Array:
        x = np.array(v)
        for group in map(list, self.groups):
            length = np.linalg.norm(v[group])
            if length > 0:
                x[group] *= max(0.0, 1.0 - t * self.lam / length)
        return x

    def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
        grouped = np.zeros(x.shape, dtype=bool)
        excess = 0.0
        for group in map(list, self.groups):
            grouped[group] = True
            length = float(np.linalg.norm(gradient[group]))
            if self.lam > 0:
                excess = max(excess, length / self.lam - 1.0)
            elif length:
                excess = np.inf
        if np.any(gradient[~grouped]):
            return np.inf
        gap = float(gradient @ x) + self.value(x)
        # -⟨∇f, y⟩ - g(y) ≤ excess·g(y) by Hölder, group by group, and g(y) ≤ level.
        if excess > 0:
            gap += level * excess
        return gap
