"""The rows of one client as numbers, and combinations of columns with all their digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, exact_product
from fedsplit.channels import codec
from fedsplit.losses.observations import Observations
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.regression.families.family import Family, shares
from fedsplit.regression.families.response import Groups
from fedsplit.statistic import Values

if TYPE_CHECKING:  # the rules know the design
    from fedsplit.regression.client.guards.rules import Finding

ROWS_AT_A_TIME = 4096
"""So many rows are worked on together where a second copy of all would take too much memory."""


def pieces(n: int, rows: int = ROWS_AT_A_TIME) -> Iterator[slice]:
    """n rows, a few at a time."""
    return (slice(first, first + rows) for first in range(0, n, rows))


def products_among(names: Sequence[str]) -> dict[int, tuple[int, int]]:
    """The columns that are products of two others, or the square of one, by their names."""
    places = {name: k for k, name in enumerate(names)}
    found = {}
    for name, k in places.items():
        for at in (i for i, letter in enumerate(name) if letter == ":"):
            if name[:at] in places and name[at + 1 :] in places:
                found[k] = places[name[:at]], places[name[at + 1 :]]
        for square in (f"{name}^2", f"I({name}^2)", f"{name} ** 2", f"I({name} ** 2)"):
            if square in places:
                found[places[square]] = k, k
    return found


def combine(
    A: Array,
    centre: Array,
    scale: Array,
    W: Array,
    products: Mapping[int, tuple[int, int]] | None = None,
) -> Array:
    """((A - centre)/scale) W, (n, k), correct to about one rounding of every entry.

    A number is a pair (high, low) on the way, whose sum has about 32 digits: T. J. Dekker, "A
    floating-point technique for extending the available precision", Numerische Mathematik 18, 1971.
    Columns that are ``products`` of two others, as ``products_among`` finds them, count with all
    digits of these. With means of 1e4 and deviations of 1, the last digit of an entry is 1e-8 of
    what tells it from a sum of others.
    """
    high, low = _quotients(W, scale)
    found = np.empty((len(A), W.shape[1]))
    for some in pieces(len(A), 1024):  # which stay in the processor's cache
        found[some] = _some(A[some], centre, high, low, products or {})
    return found


def _quotients(W: Array, scale: Array) -> tuple[Array, Array]:
    """W/scale, row by row, as pairs."""
    exact = [[Fraction(w) / Fraction(s) for w in row] for row, s in zip(W, scale, strict=True)]
    high = np.array([[float(each) for each in row] for row in exact]).reshape(W.shape)
    low = [
        [float(each - Fraction(near)) for each, near in zip(row, nearest, strict=True)]
        for row, nearest in zip(exact, high, strict=True)
    ]
    return high, np.array(low).reshape(W.shape)


def _some(
    A: Array, centre: Array, high: Array, low: Array, products: Mapping[int, tuple[int, int]]
) -> Array:
    """(A - centre)(high + low) for a few rows."""
    total: Array = np.zeros((len(A), high.shape[1]))
    rest: Array = np.zeros_like(total)
    for j in np.flatnonzero(high.any(axis=1)).tolist():
        a, a_low = _sum(A[:, j, None], np.full((1, 1), -centre[j]))
        if j in products:
            entry, lost = exact_product(*(A[:, k, None] for k in products[j]))
            a_low = a_low + ((entry - A[:, j, None]) + lost)
        product, error = exact_product(a, high[j])
        error += a * low[j] + a_low * high[j]
        total, lost = _sum(total, product)
        rest += lost + error
    return total + rest


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b exactly, as a pair."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


BINS = np.array(
    [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0]
)
"""The edges of the bins of predicted probabilities in which calibration is counted."""

SMALLEST_CELL = 3
"""A count below this, unless it is zero, could point to a person."""


class Moments(NamedTuple):
    """The moments of a client's design; means and sums are weighted."""

    names: Sequence[str]  # of the p columns
    n: int  # rows
    weight: float  # sum of the weights
    mean: Array  # (p,): of the columns
    scatter: Array  # (p, p): Σ w (a - mean)(a - mean)ᵀ
    # as of the columns
    target_mean: float
    target_scatter: float
    # log Σ w e^offset, which the sum of a target with a log link is compared with
    log_exposed: float
    classes: tuple[int, ...] = ()  # rows of each class; empty unless the target is a class
    # how far the best loss of a model that knows every row is above the floor of the loss: more
    # than 0 where a row stands for trials of both classes
    floor: float = 0.0
    net_mean: float = 0.0  # the mean of y, the target less its offset
    # (p,): Σ w (a - mean)(y - net_mean): with the scatter it determines a fit of least squares.
    # Empty for other families, which have no use for it.
    cross: Array = np.zeros(0)


class Scaling(NamedTuple):
    """The coordinates of the rounds: columns (a - centre)/scale, and a target (b - origin)/unit."""

    centre: Array  # (p,)
    scale: Array  # (p,)
    unit: float
    # what the target is measured from: digits of a mean that is large beside the deviation would be
    # lost to the residuals
    origin: float = 0.0


