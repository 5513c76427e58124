"""Sums over the rows of all clients that functions such as ``poly`` and ``cut`` depend on.

Each one says how a client computes its part, how the parts are combined, and what is wrong with a
part that came from elsewhere. A part is one array, so that nothing else can travel. None of them
holds a smallest or largest value, or a quantile, of a client.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.pooled.orthogonal_polynomials import Recurrence
from fedsplit.sums import Summands, Total, about_means, rounded

MOST_DEGREE = 20
"""Of the polynomials whose products a client adds up."""

LARGEST = (2.0**53, 1e150, 1e300)
"""A count, a mean and a sum of squares, up to which sums over clients do not overflow."""

MOST_CELLS = 100
"""Of a histogram."""

ROWS_PER_CELL = 2
"""A client with fewer rows per cell of a histogram merges neighbouring cells."""

COARSEST = 8
"""The most cells that are merged into one."""


class Withheld(NamedTuple):
    """Which counts do not leave a client.

    Attributes
    ----------
    smallest : int
        Those below this.
    together : bool
        Whether another count is withheld if those withheld would be fewer rows than that in all.
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

    def part(self, x: Array, limit: Withheld) -> Array:
        """What a client adds: of its values, (n,); small counts are withheld."""
        if len(x) == 0:
            return np.zeros(3)
        mean = x.mean()
        return np.array([len(x), mean, np.square(x - mean).sum()])

    def columns(self, x: Array, limit: Withheld) -> Array:
        """The columns whose sums or products a part tells, (n, q)."""
        return np.column_stack([np.ones_like(x), x - x.mean()])

    def total(self, parts: Sequence[Array]) -> Array:
        """That of all clients."""
        n = math.fsum(count for count, _, _ in parts)
        mean = math.fsum(count * own for count, own, _ in parts) / max(n, 1.0)
        scatter = math.fsum(part + count * (own - mean) ** 2 for count, own, part in parts)
        return np.array([n, mean, scatter])

    def add(self, to: Summands, part: Array) -> None:
        """Add a client's part to sums in which no single one is seen."""
        n, mean, scatter = part
        first = np.zeros(1, dtype=np.intp)
        means, scatters = np.array([mean]), np.array([scatter])
        to.add_about_means(float(n), means, scatters, (first, first), scatters)

    def read(self, total: Total) -> Array:
        """That of all clients, from the sums."""
        n, value, square = total.wide(3)
        if n == 0:
            return np.zeros(3)
        scatter = float(about_means(square, value, value, n))
        return np.array([rounded(n), value / n, max(0.0, scatter)])

    def check(self, part: Array) -> str:
        """What is wrong with a client's part: an empty text if nothing is."""
        if part.shape != (3,) or not (np.abs(part) <= LARGEST).all() or min(part[0], part[2]) < 0:
            return "moments that no column can have"
        return ""


@dataclass(frozen=True)
class GramMatrix:
    """Products of polynomials q_0 to q_k of z = (x - centre)/scale: Σ q_i q_j, (k + 1, k + 1).

    Attributes
    ----------
    centre, scale : float
    alpha, norm2 : tuple of float
        The recurrence of the polynomials.
    """

    centre: float
    scale: float
    alpha: tuple[float, ...]
    norm2: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = (self.centre, self.scale, *self.alpha, *self.norm2)
        if not all(math.isfinite(each) for each in numbers):
            raise ValueError("polynomials of numbers that are not finite")
        if min(self.scale, *self.norm2) <= 0 or len(self.norm2) != len(self.alpha) + 1:
            raise ValueError("polynomials without a norm")
        if len(self.alpha) > MOST_DEGREE:
            raise ValueError(f"polynomials of a degree above {MOST_DEGREE}")

    @property
    def sums(self) -> int:
        """They are worth the sums of z to z^2k."""
        return 2 * len(self.alpha)

    def part(self, x: Array, limit: Withheld) -> Array:
        q = self.columns(x, limit)
        found: Array = q.T @ q
        return found

    def columns(self, x: Array, limit: Withheld) -> Array:
        return Recurrence(self.alpha, self.norm2).values((x - self.centre) / self.scale)

    def total(self, parts: Sequence[Array]) -> Array:
        found: Array = np.sum(parts, axis=0)
        return found

    def add(self, to: Summands, part: Array) -> None:
        to.add(part)

    def read(self, total: Total) -> Array:
        return total.take(len(self.norm2), len(self.norm2))

    def check(self, part: Array) -> str:
        if part.shape != (len(self.norm2), len(self.norm2)) or not np.isfinite(part).all():
            return "products of polynomials of the wrong shape, or not finite"
        return ""


