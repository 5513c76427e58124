"""Functions in a formula that depend on the rows of all clients, such as ``poly(x, 3)``.

What such a function needs to know of the other rows is its state. The clients agree on it before
their rows are coded, so that each computes the same function of its own rows.

Every agreement is a dialogue. It yields a statistic of its column, is sent that of all clients, and
returns what was agreed at the end. Knots and breaks come from the pooled mean and deviation, which
give the grid of a coarse histogram: its edges are round numbers, and so are the knots.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import ColumnMoments, Histogram
from fedsplit.dialogue import Dialogue

State: TypeAlias = Mapping[str, Sequence[float]]
"""What is agreed for one call, by names of the function's own; empty if nothing has to be."""


class PooledFunction(ABC):
    """A function of one column, whose other arguments are its fields."""

    is_category: ClassVar[bool] = False
    """Whether its values are the levels of a category, and not columns of numbers."""

    @abstractmethod
    def agreement(self) -> Dialogue[State] | None:
        """Agree on the state: ask for statistics of the column; None if nothing has to be known."""

    @abstractmethod
    def values(self, x: Array, state: State) -> NDArray[Any]:
        """Return the k columns, (n, k), for the values of the argument, (n,).

        For a category, the number of each value's level, (n,), from 0; -1 for a value without one.
        """

    def labels(self, state: State) -> list[str]:
        """Return how the names of the k columns end, as in ``poly(x, 3)1``; for a category, levels.

        The first level is the reference.
        """
        return [""]

    def report(self, state: State) -> str:
        """Return what was agreed, as arguments for R; empty if a user need not know."""
        return ""

    def extrapolates(self, x: Array) -> bool:
        """Return whether a value lies so far outside that a user should know."""
        return False


def numbered(width: int) -> list[str]:
    """Return the endings of the names of several columns as in R: a single one has none."""
    return [""] if width == 1 else [str(i) for i in range(1, width + 1)]


def mean_and_deviation() -> Dialogue[tuple[float, float, float]]:
    """Ask for the number of rows, the mean, and the standard deviation, which is above zero."""
    n, mean, scatter = map(float, (yield ColumnMoments()))
    return n, mean, deviation_of(n, mean, scatter)


def deviation_of(n: float, mean: float, scatter: float) -> float:
    """Return a deviation; ValueError if all values are the same, to the rounding of their mean."""
    deviation = math.sqrt(scatter / max(n - 1.0, 1.0))
    if not deviation > 4 * np.spacing(abs(mean)):
        raise ValueError("its column does not vary over the clients")
    return deviation


def spread() -> Dialogue[Spread]:
    """Ask for the mean and the deviation, then for a histogram on a grid given by them."""
    n, mean, deviation = yield from mean_and_deviation()
    grid = coarse_grid(mean, deviation)
    counts = yield grid
    return Spread(grid, counts[0], n)


def coarse_grid(mean: float, deviation: float, reach: float = 4.0) -> Histogram:
    """Return the histogram of a column of this mean and standard deviation.

    Its cells cover the mean and ``reach`` deviations on either side. Each is a fifth of a deviation
    wide, or more until its width is 1, 2, 2.5 or 5 times a power of ten.
    """
    narrowest = deviation / 5.0
    power = _power_of_ten(narrowest)
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= narrowest)
    first = math.floor((mean - reach * deviation) / step) * step
    return Histogram(first, step, math.ceil((mean + reach * deviation - first) / step))


class Spread:
    """How the values of a column are spread over all clients, as far as a histogram says.

    Of all n rows, withheld ones included, half at least must be in its counts, (cells + 2,).
    """

    def __init__(self, grid: Histogram, counts: Array, n: float) -> None:
        inside = counts[1:-1]
        if not counts.sum() >= 0.5 * n or not inside.any():
            raise ValueError("too few rows at the clients for histograms: write knots or breaks")
        self._digits = 1 - round(math.log10(_power_of_ten(grid.step)))
        self._edges = grid.edges
        self._share_below = np.concatenate([[counts[0]], inside]).cumsum() / counts.sum()
        used = inside.nonzero()[0]
        self.boundary = self._rounded([grid.edges[used[0]], grid.edges[used[-1] + 1]])

    def quantiles(self, number: int) -> list[float]:
        """Return values that cut the rows into parts of about equal size."""
        shares = np.arange(1, number + 1) / (number + 1)
        return self._distinct(np.interp(shares, self._share_below, self._edges))

    def even(self, number: int) -> list[float]:
        """Return values that cut the range into parts of about equal width."""
        lower, upper = self.boundary
        return self._distinct(np.linspace(lower, upper, number + 2)[1:-1])

    def _distinct(self, values: Array) -> list[float]:
        cuts = self._rounded(values)
        lower, upper = self.boundary
        if any(a >= b for a, b in zip([lower, *cuts], [*cuts, upper], strict=True)):
            raise ValueError("the histograms cannot tell so many apart: write knots or breaks")
        return cuts

    def _rounded(self, values: Iterable[float]) -> list[float]:
        return [round(float(each), self._digits) + 0.0 for each in values]  # no -0.0


def _power_of_ten(value: float) -> float:
    """Return the largest power of ten that is not above a value."""
    return float(10.0 ** math.floor(math.log10(value)))


def constants(values: Iterable[float]) -> str:
    """Return numbers as a formula has them: ``c(-Inf, 2.5, Inf)``."""
    texts = [f"{each:.12g}".replace("inf", "Inf") for each in values]
    return f"c({', '.join(texts)})"
