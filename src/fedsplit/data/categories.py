"""Categories: columns coded with levels that all clients have agreed on."""

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
    """The values as categories with these levels; missing stays missing."""
    if is_numeric_dtype(values) and not any(isinstance(level, str) for level in levels):
        codes = pd.Index([float(level) for level in levels], dtype=np.float64).get_indexer(values)
    else:  # text at some client is text at all of them
        codes = pd.Index([as_text(level) for level in levels], dtype=object).get_indexer(
            texts(values).astype(object)
        )
    unknown = (codes < 0) & values.notna().to_numpy()
    if unknown.any():
        raise RowError(
            f"column {column}: {as_text(values[unknown].iloc[0])} is none of its levels {listed(levels)}",
            f"column {column} has {int(unknown.sum())} values that are none of the levels {listed(levels)}",
        )
    return pd.Series(
        pd.Categorical.from_codes(codes, categories=pd.Index(levels)),
        index=values.index,
        name=column,
    )


def as_text(level: Level) -> str:
    """A level as text: a whole number without decimals."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def texts(values: pd.Series) -> pd.Series:
    """Numbers as the text that they would be as levels; text as it is."""
    return values.map(as_text, na_action="ignore") if is_numeric_dtype(values) else values
