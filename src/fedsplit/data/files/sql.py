"""Parquet files and the results of queries, read by DuckDB, which knows what they are stored as.

DuckDB reads the values of a Parquet file but not which columns are categories, nor the order of
their levels. What pandas notes in the file says the first; an order with a meaning is in Arrow's
dictionaries, which only pyarrow reads.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from fedsplit.data.files.opening import check_file
from fedsplit.data.frames import SeriesColumn, as_written
from fedsplit.data.tables import Column, Table, check_names, fail
from fedsplit.data.texts import sort_levels
from fedsplit.data.types import MISSING, Reading, Type, is_number

WORKING_FOLDER = threading.Lock()
"""Held while a query runs in its own folder, because a process has only one working folder."""


class SqlTable(Table):
    """Columns of a table of DuckDB, whose types say what they are."""

    @abstractmethod
    def _source(self) -> contextlib.AbstractContextManager[str]:
        """Yield SQL for the table; ``?`` stands for the file. The query runs inside."""

    def _rows(self, source: str) -> str:
        """Return SQL for the rows of the table, some columns of which are then converted."""
        return source

    def _names(self) -> Sequence[str]:
        names = list(self._stored())
        check_names(self.where, [name.lower() for name in names])  # DuckDB ignores case
        return names

    def _stored(self) -> dict[str, str]:
        """Return DuckDB's type of each column; no row is read."""
        with self._source() as source:
            query = f"select column_name, column_type from (describe {source})"
            return dict(fetch(self.where, query, self.path).itertuples(index=False))

    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        stored = self._stored()
        parts = [_expression(name, stored[name], kind) for name, kind in wanted.items()]
        with self._source() as source:
            query = f"select {', '.join(parts)} from {self._rows(source)}"
            frame = fetch(self.where, query, self.path)
        columns = {}
        for place, (name, kind) in enumerate(wanted.items()):
            series = self._series(name, frame.iloc[:, place], type_of(stored[name]), kind)
            # a number is fetched as text only if that is wanted, and then exactly
            inexact = isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind == "f"
            columns[name] = SeriesColumn(series, exact=kind == "text" or not inexact)
        return columns

    def _series(
        self, name: str, series: pd.Series, stored: Type | None, kind: Type | None
    ) -> pd.Series:
        """Return what was fetched as a column of pandas of the type that it is stored as."""
        if stored is None:
            return pd.Series(np.zeros(len(series), dtype=np.complex128))  # which nobody can read
        if stored == "boolean":
            return series.astype("boolean")
        if (stored, kind) != ("number", "text"):
            return series
        # In the form of levels, exactly.
        forms = {text: as_written(Decimal(text), self.reading) for text in series.dropna().unique()}
        return series.astype(object).map(forms)


class QueryTable(SqlTable):
    """The result of a query, read as DuckDB returns it; its relative paths start at a folder.

    Decimal marks and formats of dates are the query's own: those of ``reading`` are about files.
    """

    def __init__(self, name: str, where: str, query: str, folder: Path, reading: Reading) -> None:
        super().__init__(name, where, None, replace(reading, decimal=".", dates=""))
        self._query = query
        self._folder = folder

    def save(self, path: Path) -> None:
        """Write the result to a Parquet file."""
        target = str(path.absolute()).replace("'", "''")
        with self._source() as source:
            fetch(self.where, f"copy {source} to '{target}' (format parquet)")

    @contextlib.contextmanager
    def _source(self) -> Iterator[str]:
        """Enter the folder and yield the query.

        DuckDB's own search path for files does not do: the working folder comes before it.
        """
        if not self._folder.is_dir():
            fail(self.where, f"the folder {self._folder} no longer exists")
        with WORKING_FOLDER, contextlib.chdir(self._folder):
            # The line break ends a comment in the last line.
            yield f"({self._query.strip().rstrip(';')}\n)"

    def _rows(self, source: str) -> str:
        # DuckDB would else let read_csv do our casts, without the formats that the query gave it.
        return f"(with result as materialized (from {source}) from result)"