@dataclass(frozen=True)
class Histogram:
    """Counts of rows in cells of equal width, with one open cell on either side: (cells + 2,).

    A client of few rows merges 2, 4 or 8 neighbouring cells, as the number of its rows says, and
    spreads their count evenly. Counts below the smallest that may leave the client are zero.

    Attributes
    ----------
    first, step : float
        The lower edge of the first cell, and the width of each.
    cells : int
    """

    first: float
    step: float
    cells: int

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= MOST_CELLS:
            raise ValueError(f"a histogram of {self.cells} cells: 1 to {MOST_CELLS} are possible")
        if not (self.step > 0 and np.isfinite(self.edges).all()):
            raise ValueError("a histogram without finite cells")

    @property
    def edges(self) -> Array:
        """Of the cells between the open ones, (cells + 1,)."""
        with np.errstate(all="ignore"):  # edges that are not finite are refused
            edges: Array = self.first + self.step * np.arange(self.cells + 1)
        return edges

    @property
    def sums(self) -> int:
        return 0

    def part(self, x: Array, limit: Withheld) -> Array:
        found = np.zeros(self.cells + 2)
        for (start, end), count in self._told(x, limit).items():
            found[start:end] = count / (end - start)
        return found

    def every(self, x: Array) -> Array:
        """In which cell each value is, (n, cells + 2): none is merged or withheld."""
        inside: Array = self._cell_of(x)[:, None] == np.arange(self.cells + 2)
        return inside.astype(np.float64)

    def columns(self, x: Array, limit: Withheld) -> Array:
        cell_of = self._cell_of(x)
        told = self._told(x, limit)
        inside = [(start <= cell_of) & (cell_of < end) for start, end in told]
        return np.column_stack([np.ones(len(x)), *inside]).astype(np.float64)

    def _cell_of(self, x: Array) -> NDArray[np.intp]:
        return np.searchsorted(self.edges, x, side="right")

    def _told(self, x: Array, limit: Withheld) -> dict[tuple[int, int], int]:
        """The counts that leave a client, by the cells that are merged."""
        counts = np.bincount(self._cell_of(x), minlength=self.cells + 2)
        merged = self._merged(len(x))
        ends = [0, *range(1, self.cells + 1, merged), self.cells + 1, self.cells + 2]
        found = {(start, end): int(counts[start:end].sum()) for start, end in pairwise(ends)}
        told = {cells: count for cells, count in found.items() if count >= limit.smallest}
        if limit.together and told and 0 < len(x) - sum(told.values()) < limit.smallest:
            # all rows but these would be counted: one more count is withheld with them
            told.pop(min(told, key=lambda cells: told[cells]))
        return told

    def _merged(self, n: int) -> int:
        """How many cells a client of n rows merges into one."""
        merged = 1
        while merged < COARSEST and n * merged < ROWS_PER_CELL * self.cells:
            merged *= 2
        return merged

    def total(self, parts: Sequence[Array]) -> Array:
        found: Array = np.sum(parts, axis=0)
        return found

    def add(self, to: Summands, part: Array) -> None:
        """By whole numbers: halves and quarters would tell which client has merged cells."""
        to.add(np.diff(np.floor(np.cumsum(part)), prepend=0.0))

    def read(self, total: Total) -> Array:
        return total.take(self.cells + 2)

    def check(self, part: Array) -> str:
        if part.shape != (self.cells + 2,) or not np.isfinite(part).all() or (part < 0).any():
            return "a histogram of the wrong shape, or with negative counts"
        return ""


Statistic: TypeAlias = ColumnMoments | GramMatrix | Histogram
"""What clients are asked for."""
