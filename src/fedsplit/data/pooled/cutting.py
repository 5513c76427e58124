"""``cut(x, breaks)``: a category of intervals, whose breaks are written, or agreed by all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.pooled.function import PooledFunction, State, constants, spread
from fedsplit.dialogue import Dialogue

MOST_INTERVALS = 50


@dataclass(frozen=True)
class Cut(PooledFunction):
    """R's ``cut`` into a number of intervals, closed on the right, or else on the left.

    Breaks that are not written have to be agreed: then the intervals have about equal width, and
    the outer ones are open, so that no row is outside. Unless the levels have ``names``, they are
    breaks of so many significant digits, or more where breaks would look alike. With
    ``include_lowest`` a value at the first break, or at the last one without ``right``, is inside.
    """

    is_category = True

    count: int
    breaks: tuple[float, ...] | None
    names: tuple[str, ...] | None
    right: bool
    include_lowest: bool
    digits: int

    def __post_init__(self) -> None:
        if self.count > MOST_INTERVALS:
            raise ValueError(f"it has {self.count} intervals, more than {MOST_INTERVALS}")
        if self.breaks is not None and len(set(self.breaks)) < len(self.breaks):
            raise ValueError("a break is there twice")
        if self.names is not None and len(self.names) != self.count:
            raise ValueError(f"it has {self.count} intervals, and needs as many labels")

    def agreement(self) -> Dialogue[State] | None:
        return self._agree() if self.breaks is None else None

    def _agree(self) -> Dialogue[State]:
        values = yield from spread()
        return {"breaks": values.even(self.count - 1)}

    def labels(self, state: State) -> list[str]:
        """Return the names of the intervals: ``(0,10]``, with as few digits as keep them apart."""
        if self.names is not None:
            return list(self.names)
        breaks = self._breaks(state)
        for digits in range(self.digits, max(12, self.digits) + 1):
            texts = _numbers(breaks, digits)
            if all(a != b for a, b in pairwise(texts)):
                break
        else:
            return [f"Range_{i}" for i in range(1, len(breaks))]
        opening, closing = ("(", "]") if self.right else ("[", ")")
        labels = [f"{opening}{low},{high}{closing}" for low, high in pairwise(texts)]
        if self.include_lowest and self.right:
            labels[0] = "[" + labels[0][1:]
        elif self.include_lowest:
            labels[-1] = labels[-1][:-1] + "]"
        return labels

    def values(self, x: Array, state: State) -> NDArray[np.intp]:
        edges = np.asarray(self._breaks(state), dtype=np.float64)
        last = len(edges) - 2
        places = np.searchsorted(edges, x, side="left" if self.right else "right") - 1
        places[(places > last) | np.isnan(x)] = -1
        if self.include_lowest:
            outermost, interval = (edges[0], 0) if self.right else (edges[-1], last)
            places[x == outermost] = interval
        return places

    def report(self, state: State) -> str:
        return f"breaks={constants(self._breaks(state))}" if state else ""

    def _breaks(self, state: State) -> Sequence[float]:
        if self.breaks is not None:
            return self.breaks
        if "breaks" not in state:
            raise ValueError("its breaks have not been agreed")
        return [-math.inf, *state["breaks"], math.inf]


def _numbers(values: Sequence[float], digits: int) -> list[str]:
    """Return numbers as R's ``formatC``, with significant digits but no zeros at the end."""
    texts = [f"{value:.{digits}g}".replace("inf", "Inf") for value in values]
    # R gives both infinities the same width: the last interval is then called (5, Inf].
    return [" Inf" if text == "Inf" and "-Inf" in texts else text for text in texts]
