"""A Parquet file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedsplit.data.opening import check_file
from fedsplit.data.sql import column_fits, fetch, take_columns
from fedsplit.data.tables import fail
from fedsplit.data.types import Fit, Type

SOURCE = "(from read_parquet(?, hive_partitioning=false))"  # folders' names are not columns


@dataclass
class ParquetTable:
    """A Parquet file: types come from its schema, and only the columns wanted are read."""

    where: str
    path: Path

    def fits(self) -> dict[str, Fit | None]:
        check_file(self.where, self.path)
        fits = column_fits(self.where, SOURCE, self.path)
        stored = set(fetch(self.where, "select name from parquet_schema(?)", self.path)[0])
        for name in fits:
            if name not in stored:  # DuckDB has renamed a second column of the same name
                fail(
                    self.where,
                    f"two columns have the same name, ignoring case, see {name!r}: rename one",
                )
        return fits

    def take(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        return take_columns(self.where, SOURCE, wanted, self.path)
