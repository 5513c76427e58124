"""A Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedsplit.data.files.opening import check_file
from fedsplit.data.files.parquet_categories import stored_categories, with_order
from fedsplit.data.files.sql import column_fits, fetch, take_columns
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import Values, fail
from fedsplit.data.types import Fit, Type

SOURCE = "(from read_parquet(?, hive_partitioning=false))"  # folders' names are not columns


@dataclass
class ParquetTable:
    """A Parquet file: types come from its schema, and only the columns wanted are read."""

    where: str
    path: Path
    reading: Reading = PLAIN

    def fits(self) -> dict[str, Fit | None]:
        check_file(self.where, self.path)
        fits = column_fits(self.where, SOURCE, self.reading, self.path)
        stored = set(fetch(self.where, "select name from parquet_schema(?)", self.path)[0])
        for name in fits:
            if name not in stored:  # DuckDB has renamed a second column of the same name
                fail(
                    self.where,
                    f"two columns have the same name, ignoring case, see {name!r}: rename one",
                )
        for name in fits.keys() & self._categories.keys():
            if (fit := fits[name]) is not None:
                fits[name] = fit._replace(category=True)
        return fits

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        found = take_columns(self.where, SOURCE, wanted, self.reading, self.path)
        for name, kind in wanted.items():
            if kind == "text" and name in self._categories:
                meant = self._categories[name]
                found[name] = with_order(self.where, self.path, name, found[name], meant)
        return found

    def notes(self) -> Sequence[str]:
        return ()

    @cached_property
    def _categories(self) -> dict[str, bool]:
        return stored_categories(self.where, self.path)
