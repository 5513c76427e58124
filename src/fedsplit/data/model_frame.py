"""The rows that a formula is evaluated on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedsplit.arrays import Array
from fedsplit.data.categories import Level, any_text, as_texts, categorical


class ModelFrame(NamedTuple):
    """A client's rows with the levels of its categories.

    Attributes
    ----------
    frame : (n, c) DataFrame
        The columns of the formula.
    levels : mapping of str to sequence
        The levels of each category, agreed among all clients.
    """

    frame: pd.DataFrame
    levels: Mapping[str, Sequence[Level]]

    def holds_text(self, column: str) -> bool:
        """Return whether the column holds text at any client, which shows in its levels."""
        if column not in self.frame:
            raise ValueError(f"there is no column {column}")
        return not is_numeric_dtype(self.frame[column]) or any_text(self.levels.get(column, ()))

    def values(self, column: str) -> Any:
        """Return a column, (n,): numbers as float64, text as objects."""
        if not self.holds_text(column):
            return self.frame[column].to_numpy(dtype=np.float64)
        return as_texts(self.frame[column]).to_numpy(dtype=object)

    def numbers(self, column: str) -> Array:
        """Return a column of numbers, (n,)."""
        if self.holds_text(column):
            raise ValueError(
                f"column {column} holds text: use it as a term, or compare it as in {column} == 'a'"
            )
        values: Array = self.values(column)
        return values

    def category(self, column: str) -> pd.Series:
        """Return a column as a category, (n,), with the index of a new frame."""
        if column not in self.levels:
            raise ValueError(f"column {column} is a category without levels")
        for level in self.levels[column]:
            # Formulaic drops columns of such names, or confuses them with those of products.
            if str(level).startswith("__") or "]:" in str(level):
                raise ValueError(
                    f"column {column}: rename {level}: "
                    "formulaic gives such a level no column of its own"
                )
        return categorical(column, self.frame[column], self.levels[column]).reset_index(drop=True)
