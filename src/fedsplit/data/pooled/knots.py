"""Where knots and breaks lie, chosen from the pooled mean, deviation and a coarse histogram.

The grid of the histogram is given by the mean and the deviation over all clients, and its edges are
round numbers. So are the knots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Histogram

REACH = 4.0
"""Deviations from the mean, on either side, that the cells cover."""

CELLS_PER_DEVIATION = 5.0
"""At most; cells are made wider until their width is a round number."""

ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Round widths, times a power of ten."""

ENOUGH = 0.5
"""The share of all rows that must be in cells that were not withheld."""


def coarse_grid(mean: float, deviation: float) -> Histogram:
    """The histogram that suits a column of this mean and standard deviation."""
    narrowest = deviation / CELLS_PER_DEVIATION
    power = _power_of_ten(narrowest)
    step = next(each * power for each in ROUND if each * power >= narrowest)
    first = math.floor((mean - REACH * deviation) / step) * step
    cells = math.ceil((mean + REACH * deviation - first) / step)
    return Histogram(first, step, cells)


class Spread:
    """How the values of a column are spread over all clients, as far as a histogram says.

    Parameters
    ----------
    grid : Histogram
    counts : (cells + 2,) array
        Over all clients.
    n : float
        All rows, withheld ones included.
    """

    def __init__(self, grid: Histogram, counts: Array, n: float) -> None:
        inside = counts[1:-1]
        if not counts.sum() >= ENOUGH * n or not inside.any():
            raise ValueError("too few rows at the clients for histograms: write knots or breaks")
        self._digits = 1 - round(math.log10(_power_of_ten(grid.step)))
        self._edges = grid.edges
        below = np.concatenate([[counts[0]], inside]).cumsum()
        self._share_below = below / counts.sum()
        used = inside.nonzero()[0]
        self.boundary = self._rounded([grid.edges[used[0]], grid.edges[used[-1] + 1]])

    def quantiles(self, number: int) -> list[float]:
        """So many values that cut the rows into parts of about equal size."""
        shares = np.arange(1, number + 1) / (number + 1)
        return self._distinct(np.interp(shares, self._share_below, self._edges))

    def even(self, number: int) -> list[float]:
        """So many values that cut the range into parts of about equal width."""
        lower, upper = self.boundary
        return self._distinct(np.linspace(lower, upper, number + 2)[1:-1])

    def _distinct(self, values: Array) -> list[float]:
        found = self._rounded(values)
        lower, upper = self.boundary
        if any(a >= b for a, b in zip([lower, *found], [*found, upper], strict=True)):
            raise ValueError("the histograms cannot tell so many apart: write knots or breaks")
        return found

    def _rounded(self, values: Iterable[float]) -> list[float]:
        return [round(float(each), self._digits) + 0.0 for each in values]  # no -0.0


def _power_of_ten(value: float) -> float:
    """The largest that is not above a value."""
    return float(10.0 ** math.floor(math.log10(value)))


def constants(values: Iterable[float]) -> str:
    """Numbers as a formula has them: ``c(-Inf, 2.5, Inf)``."""
    texts = [f"{each:.12g}".replace("inf", "Inf") for each in values]
    return f"c({', '.join(texts)})"
