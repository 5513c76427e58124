"""The interface that every table of a client's data implements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import pandas as pd

from fedsplit.arrays import Mask
from fedsplit.data.types import Fit, Type
from fedsplit.errors import InputError

LONGEST_REASON = 250
"""Characters of an error message after which it is cut: DuckDB's can be pages long."""


Values: TypeAlias = Any
"""A column, an (n,) array or a categorical of pandas."""

DTYPES: Mapping[Type, type] = {
    "number": np.float64,
    "boolean": np.float64,
    "date": np.float64,
    "text": np.object_,
}
"""What the values of each type are in a frame."""


class Table(Protocol):
    """Named columns of a client.

    Attributes
    ----------
    where : str
        What error messages call the table, usually its path.
    """

    where: str

    def fits(self) -> dict[str, Fit | None]:
        """Return what each column can be read as, in the table's order.

        None is for a column that cannot be read at all, such as one of lists.
        """
        ...

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        """Read some columns, none of them one that cannot be read.

        Parameters
        ----------
        wanted : mapping of str to Type
            What each column is read as. A boolean can be read as the number 0 or 1, and everything
            as text: in the form of a level where the table has types, else as it is written.

        Returns
        -------
        dict of str to Values
            Numbers, booleans (0 and 1) and dates (days since 1970-01-01 UTC) are float64, NaN where
            missing. Text is objects, trimmed ``str`` and None where missing, or a categorical of
            such texts where the table has an order of them.

        Raises
        ------
        RowError
            If a value cannot be read as what is wanted.
        """
        ...

    def notes(self) -> Sequence[str]:
        """Return what a user should know of how the table is read."""
        ...


def fail(where: str, reason: object) -> NoReturn:
    """Raise InputError with a message of one line."""
    raise InputError(one_line(where, reason)) from None


def one_line(where: str, reason: object) -> str:
    """Return a message of one line."""
    line = " ".join(str(reason).split())
    if len(line) > LONGEST_REASON:
        line = line[: LONGEST_REASON - 1] + "…"
    return f"{' '.join(where.split())}: {line}"


def check_names(where: str, names: Sequence[str]) -> None:
    """Raise InputError unless there are columns, each with a name of its own."""
    if not names:
        fail(where, "it has no columns")
    if "" in names:
        fail(where, f"column {names.index('') + 1} of {len(names)} has no name: name it")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        fail(where, f"{count} columns are named {name!r}: rename all but one")


def is_missing(values: Values) -> Mask:
    """Return which values of a column, (n,), are missing: of numbers, or of a categorical."""
    missing: Mask
    if isinstance(values, pd.Categorical):
        missing = values.codes < 0
        return missing
    missing = np.isnan(values)
    return missing


def to_frame(columns: Mapping[str, Values]) -> pd.DataFrame:
    """Return columns as a frame without copying them."""
    # Made once, not for every column.
    index = pd.RangeIndex(max(map(len, columns.values()), default=0))
    found: dict[int, Any] = dict(enumerate(columns.values()))
    for place, values in found.items():
        if values.dtype == object:  # which pandas would convert to its own strings
            found[place] = pd.Series(values, index, dtype=object, copy=False)
    frame = pd.DataFrame(found, index, copy=False)
    frame.columns = _names(tuple(columns))
    return frame


@lru_cache(maxsize=256)
def _names(names: tuple[str, ...]) -> pd.Index:
    """Return the names of columns, which small clients mostly share, for pandas."""
    return pd.Index(names, dtype=object)
