"""One client's data."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedsplit.data.tables import Table, fail


class Source(Protocol):
    """One client's data."""

    @property
    def name(self) -> str:
        """The client's name: of a file without its suffix, of a group, or as the user gave it."""
        ...

    def columns(self) -> dict[str, str]:
        """Return the kind of each column: number, boolean, text, date or other."""
        ...

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """Read these columns, in this order.

        Returns
        -------
        (n, len(columns)) DataFrame
            Numbers and booleans (0 and 1) as float64, NaN for a missing value; text and dates as
            ``str``, None for a missing value. Infinite numbers raise InputError.
        """
        ...


@dataclass
class TableSource:
    """A table that is one client."""

    name: str
    table: Table

    def columns(self) -> dict[str, str]:
        return dict(self._kinds)

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        wanted = {column: self.kind(column) for column in columns}
        frame = self.table.take(wanted)
        for column, kind in wanted.items():
            infinite = kind == "number" and np.isinf(frame[column].to_numpy())
            if np.any(infinite):
                place = f"column {column!r}, row {np.argmax(infinite) + 1}"
                fail(self.table.where, f"{place}: the number is infinite, correct it")
        return frame

    def kind(self, column: str) -> str:
        """Return the kind of a column; raise InputError if it is absent or cannot be read."""
        if column not in self._kinds:
            hint = ","
            for similar in difflib.get_close_matches(column, self._kinds, n=1):
                hint = f", did you mean {similar!r}?"
            fail(
                self.table.where,
                f"there is no column {column!r}{hint} there are {', '.join(self._kinds)}",
            )
        kind = self._kinds[column]
        if kind == "other":
            fail(
                self.table.where,
                f"column {column!r} is nested, mixed, or of a type that is neither number, "
                "text nor date: convert it",
            )
        return kind

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return self.table.kinds()


@dataclass
class SharedTable:
    """A table whose rows belong to several clients.

    The columns read last are kept, because the clients are asked for the same ones in turn.

    Parameters
    ----------
    source : TableSource
    length : int
        Its number of rows when it was split.
    """

    source: TableSource
    length: int
    kept: pd.DataFrame | None = None

    def read(self, columns: Sequence[str], rows: np.ndarray[Any, Any]) -> pd.DataFrame:
        """Read some rows of some columns."""
        if self.kept is None or list(self.kept) != list(columns):
            frame = self.source.read(columns)
            if len(frame) != self.length:
                fail(
                    self.source.table.where,
                    "the file has changed since it was first read: start again",
                )
            self.kept = frame
        # A copy: the caller may change what it gets.
        return self.kept.iloc[rows].reset_index(drop=True)


@dataclass
class GroupSource:
    """The rows of a shared table that have one value in its group column.

    Parameters
    ----------
    name : str
        The value.
    shared : SharedTable
    rows : (n,) array of int
        Positions in the shared table.
    """

    name: str
    shared: SharedTable = field(repr=False)
    rows: np.ndarray[Any, Any] = field(repr=False)

    def columns(self) -> dict[str, str]:
        return self.shared.source.columns()

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        return self.shared.read(columns, self.rows)
