"""Categorical columns, whose levels all clients have agreed on."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.texts import as_text, distinct, unreadable
from fedsplit.data.types import Type, level_form
from fedsplit.errors import RowError, listed

Level: TypeAlias = str
"""A value of a category: a trimmed text, of a number, date or boolean its only form."""


def in_levels(where: str, column: str, values: pd.Series, kind: Type) -> pd.Series:
    """Return a column with the form of a level in place of each text.

    Parameters
    ----------
    where, column : str
        For messages.
    values : (n,) Series
        Texts, or a categorical of texts; a missing value stays missing.
    kind : Type
        Of the column.

    Returns
    -------
    (n,) Series of a categorical dtype
        Its categories are the levels that it has, in the order of ``values`` if it is categorical.
    """
    codes, texts = distinct(values)
    forms: list[Level | None] = [None] * len(texts)
    for code in np.unique(codes[codes >= 0]):
        try:
            forms[code] = level_form(texts[code], kind)
        except ValueError:
            raise unreadable(where, column, kind, texts[code], codes == code) from None
    levels = pd.Index(dict.fromkeys(form for form in forms if form is not None), dtype=object)
    positions = np.append(levels.get_indexer(pd.Index(forms, dtype=object)), -1)
    coded = pd.Categorical.from_codes(positions[codes], levels)
    return pd.Series(coded, index=values.index, name=column)


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
