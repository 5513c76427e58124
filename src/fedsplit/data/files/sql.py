"""SQL, run by DuckDB."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from fedsplit.data.files.text_sql import (
    is_boolean,
    is_date,
    is_integer,
    is_missing,
    is_number,
    known,
    trimmed,
    with_point,
)
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import Values, check_names, fail
from fedsplit.data.texts import read_texts
from fedsplit.data.types import Fit, Type, fit_of_counts

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

NEVER = "false"
"""SQL for a condition that holds in no row."""

WORKING_FOLDER = threading.Lock()
"""Held while a query runs in its own folder, because a process has only one working folder."""


@dataclass
class QueryTable:
    """The result of a query, whose relative paths start at ``folder``."""

    where: str
    query: str
    folder: Path
    reading: Reading = PLAIN

    def fits(self) -> dict[str, Fit | None]:
        with self._in_folder() as source:
            return column_fits(self.where, f"({source})", self.reading)

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        with self._in_folder() as source:
            return take_columns(self.where, f"({source})", wanted, self.reading)

    def notes(self) -> Sequence[str]:
        return ()

    def save(self, path: Path) -> None:
        """Write the result to a Parquet file."""
        target = str(path.absolute()).replace("'", "''")
        with self._in_folder() as source:
            fetch(self.where, f"copy ({source}) to '{target}' (format parquet)")

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


def column_fits(
    where: str, source: str, reading: Reading, path: Path | None = None
) -> dict[str, Fit | None]:
    """Return what each column of a table of DuckDB can be read as."""
    stored = stored_types(where, source, path)
    tests = {
        name: _tests(quoted(name), kind, reading)
        for name, kind in stored.items()
        if kind is not None
    }
    # Each condition once: of a column that is stored as numbers, most are the same or never hold.
    distinct = list(dict.fromkeys(test for each in tests.values() for test in each))
    parts = [count_of(test) for test in distinct if test != NEVER]
    found = fetch(where, f"select {', '.join(parts or ['1'])} from {source}", path)
    counts = dict(zip([test for test in distinct if test != NEVER], found, strict=False))
    counts[NEVER] = np.zeros(1)
    fits: dict[str, Fit | None] = dict.fromkeys(stored)
    for name, each in tests.items():
        total, *fitting = (int(counts[test][0]) for test in each)
        fits[name] = fit_of_counts(total, fitting)
    return fits


def stored_types(where: str, source: str, path: Path | None = None) -> dict[str, Type | None]:
    """Return the type that each column of a table is stored as; no row is read."""
    query = f"select column_name, column_type from (describe {source})"
    names, types = fetch(where, query, path)
    check_names(where, [name.lower() for name in names])  # DuckDB ignores case
    return {name: _stored(kind) for name, kind in zip(names, types, strict=True)}


def take_columns(
    where: str,
    source: str,
    wanted: Mapping[str, Type],
    reading: Reading,
    path: Path | None = None,
) -> dict[str, Values]:
    """Read the wanted columns, as in ``Table.take``."""
    stored = stored_types(where, source, path)
    columns = [_value(quoted(name), stored[name], kind, reading) for name, kind in wanted.items()]
    found = fetch(where, f"select {', '.join(columns)} from {source}", path)
    for i, (name, kind) in enumerate(wanted.items()):
        if found[i].dtype == object:
            found[i] = read_texts(where, name, found[i], stored[name] or "text", kind, reading)
    return dict(zip(wanted, found, strict=True))


def quoted(name: str) -> str:
    """Return the name of a column as SQL."""
    return '"' + name.replace('"', '""') + '"'


def count_of(condition: str) -> str:
    """Return SQL for the number of rows in which a condition holds."""
    return f"count(*) filter (where {condition})"


def _tests(x: str, stored: Type, reading: Reading) -> list[str]:
    """Return SQL for whether a column has a value, and one that fits each field of ``Fit``."""
    match stored:
        case "text":
            x = trimmed(f"cast({x} as varchar)")
            present = f"not {is_missing(x, reading)}"
            number = with_point(x, reading)
            fitting = [is_integer(number), is_number(number), is_date(x), is_boolean(x)]
            return [present, *(f"{present} and {test}" for test in fitting), present]
        case "number":
            x = f"cast({known(x, stored, reading)} as double)"
            present = f"not isnan({x})"
            return [present, f"{present} and {x} = trunc({x})", present, NEVER, NEVER, NEVER]
    present = f"{known(x, stored, reading)} is not null"
    place = {"date": 2, "boolean": 3}[stored]
    return [present, *[present if i == place else NEVER for i in range(5)]]


def _value(x: str, stored: Type | None, wanted: Type, reading: Reading) -> str:
    """Return SQL for a column as a double where that is all there is to do, else as text."""
    if stored is not None:
        x = known(x, stored, reading)
    match stored, wanted:
        case ("number", "number") | ("boolean", "number" | "boolean"):
            return f"cast({x} as double)"
        case "number", "text":
            # A float of 32 bits has the text of the number that it is.
            short = f"typeof({x}) = 'FLOAT'"
            return f"cast(if({short}, cast({x} as double)::varchar, {x}::varchar) as varchar)"
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


def _stored(sql_type: str) -> Type | None:
    """Return the type of a column stored as, for example, ``DECIMAL(10,2)`` or ``INTEGER[]``."""
    bare = re.sub(r"\(.*", "", sql_type)
    if sql_type.endswith("]"):
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
        for symptom, reason in CSV_REASONS.items():
            if symptom in text:
                return f"line {line[1]}: {reason}"
    if "state machine reached an invalid state" in text:
        return "its lines do not all end in the same way, or a quote is out of place"
    if line:
        return f"line {line[1]}: cannot be read"
    return re.split(r"\n\s*\n|\nLINE |\nPossible ", text)[0]
