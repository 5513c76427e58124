"""Columns of a client's source, read as all clients read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import pandas as pd

from fedsplit.data.categories import in_levels, merged_codes, readable
from fedsplit.data.tables import Source, Values
from fedsplit.data.types import Type
from fedsplit.errors import InputError


class ReadColumns(NamedTuple):
    """Columns as all clients read them.

    Attributes
    ----------
    values : dict of str to Values
        Numbers as float64, categories as categoricals of levels.
    orders : dict of str to bool
        The categories that the source stores as such, and whether their order has a meaning.
    merged : dict of str to str
        By category, a code such as 01 that was read as the number 1.
    """

    values: dict[str, Values]
    orders: dict[str, bool]
    merged: dict[str, str]


def read_columns(
    source: Source, types: Mapping[str, Type], categories: Collection[str], where: str
) -> ReadColumns:
    """Read columns as all clients do.

    Parameters
    ----------
    source : Source
    types : mapping of str to Type
        Of each column.
    categories : collection of str
        Those that have levels.
    where : str
        Whose rows they are, for messages.
    """
    # Levels are made of text: as float64, whole numbers beyond 2**53 would merge.
    values = source.take(
        {column: "text" if column in categories else kind for column, kind in types.items()}
    )
    orders = {}
    merged = {}
    for column, own in values.items():
        if column not in categories:
            continue
        if isinstance(own, pd.Categorical):
            orders[column] = bool(own.ordered)
        if code := merged_codes(own, types[column]):
            merged[column] = code
        values[column] = in_levels(where, column, own, types[column])
    return ReadColumns(values, orders, merged)


def read_leniently(
    source: Source, types: Mapping[str, Type], categories: Collection[str], where: str
) -> dict[str, Values]:
    """Read columns in which a value of another type than the column's counts as missing."""
    try:
        return read_columns(source, types, categories, where).values
    except InputError:  # also of a file that cannot be read at all, which then fails again
        return readable(source.take(dict.fromkeys(types, "text")), types, categories)
