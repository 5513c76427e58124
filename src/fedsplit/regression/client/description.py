"""What a server asks about the columns of a client, and what the client tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsplit.data.categories import Level
from fedsplit.data.types import Type
from fedsplit.regression.client.findings import Finding


@dataclass(frozen=True)
class ColumnRequest:
    """The columns that the server wants to have described.

    Attributes
    ----------
    types : mapping of str to Type
        What each column that the formula, weights and offsets need is read as.
    categories : frozenset of str
        Those that were declared to be categories. Their levels are wanted, and those of text.
    strict : bool
        Whether to refuse an answer that could disclose single rows.
    others : frozenset of str
        Columns that only decide which rows are complete. Nothing is told of their values.
    """

    types: Mapping[str, Type]
    categories: frozenset[str]
    strict: bool
    others: frozenset[str] = frozenset()

    @property
    def as_levels(self) -> set[str]:
        """The columns that are read as categories, whether or not their levels are wanted."""
        return self.coded | {name for name in self.others if self.types[name] == "text"}

    @property
    def coded(self) -> set[str]:
        """The columns whose levels are wanted."""
        text = {column for column, kind in self.types.items() if kind == "text"}
        return (text | (self.types.keys() & self.categories)) - self.others


@dataclass(frozen=True)
class Description:
    """What a client answers to a ``ColumnRequest``.

    Attributes
    ----------
    rows, kept : int
        How many rows there are, and how many of them are used.
    missing : mapping of str to int
        How many values each column lacks.
    levels : mapping
        The levels of each category, with the number of kept rows that have each.
    orders : mapping of str to bool
        The categories whose levels are in the order in which the client has them stored, and
        whether that order has a meaning, as that of small, medium and large.
    warnings : sequence of Finding
        What this could disclose of single rows.
    """

    rows: int
    kept: int
    missing: Mapping[str, int]
    levels: Mapping[str, Mapping[Level, int]]
    orders: Mapping[str, bool]
    warnings: Sequence[Finding]
