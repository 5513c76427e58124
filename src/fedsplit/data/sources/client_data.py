"""One client's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from fedsplit.data.tables import Table, Values, fail, to_frame
from fedsplit.data.types import ColumnProfile, Type


@dataclass
class SharedTable:
    """A table whose rows belong to several clients.

    The columns read last stay in memory, because all clients read the same ones in turn.

    Parameters
    ----------
    table : Table
    length : int
        Its number of rows when it was split.
    notes : sequence of str
        What a user should know of how it was split.
    """

    table: Table
    length: int
    notes: Sequence[str] = ()
    kept: Mapping[str, Values] | None = None
    wanted: Mapping[str, Type] = field(default_factory=dict)

    def take(self, wanted: Mapping[str, Type], rows: np.ndarray[Any, Any]) -> dict[str, Values]:
        """Read some rows of some columns."""
        if self.kept is None or self.wanted != wanted:
            found = self.table.take(wanted)
            if any(len(values) != self.length for values in found.values()):
                fail(
                    self.table.where,
                    "the file has changed since it was first read: start again",
                )
            self.kept = found
            self.wanted = dict(wanted)
        # Copies: the caller may change what it gets.
        return {column: self.kept[column][rows] for column in wanted}


@dataclass
class GroupSource:
    """The rows of a shared table that have one value in its group column; reads as a ``Table``.

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

    def names(self) -> list[str]:
        return self.shared.table.names()

    def columns(self, names: Iterable[str] | None = None) -> dict[str, ColumnProfile | None]:
        return self.shared.table.columns(names)

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        return self.shared.take(wanted, self.rows)

    def read(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        return to_frame(self.take(wanted))

    def notes(self) -> Sequence[str]:
        return [*self.shared.table.notes(), *self.shared.notes]


Source: TypeAlias = Table | GroupSource
"""One client's data: a table, or the rows of a table that belong to the client."""
