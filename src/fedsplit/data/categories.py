"""Categorical columns, whose levels all clients have agreed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedsplit.errors import RowError, listed

Level: TypeAlias = str | bool | int | float
"""A value of a category."""


def categorical(column: str, values: pd.Series, levels: Sequence[Level]) -> pd.Series:
    """Return a column as a category.

    Parameters
    ----------
    column : str
        Its name.
    values : (n,) Series
        A missing value stays missing.
    levels : sequence
        Every value that the column has at any client.

    Returns
    -------
    (n,) Series of a categorical dtype
        With the index of ``values``.
    """
    # A column that holds text at one client holds text at all of them.
    if is_numeric_dtype(values) and not any_text(levels):
        known = pd.Index([float(level) for level in levels], dtype=np.float64)
        codes = known.get_indexer(values)
    else:
        known = pd.Index([as_text(level) for level in levels], dtype=object)
        codes = known.get_indexer(as_texts(values).astype(object))
    unknown = (codes < 0) & values.notna().to_numpy()
    if unknown.any():
        value = as_text(values[unknown].iloc[0])
        count = int(unknown.sum())
        raise RowError(
            f"column {column}: {value} is none of its levels {listed(levels)}",
            f"column {column} has {count} values that are none of the levels {listed(levels)}",
        )
    coded = pd.Categorical.from_codes(codes, categories=pd.Index(levels))
    return pd.Series(coded, index=values.index, name=column)


def any_text(levels: Sequence[Level]) -> bool:
    """Return whether some level is text."""
    return any(isinstance(level, str) for level in levels)


def as_text(level: Level) -> str:
    """Return a level as text, a whole number without decimals."""
    if isinstance(level, float) and level.is_integer():
        return str(int(level))
    return str(level)


def as_texts(values: pd.Series) -> pd.Series:
    """Return numbers as the text that they are as levels, and text unchanged."""
    if is_numeric_dtype(values):
        return values.map(as_text, na_action="ignore")
    return values
