"""The rows that a formula is evaluated on, and how it calls functions of all clients' rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.formula.constants import Options, flag, number_or_flag, numbers, whole, words
from fedsplit.data.pooled.column_statistics import ColumnMoments, Histogram
from fedsplit.data.pooled.cutting import MOST_INTERVALS, Cut
from fedsplit.data.pooled.function import PooledFunction, State
from fedsplit.data.pooled.polynomials import MOST_DEGREE, GramMatrix, Poly
from fedsplit.data.pooled.scaling import Scale
from fedsplit.data.pooled.splines import MOST_KNOTS, Spline
from fedsplit.data.texts import Level, level_codes
from fedsplit.data.types import Type, as_number, days, is_date


class Schema(NamedTuple):
    """What the clients have agreed on: levels of categories, types of columns, states of calls.

    A column whose type is absent holds numbers; calls are those of functions of all clients' rows.
    """

    levels: Mapping[str, Sequence[Level]]
    types: Mapping[str, Type] = {}
    state: Mapping[str, State] = {}

    def holds_text(self, column: str) -> bool:
        """Return whether a column holds text."""
        return self.types.get(column) == "text"


class ModelFrame(NamedTuple):
    """A client's rows, (n, c): numbers as float64, categories as categoricals of levels."""

    frame: pd.DataFrame
    schema: Schema

    def values(self, column: str) -> Any:
        """Return a column, (n,): numbers as float64, text as objects."""
        if not self.schema.holds_text(column):
            return self.numbers(column)
        values = self.frame[column].array
        return np.array([*values.categories, None], dtype=object)[values.codes]

    def numbers(self, column: str) -> Array:
        """Return a column of numbers, (n,), also of one that is a category elsewhere."""
        if self.schema.holds_text(column):
            raise ValueError(
                f"column {column} holds text: use it as a term, or compare it as in {column} == 'a'"
            )
        values = self.frame[column].array
        if isinstance(values, pd.Categorical):
            kind = self.schema.types[column]
            numbers = [as_number(level, kind) for level in values.categories]
            values = np.array([*numbers, np.nan])[values.codes]
        return np.asarray(values, dtype=np.float64)

    def literal(self, column: str, text: str) -> str | float:
        """Return a text as it is compared with a column: a date beside dates is a number."""
        if self.schema.types.get(column) == "date" and is_date(text):
            return days(text)
        return text

    def codes(self, column: str) -> NDArray[np.intp]:
        """Return the number of each value's level, (n,), from 0; -1 for a missing value."""
        return level_codes(column, self.frame[column], self.schema.levels[column])


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
