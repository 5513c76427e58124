"""Sums over the rows of all clients that functions such as ``poly`` and ``cut`` depend on.

Each one says what is summed, and the shape of what comes back. None of them holds a smallest or
largest value, or a quantile, of a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.statistic import (
    AboutMeans,
    Computed,
    MeanProducts,
    RowSum,
    Shape,
    StatisticPart,
    Sums,
)
from fedsplit.sums import Summands


class Withheld(NamedTuple):
    """Which counts do not leave a client: those below the smallest that may.

    With ``together`` another is withheld if those withheld would be fewer rows than that in all.
    """

    smallest: int
    together: bool = False


@dataclass(frozen=True)
class ColumnMoments:
    """How many values there are, their mean, and their sum of squares about it: (3,)."""

    @property
    def sums(self) -> int:
        """How many numbers about the values a client sends, beside counts of many rows."""
        return 2

    @property
    def shape(self) -> Shape:
        """The shape of what comes back."""
        return AboutMeans(1, ((0, 0),), bounded=True)

    def part(self, x: Array, limit: Withheld) -> StatisticPart:
        """What a client sums: of its values, (n,); small counts are withheld."""
        return MeanProducts(x[:, None], np.ones(len(x)), ((0, 0),))


@dataclass(frozen=True)
class CellCounts(Sums):
    """Counts of neighbouring cells, some of which a client may have merged and spread evenly."""

    def add(self, to: Summands, part: Array) -> None:
        """By whole numbers: halves and quarters would tell which client has merged cells."""
        to.add(np.diff(np.floor(np.cumsum(part)), prepend=0.0))


@dataclass(frozen=True)
class Histogram:
    """Counts of rows in cells of equal width, with one open cell on either side: (1, cells + 2).

    A client of few rows merges 2, 4 or 8 neighbouring cells, as the number of its rows says, and
    spreads their count evenly. Counts below the smallest that may leave the client are zero. The
    first cell begins at ``first``, and each is ``step`` wide.
    """

    first: float
    step: float
    cells: int

    def __post_init__(self) -> None:
        most = 100
        if not 1 <= self.cells <= most:
            raise ValueError(f"a histogram of {self.cells} cells: 1 to {most} are possible")
        if not (self.step > 0 and np.isfinite(self.edges).all()):
            raise ValueError("a histogram without finite cells")

    @property
    def edges(self) -> Array:
        """The edges of the cells between the open ones, (cells + 1,)."""
        with np.errstate(all="ignore"):  # edges that are not finite are refused
            edges: Array = self.first + self.step * np.arange(self.cells + 1)
        return edges

    @property
    def sums(self) -> int:
        return 0

    @property
    def shape(self) -> Shape:
        return CellCounts(1, self.cells + 2, nonnegative=True)

    def every(self, x: Array) -> Array:
        """In which cell each value is, (n, cells + 2): none is merged or withheld."""
        inside: Array = self._cell_of(x)[:, None] == np.arange(self.cells + 2)
        return inside.astype(np.float64)

    def part(self, x: Array, limit: Withheld) -> StatisticPart:
        return self._counted(self._cell_of(x), list(self._disclosed(x, limit)))

    def joined(self, x: Array, limit: Withheld) -> StatisticPart:
        """What a client sums if no row may be left out, as where half of the rows lie below.

        Rows of a count that is too small are counted in the nearest cells that have enough of them,
        unless all counts are too small.
        """
        counts = self._merged_counts(x)
        large = [cells for cells, count in counts.items() if count >= limit.smallest]
        cell_of = self._cell_of(x)
        if large:
            starts, ends = np.array(large).T
            for start, end in counts.keys() - set(large):
                far = np.maximum(starts - end, start - ends)
                cell_of[(start <= cell_of) & (cell_of < end)] = starts[far.argmin()]
        return self._counted(cell_of, large)

    def _counted(self, cell_of: NDArray[np.intp], groups: list[tuple[int, int]]) -> StatisticPart:
        """The rows of these cells, spread evenly over each."""
        counts = np.zeros((1, self.cells + 2))
        inside = [np.ones(len(cell_of))]
        for start, end in groups:
            rows = (start <= cell_of) & (cell_of < end)
            counts[0, start:end] = rows.sum() / (end - start)
            inside.append(rows.astype(np.float64))
        return Computed(counts, [RowSum(np.column_stack(inside), np.ones((len(cell_of), 1)))])

    def _cell_of(self, x: Array) -> NDArray[np.intp]:
        return np.searchsorted(self.edges, x, side="right")

    def _disclosed(self, x: Array, limit: Withheld) -> dict[tuple[int, int], int]:
        """The counts that leave a client, by the cells that are merged."""
        every = self._merged_counts(x)
        counts = {cells: count for cells, count in every.items() if count >= limit.smallest}
        if limit.together and counts and 0 < len(x) - sum(counts.values()) < limit.smallest:
            # all rows but these would be counted: one more count is withheld with them
            counts.pop(min(counts, key=lambda cells: counts[cells]))
        return counts

    def _merged_counts(self, x: Array) -> dict[tuple[int, int], int]:
        """All counts, by the cells that are merged."""
        counts = np.bincount(self._cell_of(x), minlength=self.cells + 2)
        merged = 1
        while merged < 8 and len(x) * merged < 2 * self.cells:  # to have two rows in each
            merged *= 2
        ends = [0, *range(1, self.cells + 1, merged), self.cells + 1, self.cells + 2]
        return {(start, end): int(counts[start:end].sum()) for start, end in pairwise(ends)}
