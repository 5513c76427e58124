"""Functions that depend on the rows of all clients, as a formula calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask
from fedsplit.data.formula.constants import Options, flag, number_or_flag, numbers, whole, words
from fedsplit.data.formula.model_frame import ModelFrame, Schema
from fedsplit.data.pooled.column_statistics import ColumnMoments, Histogram
from fedsplit.data.pooled.cutting import MOST_INTERVALS, Cut
from fedsplit.data.pooled.function import PooledFunction
from fedsplit.data.pooled.polynomials import MOST_DEGREE, GramMatrix, Poly
from fedsplit.data.pooled.scaling import Scale
from fedsplit.data.pooled.splines import MOST_KNOTS, Spline
from fedsplit.data.texts import Level, level_counts

ColumnStatistic: TypeAlias = ColumnMoments | GramMatrix | Histogram
"""What clients are asked for by these functions."""


class PooledSignature(NamedTuple):
    """The names of a function's arguments after the first, and what makes the function of them.

    Arguments that it does not take raise ValueError.
    """

    parameters: tuple[str, ...]
    read: Callable[[Options], PooledFunction]


def read_poly(given: Options) -> Poly:
    """Read ``poly(x, degree, raw)``."""
    return Poly(whole(given, "degree", 1, 1, MOST_DEGREE), flag(given, "raw", False))


def read_scale(given: Options) -> Scale:
    """Read ``scale(x, center, scale)``: TRUE is to be agreed, FALSE leaves the column as it is."""
    centre, scale = number_or_flag(given, "center"), number_or_flag(given, "scale")
    return Scale(
        None if centre is True else float(centre),
        None if scale is True else 1.0 if scale is False else scale,
    )


def read_spline(given: Options, natural: bool) -> Spline:
    """Read ``bs(x, df, knots, degree, intercept, Boundary.knots)``, or ``ns`` without a degree."""
    degree = whole(given, "degree", 3, 1, 10)
    intercept = flag(given, "intercept", False)
    knots, boundary = numbers(given, "knots"), numbers(given, "Boundary.knots")
    inner = len(knots or ())
    if knots is None and given.get("df") is not None:
        narrowest = (1 if natural else degree) + intercept
        inner = whole(given, "df", 0, 1, MOST_KNOTS) - narrowest
    if inner == 0:
        knots = ()
    return Spline(natural, inner, knots, boundary, degree, intercept)


def read_cut(given: Options) -> Cut:
    """Read ``cut(x, breaks, labels, include.lowest, right, dig.lab)``."""
    breaks = numbers(given, "breaks", infinite=True)
    if breaks is None:
        raise ValueError("it needs breaks, as in cut(x, c(0, 10, 20)), or how many intervals")
    count = len(breaks) - 1
    if count == 0:  # a number in the place of breaks
        count = whole({"breaks": breaks[0]}, "breaks", 0, 2, MOST_INTERVALS)
        breaks = None
    return Cut(
        count,
        breaks,
        words(given, "labels"),
        right=flag(given, "right", True),
        include_lowest=flag(given, "include.lowest", False),
        digits=whole(given, "dig.lab", 3, 1, 15),
    )


POOLED: dict[str, PooledSignature] = {
    "poly": PooledSignature(("degree", "raw"), read_poly),
    "scale": PooledSignature(("center", "scale"), read_scale),
    "center": PooledSignature((), lambda given: Scale(None, 1.0)),
    "bs": PooledSignature(
        ("df", "knots", "degree", "intercept", "Boundary.knots"),
        partial(read_spline, natural=False),
    ),
    "ns": PooledSignature(
        ("df", "knots", "intercept", "Boundary.knots"), partial(read_spline, natural=True)
    ),
    "cut": PooledSignature(("breaks", "labels", "include.lowest", "right", "dig.lab"), read_cut),
}
"""By the names that a formula calls them by."""


@dataclass(frozen=True)
class PooledCall:
    """A call of a function that depends on the rows of all clients, by its text in a formula.

    ``argument`` returns the values of the first argument, (n,), for some rows, and ``columns`` are
    those in it; the function has the other arguments.
    """

    text: str
    function: PooledFunction
    argument: Callable[[ModelFrame], Array] = field(repr=False, compare=False)
    columns: tuple[str, ...] = ()

    def labels(self, schema: Schema) -> list[str]:
        """Return the endings of the names of its columns, or the levels of a category."""
        return self.function.labels(schema.state.get(self.text, {}))

    def values(self, rows: ModelFrame) -> NDArray[Any]:
        """Return the columns, (n, k), or the numbers of the levels of a category, (n,)."""
        return self.function.values(self.argument(rows), rows.schema.state.get(self.text, {}))

    def single(self, rows: ModelFrame) -> Array:
        """Return the only column, (n,), for an expression."""
        columns = self.values(rows)
        if columns.shape[1] != 1:
            raise ValueError(f"{self.text} has several columns: make it a term of its own")
        return columns[:, 0]


def counted(calls: Iterable[PooledCall], rows: ModelFrame) -> dict[str, dict[Level, int]]:
    """Return how many rows have each level that a function makes, by the text of its call."""
    return {
        call.text: level_counts(call.labels(rows.schema), call.values(rows))
        for call in calls
        if call.function.is_category
    }


def extrapolated(calls: Iterable[PooledCall], rows: ModelFrame) -> list[str]:
    """Return the calls of splines that some row lies beyond the boundary knots of."""
    return [call.text for call in calls if call.function.extrapolates(call.argument(rows))]


def outside(calls: Iterable[PooledCall], rows: ModelFrame) -> Mask:
    """Return which rows, (n,), have a value that no level is for, as those beyond all breaks.

    A function whose state is still to be agreed leaves no row out.
    """
    lacking = np.zeros(len(rows.frame), dtype=np.bool_)
    for call in calls:
        known = call.text in rows.schema.state or call.function.agreement() is None
        if call.function.is_category and known:
            lacking |= call.values(rows) < 0
    return lacking