@dataclass(frozen=True)
class Frame:
    """The coordinates of the rounds, and what a client's cost is in them."""

    scaling: Scaling  # of the columns and the target
    # (p, r): what the scaled columns are multiplied by, so that they are orthonormal over all
    # clients, or so that r of them are left
    whiten: Array | None
    # the robust deviation of the residuals that parameters of the family are in units of, in the
    # unit of the files; 1 for parameters in the unit of the target
    spread: float
    symmetric: bool  # whether the coefficients are those of all classes, centred
    ridge: Array  # (d,): of the whole objective
    # whether the products with ``whiten`` are formed in twice the working precision, because large
    # terms nearly cancel in them
    precise: bool = False


def key_of(coding: Coding, frame: Frame) -> str:
    """The name of what clients are prepared with, by its content."""
    return sha256(codec.encode((coding, frame))).hexdigest()


class Recession(NamedTuple):
    """A direction along which no row's loss rises, and that of some rows falls for ever."""

    # of the columns
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    whiten: tuple[tuple[float, ...], ...]  # what the scaled columns are multiplied by
    direction: tuple[float, ...]  # in coefficients of the products

    def moves(self, A: Array) -> Array:
        """How the predictor of each row of A, (n, p), moves along the direction: its sign."""
        centre, scale, whiten, direction = map(np.array, self)
        return shares(combine(A, centre, scale, whiten), direction)


class Calibration(NamedTuple):
    """Counts between the BINS; bins too small to disclose are left out."""

    # (16,): rows, the sum of their predicted probabilities, and rows of class 1
    rows: Array
    predicted: Array
    observed: Array


@dataclass
class Design:
    """The design of one client."""

    name: str  # of the client
    plan: Plan  # by which the rows were coded
    A: Array  # (n, p): in the units of the file
    # (n,): the target, in the units of the file; numbers of classes, from 0, of a classifier
    b: Array
    w: Array  # (n,): weights above zero
    o: Array  # (n,): offsets
    row_ids: NDArray[np.intp]  # (n,): which rows of the client these are, from 0
    groups: Groups | None = None  # of a grouped target, whose rows here are of one class each
    scaling: Scaling | None = None  # the coordinates of points that are asked about
    warnings: Sequence[Finding] = ()  # what its moments could disclose of single rows
    moments: Values = field(default_factory=dict)  # as they were answered; empty before

    @property
    def family(self) -> Family:
        return self.plan.chosen_family

    @property
    def classes(self) -> int:
        """How many classes the target has; 0 unless it is a class."""
        return self.family.count_classes(self.plan.classes)

    @property
    def determining(self) -> Array:
        """The columns as far as the loss depends on them, (n, p).

        A column that does not vary within a client is zero where the loss absorbs a constant of
        each client: no coefficient of it is determined, whatever it is elsewhere.
        """
        A = self.A
        if self.family.absorbs != "a constant of each client" or not len(A):
            return A
        varies = np.ptp(A, axis=0) > 1e-13 * np.abs(A).max(axis=0)
        return np.where(varies, A - self.w @ A / self.w.sum(), 0.0)

    @property
    def rows(self) -> int:
        """How many rows there are, or groups of a grouped target."""
        return len(self.b) if self.groups is None else self.groups.rows

    @property
    def times(self) -> Array:
        """How many trials each row stands for, (n,): 1 unless the target is grouped."""
        return np.ones_like(self.w) if self.groups is None else self.w

    @property
    def target_scale(self) -> tuple[float, float]:
        """The unit and the origin of the target."""
        return (1.0, 0.0) if self.scaling is None else (self.scaling.unit, self.scaling.origin)

    def in_coordinates(self, whiten: Array | None = None, precise: bool = False) -> Array:
        """The scaled columns, (n, p), or combinations of them, (n, r).

        They are made piece by piece: a second copy of A on the way could exceed the memory of a
        client. ``precise`` is whether in twice the working precision.
        """
        if whiten is None and self.scaling is None:
            return self.A
        if whiten is not None and precise and self.scaling is not None:
            products = products_among(self.plan.names)
            return combine(self.A, self.scaling.centre, self.scaling.scale, whiten, products)
        columns = np.empty((len(self.A), self.A.shape[1] if whiten is None else whiten.shape[1]))
        for some in pieces(len(self.A)):
            scaled = self._scaled(some)
            columns[some] = scaled if whiten is None else scaled @ whiten
        return columns

    def _scaled(self, some: slice) -> Array:
        if self.scaling is None:
            return self.A[some]
        scaled: Array = (self.A[some] - self.scaling.centre) / self.scaling.scale
        return scaled

    def observations(self, whiten: Array | None = None, precise: bool = False) -> Observations:
        """The rows as the loss takes them, in coordinates, with the target in its unit."""
        unit, origin = self.target_scale
        A = self.in_coordinates(whiten, precise)
        return Observations(A, (self.b - origin) / unit, self.w, self.o / unit)

    def predictor(self, x: Array) -> Array:
        """η in the units of the file, (n,), or (n, K - 1) for K classes.

        x has coefficients of the columns as they are, and of the target in its unit.
        """
        unit, origin = self.target_scale
        parts = [
            self.family.predictor(self._scaled(some), x, self.o[some] + origin, unit)
            for some in pieces(len(self.A))
        ]
        return np.concatenate(parts) if parts else self.family.predictor(self.A, x, self.o, unit)