class ParquetTable(SqlTable):
    """A Parquet file: types come from its schema, and only the columns wanted are read."""

    path: Path

    @contextlib.contextmanager
    def _source(self) -> Iterator[str]:
        yield "(from read_parquet(?, hive_partitioning=false))"  # folders' names are not columns

    def _names(self) -> Sequence[str]:
        check_file(self.where, self.path)
        names = super()._names()
        stored = set(fetch(self.where, "select name from parquet_schema(?)", self.path)["name"])
        for name in names:
            if name not in stored:  # DuckDB has renamed a second column of the same name
                what = f"two columns have the same name, ignoring case, see {name!r}"
                fail(self.where, f"{what}: rename one")
        return names

    def _series(
        self, name: str, series: pd.Series, stored: Type | None, kind: Type | None
    ) -> pd.Series:
        series = super()._series(name, series, stored, kind)
        if stored is None or name not in self._categories:
            return series
        if kind != "text":
            return series.astype("category")
        texts = series.map(as_written, na_action="ignore")
        return texts.astype(self._in_order(name, texts.dropna().unique()))

    @cached_property
    def _categories(self) -> dict[str, bool]:
        """The columns that are stored as categories, and whether their order has a meaning."""
        categories = {}
        query = "select value from parquet_kv_metadata(?) where key = 'pandas'::blob"
        for note in fetch(self.where, query, self.path)["value"]:
            try:
                for column in json.loads(bytes(note))["columns"]:
                    if column["pandas_type"] == "categorical":
                        categories[column["field_name"]] = bool(column["metadata"]["ordered"])
            except (KeyError, TypeError, ValueError, RecursionError):
                fail(self.where, "what pandas has noted in it about its columns cannot be read")
        with contextlib.suppress(ImportError):
            for field in self._by_arrow("read_schema"):
                if hasattr(field.type, "ordered"):  # a dictionary
                    categories[field.name] = bool(field.type.ordered)
        return categories

    def _in_order(self, column: str, texts: Sequence[str]) -> pd.CategoricalDtype:
        """Return the category of a column with these texts.

        The order of its levels is read only if it has a meaning, so that the first level does not
        depend on whether pyarrow is installed. Else levels are sorted, as numbers if they are.
        """
        levels = sort_levels(texts, "number" if all(map(is_number, texts)) else "text")
        ordered = self._categories[column]
        if ordered:
            try:
                table = self._by_arrow("read_table", columns=[column])
            except ImportError:
                what = f"column {column!r} is an ordered category"
                fail(self.where, f"{what}: install pyarrow to read its order")
            chunks = table.column(column).unify_dictionaries().chunks
            if chunks and hasattr(chunks[0], "dictionary"):
                own = map(as_written, chunks[0].dictionary.drop_null().to_pylist())
                levels = [text for text in dict.fromkeys(own) if text not in MISSING] or levels
        return pd.CategoricalDtype(pd.Index(levels, dtype=object), ordered=ordered)

    def _by_arrow(self, function: str, **options: Any) -> Any:
        """Read with pyarrow, if it is installed, which may refuse what DuckDB takes."""
        from pyarrow import parquet

        try:
            return getattr(parquet, function)(self.path, **options)
        except (OSError, ValueError, RuntimeError) as error:  # Arrow's own are among these
            fail(self.where, f"is damaged: {error}")


def _expression(name: str, stored: str, kind: Type | None) -> str:
    """Return SQL for a column in the form in which it is fetched."""
    x = '"' + name.replace('"', '""') + '"'
    match type_of(stored), kind:
        case None, _:
            return "null"
        case "number", "text":
            # A float of 32 bits has the text of the number that it is.
            return f"cast({x}{'::double' * (stored == 'FLOAT')} as varchar)"
        case "number", _:
            return f"cast({x} as double)"
        case "date", _ if stored == "DATE" or stored.endswith("TIME ZONE"):
            return f"cast({x} as timestamp)"
        case "text", _:
            return f"cast({x} as varchar)"
    return x


def fetch(where: str, query: str, path: Path | None = None) -> pd.DataFrame:
    """Return the result of one query, in which ``?`` stands for the file at the path.

    Messages begin with ``where``.
    """
    parameters = [] if path is None else [glob.escape(str(path.absolute()))]
    try:
        with _connection(os.getpid()).cursor() as cursor:
            return cursor.execute(query, parameters).df()
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _connection.cache_clear()  # the database refuses every further query
        fail(where, _reason(str(error)))


@lru_cache(maxsize=1)
def _connection(process: int) -> Any:
    """Return the database of this process: opening one costs more than reading a small file.

    The process is part of the key because a forked child cannot use its parent's database.
    """
    config = {
        "autoinstall_known_extensions": False,  # nothing is downloaded
        "autoload_known_extensions": False,
        "enable_external_file_cache": False,  # a file that has been rewritten is read again
        "python_enable_replacements": False,  # a query sees files, not the caller's variables
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("set enable_progress_bar = false; set global TimeZone = 'UTC'")
    return connection


def type_of(stored: str) -> Type | None:
    """Return the type of a column stored as, for example, ``DECIMAL(10,2)`` or ``INTEGER[]``."""
    bare = re.sub(r"\(.*", "", stored)
    if stored.endswith("]"):
        return None
    numeric = {
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
        *("FLOAT", "DOUBLE", "DECIMAL", "BIGNUM"),
    }
    if bare in numeric:
        return "number"
    if bare == "BOOLEAN":
        return "boolean"
    if bare in ("VARCHAR", "ENUM", "UUID", '"NULL"'):  # the last has no values
        return "text"
    return "date" if bare == "DATE" or bare.startswith("TIMESTAMP") else None


def _reason(text: str) -> str:
    """Return DuckDB's reason without its advice and without the row of data that it quotes."""
    text = re.sub(r"^[\w ]+ Error: ", "", text)
    line = re.match(r"CSV Error on Line: (\d+)", text)
    if line:
        # what is wrong with a line of CSV, by words of DuckDB's message
        wrong = {
            "Expected Number of Columns": "it has more or fewer values than the first line has "
            "names",
            "unterminated quote": "a quote is not closed, or has more text after it",
            "Invalid unicode": "it is not UTF-8, save the file as UTF-8",
            "Error when converting column": "a value is not of its column's type, give read_csv "
            "its format",
        }
        reasons = (reason for symptom, reason in wrong.items() if symptom in text)
        return f"line {line[1]}: {next(reasons, 'cannot be read')}"
    return re.split(r"\n\s*\n|\nLINE |\nPossible ", text)[0]
