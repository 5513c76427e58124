"""One client's data."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedsplit.data.tables import Table, Values, fail, to_frame
from fedsplit.data.types import Fit, Type


class Source(Protocol):
    """One client's data."""

    @property
    def name(self) -> str:
        """The client's name: of a file without its suffix, of a group, or as the user gave it."""
        ...

    def columns(self) -> dict[str, Fit | None]:
        """Return what each column can be read as, as in ``Table.fits``."""
        ...

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        """Read these columns, as in ``Table.take``.

        Infinite numbers raise InputError.
        """
        ...

    def read(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        """Read these columns as a frame, in this order."""
        ...

    def notes(self) -> Sequence[str]:
        """Return what a user should know of how the data are read."""
        ...


@dataclass
class TableSource:
    """A table that is one client."""

    name: str
    table: Table

    def columns(self) -> dict[str, Fit | None]:
        return dict(self._fits)

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        if self._fits:  # an empty file has no columns, and no rows of any
            for column in wanted:
                self.check_column(column)
        found = self.table.take(wanted)
        for column, kind in wanted.items():
            infinite = kind != "text" and np.isinf(found[column])
            if np.any(infinite):
                place = f"column {column!r}, row {np.argmax(infinite) + 1}"
                fail(self.table.where, f"{place}: the number is infinite, correct it")
        return found

    def read(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        return to_frame(self.take(wanted))

    def notes(self) -> Sequence[str]:
        return self.table.notes()

    def check_column(self, column: str) -> Fit:
        """Return what a column can be read as; raise InputError if it is absent or cannot be."""
        if column not in self._fits:
            hint = ","
            for similar in difflib.get_close_matches(column, self._fits, n=1):
                hint = f", did you mean {similar!r}?"
            fail(
                self.table.where,
                f"there is no column {column!r}{hint} there are {', '.join(self._fits)}",
            )
        fit = self._fits[column]
        if fit is None:
            fail(
                self.table.where,
                f"column {column!r} is nested, or of a type that is neither number, boolean, "
                "text nor date: convert it",
            )
        return fit

    @cached_property
    def _fits(self) -> dict[str, Fit | None]:
        return self.table.fits()


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
    kept: Mapping[str, Values] | None = None
    wanted: Mapping[str, Type] = field(default_factory=dict)

    def take(self, wanted: Mapping[str, Type], rows: np.ndarray[Any, Any]) -> dict[str, Values]:
        """Read some rows of some columns."""
        if self.kept is None or self.wanted != wanted:
            found = self.source.take(wanted)
            if any(len(values) != self.length for values in found.values()):
                fail(
                    self.source.table.where,
                    "the file has changed since it was first read: start again",
                )
            self.kept = found
            self.wanted = dict(wanted)
        # Copies: the caller may change what it gets.
        return {column: self.kept[column][rows] for column in wanted}


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

    def columns(self) -> dict[str, Fit | None]:
        return self.shared.source.columns()

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        return self.shared.take(wanted, self.rows)

    def read(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        return to_frame(self.take(wanted))

    def notes(self) -> Sequence[str]:
        return self.shared.source.notes()
