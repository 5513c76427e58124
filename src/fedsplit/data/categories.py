"""Categorical columns, whose levels all clients have agreed on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.reading import LEADING_ZERO
from fedsplit.data.tables import Values
from fedsplit.data.texts import Texts, unreadable
from fedsplit.data.types import Type, as_number, level_form
from fedsplit.errors import RowError, listed

Level: TypeAlias = str
"""A value of a category: a trimmed text, of a number, date or boolean its only form."""


def in_levels(where: str, column: str, values: Values, kind: Type) -> pd.Categorical:
    """Return a column of texts, (n,), as the levels that each is, in a categorical.

    The values are texts, None where missing, or a categorical of texts, whose order the levels
    have. ``where`` and ``column`` are for messages.
    """
    texts = Texts.of(values)
    places: dict[Level, int] = {}
    positions = np.full(len(texts.distinct) + 1, -1)
    for code, (text, count) in enumerate(texts.counts()):
        if count:
            try:
                form = level_form(text, kind)
            except ValueError:
                row = int(np.argmax(texts.codes == code)) + 1
                raise unreadable(where, column, kind, text, row) from None
            positions[code] = places.setdefault(form, len(places))
    coded = positions[texts.codes]
    return pd.Categorical.from_codes(coded, dtype=_dtype(tuple(places)), validate=False)


def readable(
    columns: Mapping[str, Values], types: Mapping[str, Type], coded: Collection[str]
) -> dict[str, Values]:
    """Read columns of text, without an error that would tell of a single row.

    Parameters
    ----------
    columns : mapping of str to Values
        As those of ``in_levels``.
    types : mapping of str to Type
        What each column is read as.
    coded : collection of str
        Those that are categories.

    Returns
    -------
    dict of str to Values
        Numbers as float64, NaN where a value is missing, infinite or no number; categories as
        categoricals of levels, in which a value that is not of the type is missing.
    """
    read: dict[str, Values] = {}
    for column, kind in types.items():
        values = columns[column]
        if column in coded:
            levels = _valid(values, partial(level_form, kind=kind), None)
            read[column] = in_levels("", column, levels, kind)
        elif kind == "text":
            read[column] = values
        else:
            numbers = _valid(values, partial(as_number, kind=kind), math.nan)
            read[column] = np.where(np.isinf(numbers), math.nan, numbers)
    return read


def _valid(values: Values, read: Callable[[str], Any], missing: float | None) -> Values:
    """Return a column of texts as ``read`` has each, (n,); ``missing`` where that fails."""
    texts = Texts.of(values)
    known = []
    for text in texts.distinct:
        try:
            known.append(read(text))
        except ValueError:
            known.append(missing)
    dtype = object if missing is None else np.float64
    return np.array([*known, missing], dtype=dtype)[texts.codes]


@lru_cache(maxsize=256)
def _dtype(levels: tuple[Level, ...]) -> pd.CategoricalDtype:
    """Return the type of a column of these levels, which small clients mostly share."""
    return pd.CategoricalDtype(pd.Index(levels, dtype=object))


def merged_codes(values: Values, kind: Type) -> str:
    """Return the first code such as 01 that loses its zeros, as it is read as a number, or ``""``.

    The values are as those of ``in_levels``.
    """
    if kind != "number":
        return ""
    return min(filter(LEADING_ZERO.match, Texts.of(values).distinct), default="")


def counted_levels(values: pd.Categorical) -> dict[Level, int]:
    """Return how many rows of a categorical column, (n,), have each of its levels, if any has."""
    return {level: count for level, count in Texts.of(values).counts() if count}


def level_codes(column: str, values: pd.Series, levels: Sequence[Level]) -> NDArray[np.intp]:
    """Return the place of each level of a categorical column, (n,), among those of all clients.

    A missing value is at -1; a value that is none of the levels raises RowError.
    """
    texts = Texts.of(values.array)
    # A dictionary, not an index of pandas: small clients have few values, and are many.
    places = {level: place for place, level in enumerate(levels)}
    positions = [*(places.get(text, -1) for text in texts.distinct), -1]
    coded: NDArray[np.intp] = np.array(positions, dtype=np.intp)[texts.codes]
    unknown = (coded < 0) & (texts.codes >= 0)
    if unknown.any():
        value = texts.distinct[texts.codes[np.argmax(unknown)]]
        count = int(unknown.sum())
        raise RowError(
            f"column {column}: {value} is none of its levels {listed(levels)}",
            f"column {column} has {count} values that are none of the levels {listed(levels)}",
        )
    return coded


def sort_levels(levels: Sequence[Level], kind: Type) -> list[Level]:
    """Return levels in the order of numbers, if they are numbers, or else of text."""
    return sorted(levels, key=Decimal) if kind == "number" else sorted(levels)
