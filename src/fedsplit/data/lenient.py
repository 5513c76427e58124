"""Columns in which a value that cannot be read as its type counts as missing."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.categories import in_levels
from fedsplit.data.sources.client_data import Source
from fedsplit.data.tables import Values
from fedsplit.data.texts import Texts
from fedsplit.data.types import Type, as_number, level_form


def take_readable(
    source: Source, types: Mapping[str, Type], coded: Collection[str]
) -> dict[str, Values]:
    """Read columns without an error that would tell of a single row.

    Parameters
    ----------
    source : Source
    types : mapping of str to Type
        Of each column.
    coded : collection of str
        Those that are categories.

    Returns
    -------
    dict of str to Values
        Numbers as float64, NaN where a value is missing, infinite or no number; categories as
        categoricals of levels.
    """
    found = source.take(dict.fromkeys(types, "text"))
    return {
        column: _levels(column, found[column], kind)
        if column in coded
        else _numbers(found[column], kind)
        for column, kind in types.items()
    }


def _numbers(values: Values, kind: Type) -> Values:
    if kind == "text":
        return values
    texts = Texts.of(values)
    known: Array = np.array([*(_number(text, kind) for text in texts.distinct), math.nan])
    return known[texts.codes]


def _number(text: str, kind: Type) -> float:
    try:
        value = as_number(text, kind)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _levels(column: str, values: Values, kind: Type) -> Values:
    texts = Texts.of(values)
    known = np.array([*(_level(text, kind) for text in texts.distinct), None], dtype=object)
    return in_levels("", column, known[texts.codes], kind)


def _level(text: str, kind: Type) -> str | None:
    try:
        return level_form(text, kind)
    except ValueError:
        return None
