"""The rows that a formula is evaluated on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from fedsplit.arrays import Array
from fedsplit.data.categories import Level, level_codes
from fedsplit.data.pooled.function import State
from fedsplit.data.texts import as_text, distinct
from fedsplit.data.types import Type, as_number, days, is_date, is_number


class Schema(NamedTuple):
    """What the clients have agreed on.

    Attributes
    ----------
    levels : mapping of str to sequence
        The levels of each category.
    types : mapping of str to Type
        Of each column. One that is absent holds text if one of its levels is no number.
    state : mapping of str to State
        Of each call of a function of all clients' rows.
    """

    levels: Mapping[str, Sequence[Level]]
    types: Mapping[str, Type] = {}
    state: Mapping[str, State] = {}

    def holds_text(self, column: str) -> bool:
        """Return whether a column holds text, at any client."""
        if column in self.types:
            return self.types[column] == "text"
        return not all(is_number(level) for level in self.levels.get(column, ()))

    def level_texts(self, column: str) -> Sequence[str]:
        """Return the levels of a column."""
        if column not in self.levels:
            raise ValueError(f"column {column} is a category without levels")
        return self.levels[column]


class ModelFrame(NamedTuple):
    """A client's rows.

    Attributes
    ----------
    frame : (n, c) DataFrame
        The columns of the formula: numbers as float64, categories as categoricals of levels.
    schema : Schema
    """

    frame: pd.DataFrame
    schema: Schema

    def holds_text(self, column: str) -> bool:
        """Return whether the column holds text, here or at any client."""
        if column not in self.frame:
            raise ValueError(f"there is no column {column}")
        if self.schema.holds_text(column):
            return True
        return column not in self.schema.types and not is_numeric_dtype(self.frame[column])

    def values(self, column: str) -> Any:
        """Return a column, (n,): numbers as float64, text as objects."""
        if not self.holds_text(column):
            return self.numbers(column)
        codes, values = distinct(self.frame[column])
        return np.array([*[as_text(value) for value in values], None], dtype=object)[codes]

    def numbers(self, column: str) -> Array:
        """Return a column of numbers, (n,), also of one that is a category elsewhere."""
        if self.holds_text(column):
            raise ValueError(
                f"column {column} holds text: use it as a term, or compare it as in {column} == 'a'"
            )
        series = self.frame[column]
        if isinstance(series.dtype, pd.CategoricalDtype):
            kind = self.schema.types[column]
            numbers = [as_number(level, kind) for level in series.cat.categories]
            found: Array = np.array([*numbers, np.nan])[series.cat.codes]
            return found
        values: Array = series.to_numpy(dtype=np.float64)
        return values

    def literal(self, column: str, text: str) -> str | float:
        """Return a text as it is compared with a column: a date beside dates is a number."""
        if self.schema.types.get(column) == "date" and is_date(text):
            return days(text)
        return text

    def codes(self, column: str) -> NDArray[np.intp]:
        """Return the number of each value's level, (n,), from 0; -1 for a missing value."""
        if column not in self.frame:
            raise ValueError(f"there is no column {column}")
        return level_codes(column, self.frame[column], self.schema.levels[column])
