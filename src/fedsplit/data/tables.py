"""The interface that every table of a client's data implements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
import pandas as pd

from fedsplit.errors import InputError

LONGEST_REASON = 250
"""Characters of an error message after which it is cut: DuckDB's can be pages long."""


class Table(Protocol):
    """Named columns, each of one kind: ``number``, ``boolean``, ``text``, ``date`` or ``other``.

    A column of the kind ``other`` is listed but cannot be read.

    Attributes
    ----------
    where : str
        What error messages call the table, usually its path.
    """

    where: str

    def kinds(self) -> dict[str, str]:
        """Return the kind of each column, in the table's order."""
        ...

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        """Read some columns.

        Parameters
        ----------
        wanted : mapping of str to str
            The kind that each column is read as: its own, or ``text``.

        Returns
        -------
        (n, len(wanted)) DataFrame
            Numbers and booleans are float64 with NaN for a missing value; text and dates are
            objects, ``str`` with None for a missing value.
        """
        ...


def fail(where: str, reason: object) -> NoReturn:
    """Raise InputError with a message of one line."""
    line = " ".join(str(reason).split())
    if len(line) > LONGEST_REASON:
        line = line[: LONGEST_REASON - 1] + "…"
    raise InputError(f"{' '.join(where.split())}: {line}") from None


def check_names(where: str, names: Sequence[str]) -> None:
    """Raise InputError unless there are columns, each with a name of its own."""
    if not names:
        fail(where, "it has no columns")
    if "" in names:
        fail(where, f"column {names.index('') + 1} of {len(names)} has no name: name it")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        fail(where, f"{count} columns are named {name!r}: rename all but one")


def to_frame(names: Sequence[str], columns: Sequence[np.ndarray[Any, Any]]) -> pd.DataFrame:
    """Return the columns, each an (n,) array, as a frame without copying them.

    The dtype is passed on because pandas would otherwise convert objects to its own strings.
    """
    series = [pd.Series(column, dtype=column.dtype, copy=False) for column in columns]
    return pd.DataFrame(dict(zip(names, series, strict=True)), copy=False)
