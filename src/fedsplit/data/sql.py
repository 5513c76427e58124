"""SQL, run by DuckDB."""

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

from fedsplit.data.tables import check_names, fail, to_frame

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
}
"""What is wrong with a line of CSV, by words of DuckDB's message."""

WORKING_FOLDER = threading.Lock()
"""Held while a query runs in its own folder, because a process has only one working folder."""


@dataclass
class QueryTable:
    """The result of a query, whose relative paths start at ``folder``."""

    where: str
    query: str
    folder: Path

    def kinds(self) -> dict[str, str]:
        with self._in_folder() as source:
            return column_kinds(self.where, source)

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        with self._in_folder() as source:
            return take_columns(self.where, f"({source})", wanted)

    @contextlib.contextmanager
    def _in_folder(self) -> Iterator[str]:
        """Enter the folder and yield the query.

        DuckDB's own search path for files does not do: the working folder comes before it.
        """
        if not self.folder.is_dir():
            fail(self.where, f"the folder {self.folder} no longer exists")
        with WORKING_FOLDER, contextlib.chdir(self.folder):
            # The line break ends a comment in the last line.
            yield self.query.strip().rstrip(";") + "\n"


def column_kinds(where: str, source: str, path: Path | None = None) -> dict[str, str]:
    """Return the kind of each column of a query, from its type; no row is read."""
    query = f"select column_name, column_type from (describe ({source}))"
    names, types = fetch(where, query, path)
    check_names(where, [name.lower() for name in names])  # DuckDB ignores case
    return {name: _kind(kind) for name, kind in zip(names, types, strict=True)}


def take_columns(
    where: str, source: str, wanted: Mapping[str, str], path: Path | None = None
) -> pd.DataFrame:
    """Read the wanted columns, each as a kind, as in ``Table.take``."""
    columns = []
    for name, kind in wanted.items():
        quoted = '"' + name.replace('"', '""') + '"'
        columns.append(cast_as(quoted, kind))
    return to_frame(list(wanted), fetch(where, f"select {', '.join(columns)} from {source}", path))


def cast_as(x: str, kind: str) -> str:
    """Return SQL for the expression ``x`` as float64 or as text, whichever the kind is read as."""
    if kind in ("number", "boolean"):
        return f"cast({x} as double)"
    return f"cast({x} as varchar)"


def fetch(where: str, query: str, path: Path | None = None) -> list[np.ndarray[Any, Any]]:
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
        The columns of the result, with NaN or None where a value is missing.
    """
    parameters = []
    if path is not None:
        parameters.append(glob.escape(str(path.absolute())))
    try:
        with _connection(os.getpid()).cursor() as cursor:
            cursor.execute(query, parameters)
            columns = cursor.fetchnumpy().values()
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.FatalException, duckdb.InternalException) as error:
        _connection.cache_clear()  # the database refuses every further query
        fail(where, _reason(str(error)))
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        fail(where, _reason(str(error)))
    return [_unmasked(column) for column in columns]


@lru_cache(maxsize=1)
def _connection(process: int) -> Any:
    """Return the database of this process: opening one costs more than reading a small file.

    The process is part of the key because a forked child cannot use its parent's database.
    """
    connection = duckdb.connect(":memory:", config=CONFIG)
    connection.execute("set enable_progress_bar = false; set global TimeZone = 'UTC'")
    return connection


def _unmasked(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values with NaN or None in place of the mask, written in place."""
    values = np.ma.getdata(column)
    if np.ma.is_masked(column):
        # Not ``column.filled(None)``, which would write numpy's default, "?".
        missing = np.nan if values.dtype.kind == "f" else None
        values[np.ma.getmaskarray(column)] = missing
    return values


def _kind(sql_type: str) -> str:
    """Return the kind of a column of this type, as in ``DECIMAL(10,2)`` or ``INTEGER[]``."""
    bare = re.sub(r"\(.*", "", sql_type)
    if sql_type.endswith("]"):
        return "other"
    if bare in NUMERIC_TYPES:
        return "number"
    if bare == "BOOLEAN":
        return "boolean"
    if bare in ("VARCHAR", "ENUM", "UUID"):
        return "text"
    if bare == "DATE" or bare.startswith("TIMESTAMP"):
        return "date"
    return "other"


def _reason(text: str) -> str:
    """Return DuckDB's reason without its advice and without the row of data that it quotes."""
    text = re.sub(r"^[\w ]+ Error: ", "", text)
    line = re.match(r"CSV Error on Line: (\d+)", text)
    if line:
        for symptom, reason in CSV_REASONS.items():
            if symptom in text:
                return f"line {line[1]}: {reason}"
    if "state machine reached an invalid state" in text:
        return "its lines do not all end in the same way, or a quote is out of place"
    if line:
        return f"line {line[1]}: cannot be read"
    return re.split(r"\n\s*\n|\nLINE |\nPossible ", text)[0]
