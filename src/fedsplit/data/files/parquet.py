"""Parquet files, with the categories that are stored in them.

DuckDB reads the values but not which columns are categories, nor the order of their levels. What
pandas notes in the file says the first; an order with a meaning is in Arrow's dictionaries, which
only pyarrow reads.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedsplit.data.categories import sort_levels
from fedsplit.data.files.opening import check_file
from fedsplit.data.files.sql import SqlTable, fetch
from fedsplit.data.reading import Reading
from fedsplit.data.tables import Column, Values, fail
from fedsplit.data.types import MISSING, ColumnProfile, Type, is_number

NOTE = "select value from parquet_kv_metadata(?) where key = 'pandas'::blob"


class ParquetTable(SqlTable):
    """A Parquet file: types come from its schema, and only the columns wanted are read."""

    path: Path

    @contextlib.contextmanager
    def _source(self) -> Iterator[str]:
        yield "(from read_parquet(?, hive_partitioning=false))"  # folders' names are not columns

    def _names(self) -> Sequence[str]:
        check_file(self.where, self.path)
        names = super()._names()
        stored = set(fetch(self.where, "select name from parquet_schema(?)", self.path)[0])
        for name in names:
            if name not in stored:  # DuckDB has renamed a second column of the same name
                fail(
                    self.where,
                    f"two columns have the same name, ignoring case, see {name!r}: rename one",
                )
        return names

    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        found = dict(super()._load(wanted))
        for name in found.keys() & self._categories.keys():
            found[name] = CategoryColumn(self, name, found[name], self._categories[name])
        return found

    @cached_property
    def _categories(self) -> dict[str, bool]:
        """The columns that are stored as categories, and whether their order has a meaning."""
        found = {}
        for note in fetch(self.where, NOTE, self.path)[0]:
            try:
                for column in json.loads(bytes(note))["columns"]:
                    if column["pandas_type"] == "categorical":
                        found[column["field_name"]] = bool(column["metadata"]["ordered"])
            except (KeyError, TypeError, ValueError, RecursionError):
                fail(self.where, "what pandas has noted in it about its columns cannot be read")
        arrow = _pyarrow()
        if arrow is not None:
            for field in self._by(arrow.read_schema):
                if hasattr(field.type, "ordered"):  # a dictionary
                    found[field.name] = bool(field.type.ordered)
        return found

    def dictionary(self, column: str) -> list[str]:
        """Return the texts of a column's dictionary, in its order; none if it has no dictionary."""
        arrow = _pyarrow()
        if arrow is None:
            fail(
                self.where,
                f"column {column!r} is an ordered category: install pyarrow to read its order",
            )
        table = self._by(arrow.read_table, columns=[column])
        chunks = table.column(column).unify_dictionaries().chunks
        if not chunks or not hasattr(chunks[0], "dictionary"):
            return []
        texts = [str(text).strip() for text in chunks[0].dictionary.to_pylist() if text is not None]
        return [text for text in dict.fromkeys(texts) if text not in MISSING]

    def _by(self, read: Any, **options: Any) -> Any:
        """Read with pyarrow, which may refuse what DuckDB takes."""
        try:
            return read(self.path, **options)
        except (OSError, ValueError, RuntimeError) as error:  # Arrow's own are among these
            fail(self.where, f"is damaged: {error}")


class CategoryColumn:
    """A column that is stored as a category.

    Parameters
    ----------
    table : ParquetTable
    name : str
    column : Column
        Its values.
    meant : bool
        Whether the order of its levels has a meaning. One without is not read, so that the first
        level does not depend on whether pyarrow is installed: levels are sorted then, as numbers if
        they are numbers.
    """

    def __init__(self, table: ParquetTable, name: str, column: Column, meant: bool) -> None:
        self._table = table
        self._name = name
        self._column = column
        self._meant = meant

    def offers(self, kind: Type) -> bool:
        return self._column.offers(kind)

    def profile(self, reading: Reading) -> ColumnProfile | None:
        profile = self._column.profile(reading)
        return None if profile is None else profile._replace(category=True)

    def values(self, where: str, name: str, kind: Type, reading: Reading) -> Values:
        values = self._column.values(where, name, kind, reading)
        if kind != "text":
            return values
        present = list(dict.fromkeys(value for value in values if value is not None))
        numbers = all(is_number(text) for text in present)
        order = sort_levels(present, "number" if numbers else "text")
        if self._meant:
            order = self._table.dictionary(self._name) or order
        categories = pd.Index(order, dtype=object)
        return pd.Categorical(values, categories=categories, ordered=self._meant)


def _pyarrow() -> Any:
    """Return pyarrow's reader of Parquet files, None if it is not installed."""
    try:
        from pyarrow import parquet
    except ImportError:
        return None
    return parquet
