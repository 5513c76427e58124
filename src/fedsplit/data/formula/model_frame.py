"""The rows that a formula is evaluated on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.pooled.function import State
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
