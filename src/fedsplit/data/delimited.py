"""Delimited text: CSV and its relatives.

DuckDB parses the file, but every choice is made here and none is left to its guesses.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsplit.data.opening import is_gzip, open_bytes, open_text
from fedsplit.data.sql import count_of, fetch, text_tests, trimmed
from fedsplit.data.tables import check_names, fail, to_frame
from fedsplit.data.texts import read_texts
from fedsplit.data.types import MISSING, Fit, Type, share

LONGEST_HEADER = 1_000_000
"""Most characters of the first line."""


class Header(NamedTuple):
    """The first line.

    Attributes
    ----------
    names : list of str
        Of the columns.
    delimiter : str
        One character.
    delimiters : int
        How many of them the line has, those inside quotes included.
    """

    names: list[str]
    delimiter: str
    delimiters: int


@dataclass
class DelimitedTable:
    """Text whose first line has the names; a column's type is that of all its values.

    Parameters
    ----------
    where : str
        What error messages call the file.
    path : Path
    delimiters : str
        Candidates; the one that occurs most often in the first line, outside quotes, is used.
    """

    where: str
    path: Path
    delimiters: str

    def fits(self) -> dict[str, Fit | None]:
        return dict(self._fits)

    def take(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        names = self._header.names
        values = []
        for name, kind in wanted.items():
            x = f"c{names.index(name)}"
            fit = self._fits[name]
            # A column that has other values too is read as text, to say which one is wrong.
            if kind == "number" and (fit.decimal == "all" or fit.empty):
                x = f"cast(case when {trimmed(x)} not in {MISSING} then {trimmed(x)} end as double)"
            values.append(x)
        found = self._select(values)
        for i, (name, kind) in enumerate(wanted.items()):
            if found[i].dtype == object:
                found[i] = read_texts(self.where, name, found[i], "text", kind)
        return to_frame(list(wanted), found)

    @cached_property
    def _fits(self) -> dict[str, Fit]:
        names = self._header.names
        counts: list[str] = []
        for i in range(len(names)):
            counts += _counts(f"c{i}")
        found = [int(count) for [count] in self._select([*counts, "count(*)"])]
        self._check_delimiters(found.pop())
        fits = {}
        for i, name in enumerate(names):
            present, *fitting, nul = found[7 * i : 7 * i + 7]
            if nul:
                fail(self.where, f"column {name!r} has a NUL byte: save the file as text in UTF-8")
            fits[name] = Fit(*[share(count, present) for count in fitting])
        return fits

    def _select(self, expressions: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """Return the values of SQL expressions of the columns, called c0, c1, … here."""
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(self._header.names)))
        compression = "gzip" if is_gzip(self.path) else "none"
        query = (
            f"select {', '.join(expressions)} from read_csv(?, auto_detect=false, "
            f"header=true, skip=0, columns={{{columns}}}, delim='{self._header.delimiter}', "
            "quote='\"', escape='\"', comment='', encoding='utf-8', "
            f"compression='{compression}', nullstr={list(MISSING)}, strict_mode=true, "
            "null_padding=false, ignore_errors=false, hive_partitioning=false)"
        )
        return fetch(self.where, query, self.path)

    def _check_delimiters(self, rows: int) -> None:
        """Raise InputError if there are delimiters that are neither between values nor in them.

        DuckDB silently drops the surplus values of a row if all of them are missing, and a row
        whose values are shifted can end in such a value.
        """
        names, delimiter, expected = self._header
        expected += rows * (len(names) - 1)
        # Counting bytes is fast; those inside values need a query, and are looked for only if
        # the count is not what unquoted values would have.
        with open_bytes(self.path) as file:
            chunks = iter(partial(file.read, 1 << 20), b"")
            count = sum(chunk.count(delimiter.encode()) for chunk in chunks)
        if count == expected:
            return
        inside = [
            f"coalesce(sum(length(c{i}) - length(replace(c{i}, '{delimiter}', ''))), 0)"
            for i in range(len(names))
        ]
        [[in_values]] = self._select([f"cast({' + '.join(inside)} as bigint)"])
        if count != expected + int(in_values):
            fail(
                self.where,
                "a line has more values than the first line has names: are values with "
                f"{delimiter!r} in them quoted?",
            )

    @cached_property
    def _header(self) -> Header:
        line = self._first_line()
        delimiter = self._delimiter(line)
        try:
            cells = next(csv.reader([line], delimiter=delimiter, strict=True))
        except csv.Error as error:
            fail(self.where, f"its first line cannot be read: {error}")
        names = [cell.strip() for cell in cells]
        for name in names:
            if "\n" in name or "\r" in name:
                fail(self.where, f"the name {name!r} in the first line has a line break: remove it")
        check_names(self.where, names)
        # Without a line of names, the first row of data would be lost.
        if all(re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", name) for name in names):
            fail(self.where, "its first line is numbers: put the names of the columns there")
        return Header(names, delimiter, line.count(delimiter))

    def _first_line(self) -> str:
        """Return the first line, which goes on after a line break inside quotes."""
        with open_text(self.where, self.path) as file:
            line = file.readline(LONGEST_HEADER)
            while line.count('"') % 2 and len(line) < LONGEST_HEADER:
                more = file.readline(LONGEST_HEADER)
                if not more:
                    break
                line += more
        if "\0" in line:
            fail(self.where, "its first line has a NUL byte: save the file as text in UTF-8")
        if not line.strip():
            fail(self.where, "its first line is empty: put the names of the columns there")
        return line

    def _delimiter(self, line: str) -> str:
        """Return the candidate that occurs most often outside quotes, or the first candidate."""
        unquoted = re.sub(r'"[^"]*"', "", line)
        most = max(unquoted.count(each) for each in self.delimiters)
        if not most:
            return self.delimiters[0]
        found = [each for each in self.delimiters if unquoted.count(each) == most]
        if len(found) > 1:
            fail(
                self.where,
                f"its first line has {found[0]!r} as often as {found[1]!r}: "
                "use one of them between names",
            )
        return found[0]


def _counts(x: str) -> list[str]:
    """Return SQL for how many values of a column are present, fit each type, and have a NUL."""
    tests = text_tests(trimmed(x))
    present = f"{trimmed(x)} not in {MISSING}"
    text = f"{present} and not ({' or '.join(f'({test})' for test in tests.values())})"
    conditions = [present, *tests.values(), text, f"contains({x}, chr(0))"]
    return [count_of(condition) for condition in conditions]
