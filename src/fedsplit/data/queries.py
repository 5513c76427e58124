"""A Parquet file or a SQL query, read through DuckDB."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from fedsplit.data.table import check_file, check_names, fail, framed

CONFIG = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_file_cache": False,  # a file that is written again is read again
    "python_enable_replacements": False,  # a query sees files, not the caller's variables
}

NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "BIGNUM",
)

FOLDER = threading.Lock()
"""Held while a query runs in its own folder: there is one working folder a process."""


@dataclass
class ParquetTable:
    """A Parquet file: kinds from its schema, and only the columns that are asked for are read."""

    where: str
    path: Path

    def kinds(self) -> dict[str, str]:
        check_file(self.where, self.path)
        kinds = _described(self.where, "from read_parquet(?, hive_partitioning=false)", self.path)
        stored = set(fetch(self.where, "select name from parquet_schema(?)", self.path)[0])
        for name in kinds:
            if name not in stored:  # DuckDB renames a second column of one name
                fail(
                    self.where,
                    f"two columns have one name but for upper and lower case, see {name!r}: rename one",
                )
        return kinds

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        query = f"select {_chosen(wanted)} from read_parquet(?, hive_partitioning=false)"
        return framed(wanted, fetch(self.where, query, self.path))


@dataclass
class QueryTable:
    """A SQL query of DuckDB; its relative paths start at ``folder``."""

    where: str
    query: str
    folder: Path

    def kinds(self) -> dict[str, str]:
        with self._inside() as source:
            return _described(self.where, source)

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        with self._inside() as source:
            return framed(wanted, fetch(self.where, f"select {_chosen(wanted)} from ({source})"))

    @contextlib.contextmanager
    def _inside(self) -> Iterator[str]:
        """The query, in its folder: DuckDB looks into its search path only after the working folder."""
        if not self.folder.is_dir():
            fail(self.where, f"the folder {self.folder} is not there any more")
        with FOLDER, contextlib.chdir(self.folder):
            yield self.query.strip().rstrip(";") + "\n"  # the line break ends a comment


def fetch(where: str, query: str, path: Path | None = None) -> list[np.ndarray[Any, Any]]:
    """The columns of a query's result, with NaN or None where a value is missing; ``?`` is the file at ``path``."""
    try:
        with _connection(os.getpid()).cursor() as cursor:
            cursor.execute(query, [] if path is None else [glob.escape(str(path.absolute()))])
            columns = cursor.fetchnumpy().values()
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _connection.cache_clear()  # after these, it answers nothing any more
        fail(where, _reason(str(error)))
    return [_filled(column) for column in columns]


def cast(x: str, kind: str) -> str:
    """The expression ``x`` as float64 or as text."""
    return f"cast({x} as {'double' if kind in ('number', 'boolean') else 'varchar'})"


def _filled(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In place, and by hand: ``filled(None)`` would write "?"."""
    values = np.ma.getdata(column)
    if np.ma.is_masked(column):
        values[np.ma.getmaskarray(column)] = np.nan if values.dtype.kind == "f" else None
    return values


@lru_cache(maxsize=1)
def _connection(process: int) -> Any:
    """One database in memory a process: opening one costs more than reading a small file."""
    connection = duckdb.connect(":memory:", config=CONFIG)
    connection.execute("set enable_progress_bar = false; set global TimeZone = 'UTC'")
    return connection


def _chosen(wanted: Mapping[str, str]) -> str:
    """The wanted columns as SQL, names quoted."""
    quoted = ('"' + name.replace('"', '""') + '"' for name in wanted)
    return ", ".join(cast(name, kind) for name, kind in zip(quoted, wanted.values(), strict=True))


def _described(where: str, source: str, path: Path | None = None) -> dict[str, str]:
    """The columns of a source and their kinds, from their types: no row is read."""
    names, types = fetch(where, f"select column_name, column_type from (describe ({source}))", path)
    check_names(where, [name.lower() for name in names])  # to DuckDB, a and A are one
    return {name: _kind(kind) for name, kind in zip(names, types, strict=True)}


def _kind(kind: str) -> str:
    bare = re.sub(r"\(.*", "", kind)
    if kind.endswith("]"):
        return "other"
    if bare.removeprefix("U") in NUMBERS:
        return "number"
    if bare == "BOOLEAN":
        return "boolean"
    if bare in ("VARCHAR", "ENUM", "UUID"):
        return "text"
    return "date" if bare == "DATE" or bare.startswith("TIMESTAMP") else "other"


def _reason(text: str) -> str:
    """DuckDB's reason without its advice, and without the row of data that it shows."""
    text = re.sub(r"^[\w ]+ Error: ", "", text)
    line = re.match(r"CSV Error on Line: (\d+)", text)
    for known, plain in (
        ("Expected Number of Columns", "it has more or fewer values than the first line has names"),
        ("unterminated quote", "a quote is not closed, or has more text after it"),
        ("Invalid unicode", "it is not UTF-8, save the file as UTF-8"),
    ):
        if line and known in text:
            return f"line {line[1]}: {plain}"
    if "state machine reached an invalid state" in text:
        return "its lines do not all end in the same way, or a quote is out of place"
    if line:
        return f"line {line[1]}: cannot be read"
    return re.split(r"\n\s*\n|\nLINE |\nPossible ", text)[0]
