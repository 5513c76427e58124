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
from fedsplit.data.texts import Texts, as_text, distinct, unreadable
from fedsplit.data.types import Type, as_number, level_form
from fedsplit.errors import RowError, listed

Level: TypeAlias = str
"""A value of a category: a trimmed text, of a number, date or boolean its only form."""


def in_levels(where: str, column: str, values: Values, kind: Type) -> pd.Categorical:
    """Return a column with the form of a level in place of each text.

    Parameters
    ----------
    where, column : str
        For messages.
    values : Values
        Texts, None where missing, or a categorical of texts.
    kind : Type
        Of the column.

    Returns
    -------
    (n,) Categorical
        Its categories are the levels that it has, in the order of ``values`` if it is categorical.
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
    found: dict[str, Values] = {}
    for column, kind in types.items():
        values = columns[column]
        if column in coded:
            levels = _valid(values, partial(level_form, kind=kind), None)
            found[column] = in_levels("", column, levels, kind)
        elif kind == "text":
            found[column] = values
        else:
            numbers = _valid(values, partial(as_number, kind=kind), math.nan)
            found[column] = np.where(np.isinf(numbers), math.nan, numbers)
    return found


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
    """Return a code such as 01 that loses its zeros as a level, because it is read as a number.

    Parameters
    ----------
    values : Values
        As those of ``in_levels``.
    kind : Type
        Of the column.

    Returns
    -------
    str
        The first such code in the order of text, empty if there is none.
    """
    if kind != "number":
        return ""
    return min(filter(LEADING_ZERO.match, Texts.of(values).distinct), default="")


def counted_levels(values: pd.Categorical) -> dict[Level, int]:
    """Return how many rows of a categorical column, (n,), have each of its levels, if any has."""
    counts = np.bincount(values.codes + 1, minlength=len(values.categories) + 1)[1:]
    pairs = zip(values.categories, counts.tolist(), strict=True)
    return {level: count for level, count in pairs if count}


def level_codes(column: str, values: pd.Series, levels: Sequence[Level]) -> NDArray[np.intp]:
    """Return the number of each value's level, from 0; -1 for a missing value.

    Parameters
    ----------
    column : str
        Its name.
    values : (n,) Series
    levels : sequence
        Every value that the column has at any client.

    Returns
    -------
    (n,) array
    """
    codes, found = distinct(values)
    texts = [as_text(value) for value in found]
    # A dictionary, not an index of pandas: small clients have few values, and are many.
    places = {level: place for place, level in enumerate(levels)}
    positions = np.array([*[places.get(text, -1) for text in texts], -1], dtype=np.intp)
    coded: NDArray[np.intp] = positions[codes]
    unknown = (coded < 0) & (codes >= 0)
    if unknown.any():
        value = texts[codes[np.argmax(unknown)]]
        count = int(unknown.sum())
        raise RowError(
            f"column {column}: {value} is none of its levels {listed(levels)}",
            f"column {column} has {count} values that are none of the levels {listed(levels)}",
        )
    return coded


def sort_levels(levels: Sequence[Level], kind: Type) -> list[Level]:
    """Return levels in the order of numbers, if they are numbers, or else of text."""
    if kind == "number":
        return sorted(levels, key=Decimal)
    return sorted(levels)
