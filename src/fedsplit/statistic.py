"""What clients disclose of their rows is a few sums over them: which ones, a statistic states.

A statistic has named parts. Of each it says twice what it is: ``sums`` makes it of a client's rows,
as a value that holds what is summed, and ``shapes`` says what comes back, to those who have no
rows. Everything else follows from these and is written here once: the answer, the zeros of a
client without rows, the check of what comes back, its rounding under rules, the sum over clients,
open and secure, and the vectors over rows whose sums are disclosed.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask
from fedsplit.sums import Summands, Total, about_means, quotients, rounded

NOT_FINITE = "an answer that is not finite"
"""What is wrong with an answer whose numbers cannot be used. If those of every client are like
this, the clients are not to blame: the run itself diverges."""

Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""Which columns are multiplied."""

Values: TypeAlias = Mapping[str, Array]
"""What one client answers to a statistic, by the names of its parts."""


class StatisticPart(Protocol):
    """One part of a statistic, made of a client's rows."""

    def value(self) -> Array:
        """What is answered."""

    def bounds(self) -> Array | None:
        """The most that each number could be, by the lengths of the vectors that are multiplied.

        Sums are rounded relative to that under rules; None for numbers that stay.
        """

    def disclosed(self) -> Sequence[RowSum]:
        """The sums over rows from which the value follows."""


@dataclass(frozen=True, eq=False)
class RowSum:
    """Σ_i w_i l_i r_iᵀ over n rows, (p, q)."""

    left: Array  # (n, p)
    right: Array | None = None  # (n, q): none for products of every two columns of ``left``
    weights: Array | None = None  # (n,): none for weights of 1

    def value(self) -> Array:
        right = self.left if self.right is None else self.right
        if self.weights is not None:
            right = self.weights[:, None] * right
        total: Array = self.left.T @ right
        return total

    def bounds(self) -> Array | None:
        w = 1.0 if self.weights is None else np.abs(self.weights)
        if self.right is None:
            lengths = np.sqrt(np.sum(np.square(self.left.T) * w, axis=1))
            return np.outer(lengths, lengths)
        # all of the weight on one side, as the slopes of a gradient have it
        left = np.linalg.norm(self.left, axis=0)
        return np.outer(left, np.sqrt(np.sum(np.square(self.right.T * w), axis=1)))

    def disclosed(self) -> Sequence[RowSum]:
        return (self,)


@dataclass(frozen=True, eq=False)
class MeanProducts:
    """Σ w, the means of q columns, and Σ w (a - ā)(b - b̄) of pairs of them, (1 + q + r,).

    Products about the client's own means keep the digits of columns whose means are large beside
    their deviations. They are functions of the sums of 1, of the columns and of the products.
    """

    columns: Array  # (n, q)
    weights: Array  # (n,)
    pairs: Pairs  # the columns of each product

    # squares beyond float64 are reported by the server, which knows the column's sum of all clients
    @np.errstate(over="ignore", invalid="ignore")
    def value(self) -> Array:
        if not len(self.weights):
            return np.zeros(1 + self.columns.shape[1] + len(self.pairs))
        weight = self.weights.sum()
        mean = self.weights @ self.columns / weight
        centred = self.columns - mean
        scatter = centred.T @ (self.weights[:, None] * centred)
        i, j = indices(self.pairs)
        return np.concatenate([[weight], mean, scatter[i, j]])

    @np.errstate(over="ignore", invalid="ignore")
    def bounds(self) -> Array | None:
        if not len(self.weights):
            return None
        weight = float(self.weights.sum())
        mean = self.weights @ self.columns / weight
        lengths = np.sqrt(np.sum(self.weights * np.square(self.columns - mean).T, axis=1))
        sizes = np.sqrt(np.square(lengths) / weight + np.square(mean))
        i, j = indices(self.pairs)
        return np.concatenate([[weight], sizes, lengths[i] * lengths[j]])

    def disclosed(self) -> Sequence[RowSum]:
        if not len(self.weights):
            return ()
        # as they are computed: a column far from 0 is rounded before its mean is subtracted
        centred = self.columns - self.weights @ self.columns / self.weights.sum()
        one = np.ones((len(centred), 1))
        # every pair, asked for or not: products that are not formed cannot overflow here
        return (RowSum(np.hstack([one, centred]), weights=self.weights),)


