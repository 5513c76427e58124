"""Parquet files and the results of queries, read by DuckDB, which knows what they are stored as."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from fedsplit.data.frames import SeriesColumn
from fedsplit.data.reading import Reading
from fedsplit.data.tables import Column, Table, check_names, fail
from fedsplit.data.texts import as_written
from fedsplit.data.types import Type

CONFIG = {
    "autoinstall_known_extensions": False,  # nothing is downloaded
    "autoload_known_extensions": False,
    "enable_external_file_cache": False,  # a file that has been rewritten is read again
    "python_enable_replacements": False,  # a query sees files, not the caller's variables
}

NUMERIC_TYPES = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    *("FLOAT", "DOUBLE", "DECIMAL", "BIGNUM"),
}

CSV_REASONS = {
    "Expected Number of Columns": "it has more or fewer values than the first line has names",
    "unterminated quote": "a quote is not closed, or has more text after it",
    "Invalid unicode": "it is not UTF-8, save the file as UTF-8",
    "Error when converting column": "a value is not of its column's type, give read_csv its format",
}
"""What is wrong with a line of CSV that a query reads, by words of DuckDB's message."""

WORKING_FOLDER = threading.Lock()
"""Held while a query runs in its own folder, because a process has only one working folder."""


class SqlTable(Table):
    """Columns of a table of DuckDB, whose types say what they are."""

    @contextlib.contextmanager
    def _source(self) -> Iterator[str]:
        """Yield SQL for the table; ``?`` stands for the file. The query runs inside."""
        raise NotImplementedError

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
            names, types = fetch(self.where, query, self.path)
        return dict(zip(names.tolist(), types.tolist(), strict=True))

    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        types = self._stored()
        parts = [_expression(name, types[name], kind) for name, kind in wanted.items()]
        with self._source() as source:
            query = f"select {', '.join(parts)} from {self._rows(source)}"
            found = fetch(self.where, query, self.path)
        return {
            name: SqlColumn(_series(values, types[name], kind, self.reading), types[name], kind)
            for (name, kind), values in zip(wanted.items(), found, strict=True)
        }


class QueryTable(SqlTable):
    """The result of a query, read as DuckDB returns it.

    Parameters
    ----------
    name, where : str
        As in ``Table``.
    query : str
    folder : Path
        Where its relative paths start.
    reading : Reading
        Decimal marks and formats of dates are the query's own: those here are about files.
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


class SqlColumn(SeriesColumn):
    """A column of DuckDB; a number is fetched as text only if that is wanted, and then exactly.

    Parameters
    ----------
    series : (n,) Series
    stored : str
        DuckDB's type.
    kind : Type or None
        What it was fetched to be taken as.
    """

    def __init__(self, series: pd.Series, stored: str, kind: Type | None) -> None:
        super().__init__(series)
        self._fetched = kind == "text" if type_of(stored) == "number" else None

    def offers(self, kind: Type) -> bool:
        return self._fetched is None or self._fetched == (kind == "text")


def _expression(name: str, stored: str, kind: Type | None) -> str:
    """Return SQL for a column in the form in which it is fetched."""
    x = quoted(name)
    match type_of(stored), kind:
        case None, _:
            return "null"
        case "number", "text":
            # A float of 32 bits has the text of the number that it is.
            return f"cast({x}{'::double' * (stored == 'FLOAT')} as varchar)"
        case "number", _:
            return f"cast({x} as double)"
        case "boolean", _:
            return f"cast({x} as tinyint)"
        case "date", _ if stored == "DATE" or stored.endswith("TIME ZONE"):
            return f"cast({x} as timestamp)"
        case "text", _:
            return f"cast({x} as varchar)"
    return x


def _series(
    values: np.ma.MaskedArray[Any, Any], stored: str, kind: Type | None, reading: Reading
) -> pd.Series:
    """Return what was fetched as a column of pandas of the type that it is stored as."""
    data = np.ma.getdata(values)
    missing = np.ma.getmaskarray(values)
    match type_of(stored), kind:
        case None, _:
            return pd.Series(np.zeros(len(data), dtype=np.complex128))  # which nobody can read
        case "boolean", _:
            return pd.Series(pd.arrays.BooleanArray(data.astype(bool), missing))
        case "number", "text":
            return pd.Series(_exact(data, missing, reading), dtype=object)
        case "text", _:
            data[missing] = None
            return pd.Series(data, dtype=object)
        case "date", _:
            data[missing] = np.datetime64("NaT")
            return pd.Series(data)
    data[missing] = np.nan
    return pd.Series(data)


def _exact(texts: Any, missing: Any, reading: Reading) -> Any:
    """Return numbers as text in the form of levels, exactly, (n,), None where missing."""
    codes, distinct = pd.factorize(np.where(missing, None, texts))
    numbers = map(Decimal, distinct)
    forms = [None if number.is_nan() else as_written(number, reading) for number in numbers]
    return np.array([*forms, None], dtype=object)[codes]


def quoted(name: str) -> str:
    """Return the name of a column as SQL."""
    return '"' + name.replace('"', '""') + '"'


def fetch(where: str, query: str, path: Path | None = None) -> list[Any]:
    """Run a query.

    Parameters
    ----------
    where : str
        What error messages call the source.
    query : str
        One statement; ``?`` stands for the file at ``path``.
    path : Path, optional

    Returns
    -------
    list of (n,) arrays
        The columns of the result, masked where a value is missing.
    """
    parameters = []
    if path is not None:
        parameters.append(glob.escape(str(path.absolute())))
    try:
        with _connection(os.getpid()).cursor() as cursor:
            cursor.execute(query, parameters)
            return list(cursor.fetchnumpy().values())
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.FatalException, duckdb.InternalException) as error:
        _connection.cache_clear()  # the database refuses every further query
        fail(where, _reason(str(error)))
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        fail(where, _reason(str(error)))


@lru_cache(maxsize=1)
def _connection(process: int) -> Any:
    """Return the database of this process: opening one costs more than reading a small file.

    The process is part of the key because a forked child cannot use its parent's database.
    """
    connection = duckdb.connect(":memory:", config=CONFIG)
    connection.execute("set enable_progress_bar = false; set global TimeZone = 'UTC'")
    return connection


def type_of(stored: str) -> Type | None:
    """Return the type of a column stored as, for example, ``DECIMAL(10,2)`` or ``INTEGER[]``."""
    bare = re.sub(r"\(.*", "", stored)
    if stored.endswith("]"):
        return None
    if bare in NUMERIC_TYPES:
        return "number"
    if bare == "BOOLEAN":
        return "boolean"
    if bare in ("VARCHAR", "ENUM", "UUID", '"NULL"'):  # the last has no values
        return "text"
    if bare == "DATE" or bare.startswith("TIMESTAMP"):
        return "date"
    return None


def _reason(text: str) -> str:
    """Return DuckDB's reason without its advice and without the row of data that it quotes."""
    text = re.sub(r"^[\w ]+ Error: ", "", text)
    line = re.match(r"CSV Error on Line: (\d+)", text)
    if line:
        reasons = (reason for symptom, reason in CSV_REASONS.items() if symptom in text)
        return f"line {line[1]}: {next(reasons, 'cannot be read')}"
    return re.split(r"\n\s*\n|\nLINE |\nPossible ", text)[0]