@dataclass(frozen=True, eq=False)
class Computed:
    """Numbers that follow from sums over rows, and are computed in another way.

    A quadratic cost is computed from a Gram matrix, for example, and not row by row.
    """

    numbers: Array  # of the shape that the statistic states
    # from which they follow, or what makes these where they are recorded; empty for what does not
    # depend on the rows, or was disclosed before; None where they are not known
    sums: Sequence[RowSum] | Callable[[], Sequence[RowSum]] | None = ()
    limits: Array | None = None  # as in ``bounds``

    def value(self) -> Array:
        return self.numbers

    def bounds(self) -> Array | None:
        return self.limits

    def disclosed(self) -> Sequence[RowSum]:
        return self.sums() if callable(self.sums) else self.sums or ()


class Shape(ABC):
    """What those who have no rows know of a part: its zeros, its check, its sum over clients."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """That of the array that comes back."""

    @property
    def zeros(self) -> Array:
        """The part of a client without rows."""
        return np.zeros(self.shape)

    def check(self, part: Array) -> str:
        """What is wrong with a client's part: an empty text if nothing is."""
        if part.shape != self.shape:
            return f"numbers of shape {part.shape} where {self.shape} was asked for"
        return self._wrong(part)

    @abstractmethod
    def _wrong(self, part: Array) -> str:
        """The same of a part of the right shape."""

    @abstractmethod
    def pooled(self, parts: Sequence[Array]) -> Array:
        """That of all clients together."""

    @abstractmethod
    def add(self, to: Summands, part: Array) -> None:
        """Add a client's part to sums in which no single one is seen."""

    @abstractmethod
    def read(self, total: Total) -> Array:
        """That of all clients, from such sums."""


@dataclass(frozen=True)
class Sums(Shape):
    """Plain totals, (p, q)."""

    p: int = 1
    q: int | None = 1  # none for products of every two of p columns
    nonnegative: bool = False  # whether no number can be below 0, as of a count
    finite: bool = True  # whether no number can be infinite, as a cost far out can

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.p, self.p if self.q is None else self.q)

    def _wrong(self, part: Array) -> str:
        if np.isnan(part).any() or (self.finite and not np.isfinite(part).all()):
            return NOT_FINITE
        if (self.nonnegative and (part < 0).any()) or (
            self.q is None and (np.diagonal(part) < 0).any()
        ):
            return "sums below zero of what cannot be negative"
        return ""

    def pooled(self, parts: Sequence[Array]) -> Array:
        total: Array = np.sum(parts, axis=0)
        return total

    def add(self, to: Summands, part: Array) -> None:
        if self.finite:
            to.add(part)
            return
        usable = np.isfinite(part).all()
        to.add(part if usable else np.zeros_like(part))
        to.add([float(not usable)])

    def read(self, total: Total) -> Array:
        found = total.take(*self.shape)
        if not self.finite and total.count():
            return np.full(self.shape, np.nan)
        return found


@dataclass(frozen=True)
class AboutMeans(Shape):
    """``MeanProducts`` of q columns: (1 + q + r,)."""

    q: int
    pairs: Pairs  # with the square of every column
    # whether numbers are refused with which sums over clients would overflow; otherwise squares
    # beyond float64 are allowed, which have a message of their own
    bounded: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (1 + self.q + len(self.pairs),)

    def split(self, part: Array) -> tuple[float, Array, Array]:
        """Σ w, the means, and the products of the pairs."""
        return float(part[0]), part[1 : 1 + self.q], part[1 + self.q :]

    @property
    def _squares(self) -> Mask:
        i, j = indices(self.pairs)
        squares: Mask = i == j
        return squares

    def _wrong(self, part: Array) -> str:
        weight, means, products = self.split(part)
        if not 0 <= weight < math.inf:
            return "weights that are not positive"
        if not np.isfinite(means).all():
            return "means that are not finite"
        if (products[self._squares] < 0).any():
            return "negative sums of squares"
        sizes = (weight, *np.abs(means), *np.abs(products))
        most = (2.0**53, *[1e150] * self.q, *[1e300] * len(products))
        if self.bounded and not all(a <= b for a, b in zip(sizes, most, strict=True)):
            return "moments that no column can have"
        return ""

    @np.errstate(over="ignore", invalid="ignore")
    def pooled(self, parts: Sequence[Array]) -> Array:
        weights = np.array([part[0] for part in parts])
        weight = sum(part[0] for part in parts)
        if not weight:
            return self.zeros
        shares = weights / weight
        means = np.stack([part[1 : 1 + self.q] for part in parts])
        mean = shares @ means
        between = np.sqrt(shares * weight)[:, None] * (means - mean)
        i, j = indices(self.pairs)
        within = np.sum([part[1 + self.q :] for part in parts], axis=0)
        return np.concatenate(
            [[weight], mean, within + np.sum(between[:, i] * between[:, j], axis=0)]
        )

    def add(self, to: Summands, part: Array) -> None:
        weight, means, products = self.split(part)
        i, j = indices(self.pairs)
        scatters = np.zeros(self.q)
        scatters[i[i == j]] = products[i == j]
        to.add_about_means(weight, means, scatters, (i, j), products)

    def read(self, total: Total) -> Array:
        told = total.wide(1 + self.q + len(self.pairs))
        weight, sums, products = told[0], told[1 : 1 + self.q], told[1 + self.q :]
        if weight == 0:
            return self.zeros
        i, j = indices(self.pairs)
        found = about_means(products, sums[i], sums[j], weight)
        found[self._squares] = np.maximum(found[self._squares], 0.0)
        return np.concatenate([[rounded(weight)], quotients(sums, weight), found])


@dataclass(frozen=True)
class LogOfSum(Shape):
    """The logarithm of a sum that may be beyond float64, (1, 1); as a secure sum it is cut off."""

    largest: float = 80.0  # in secure sums it is at most this, and at least its negative

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, 1)

    @property
    def zeros(self) -> Array:
        return np.full((1, 1), -np.inf)

    def _wrong(self, part: Array) -> str:
        return "" if part < math.inf else NOT_FINITE

    def pooled(self, parts: Sequence[Array]) -> Array:
        return np.asarray(np.logaddexp.reduce(parts))

    def add(self, to: Summands, part: Array) -> None:
        to.add(np.exp(np.minimum(part, self.largest)))

    def read(self, total: Total) -> Array:
        return np.log(np.maximum(total.take(1, 1), math.exp(-self.largest)))


class AnswerLimit(NamedTuple):
    """How many different statistics of one kind a client under rules answers.

    Where a count changes is a number of one row, and who may ask often finds it.
    """

    kind: str  # what they are counted as
    most: int
    # what two have in common that count once; None for the statistic and the plan
    same: object = None
    refusal: str = ""  # what is said of one too many; empty if zeros are answered instead


class Statistic(ABC):
    """A frozen dataclass that travels, and says which sums over rows it is.

    A new one is a class, and a line of ``STATISTICS``. It states what it discloses, or it is
    none: both methods are abstract.
    """

    matrices: ClassVar[int] = 0  # how many matrices of a client's rows it discloses
    # whether it is made of the complete rows of a table, before there is a design
    of_table: ClassVar[bool] = False
    kind: ClassVar[str] = "handshake"  # of the row that a question for it has in a trace

    @classmethod
    def title(cls) -> str:
        """By what name it is admitted, counted and logged, such as ``design_moments``."""
        return re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        """What comes back, by the names of the parts.

        ``plan`` says how rows are made; None of rows in the coordinates of a fit.
        """

    @abstractmethod
    def sums(self, rows: Any) -> Mapping[str, StatisticPart]:
        """The parts, of the rows of one client."""

    def limits(self, plan: Any) -> Sequence[AnswerLimit]:
        """How many different ones a client under rules answers."""
        return ()

    def check(self, values: Values, shapes: Mapping[str, Shape]) -> str:
        """What is wrong with a client's answer: an empty text if nothing is."""
        if values.keys() != shapes.keys():
            return f"the parts {sorted(values)} where {sorted(shapes)} were asked for"
        return next(filter(None, (shape.check(values[name]) for name, shape in shapes.items())), "")


@lru_cache(maxsize=64)
def indices(pairs: Pairs) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first and the second column of each pair."""
    found = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return found[:, 0], found[:, 1]


@lru_cache(maxsize=64)
def triangle(q: int) -> Pairs:
    """Every pair of q columns, once."""
    return tuple(zip(*(each.tolist() for each in np.tril_indices(q)), strict=True))


STATISTICS: dict[str, type[Statistic]] = {}
"""Every statistic that a message may name, by the name of its class: no other is read."""
