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
from fedsplit.data.sql import cast_as, fetch
from fedsplit.data.tables import check_names, fail, to_frame

NA_VALUES = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")
"""What stands for a missing value, quoted or not, with or without spaces around it."""

LONGEST_HEADER = 1_000_000
"""Most characters of the first line."""

BITS = {"number": 1, "boolean": 2, "date": 4, "text": 8, "NUL": 16}
"""The kinds of values that a column has, or-ed by SQL; NUL is for a NUL byte, which is no text."""


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
    """Text whose first line has the names; a column's kind is that of all its values.

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

    def kinds(self) -> dict[str, str]:
        names = self._header.names
        columns = [f"c{i}" for i in range(len(names))]
        *bits, [rows] = self._select([*map(_kind_bits, columns), "count(*)"])
        kinds = {}
        for name, [code] in zip(names, bits, strict=True):
            found = [kind for kind, bit in BITS.items() if int(code) & bit]
            if "NUL" in found:
                fail(self.where, f"column {name!r} has a NUL byte: save the file as text in UTF-8")
            match found:
                case []:  # every value is missing
                    kinds[name] = "number"
                case [kind]:
                    kinds[name] = kind
                case _:
                    kinds[name] = "text"
        self._check_delimiters(int(rows))
        return kinds

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        names = self._header.names
        values = [_value(f"c{names.index(name)}", kind) for name, kind in wanted.items()]
        return to_frame(list(wanted), self._select(values))

    def _select(self, expressions: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """Return the values of SQL expressions of the columns, called c0, c1, … here."""
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(self._header.names)))
        compression = "gzip" if is_gzip(self.path) else "none"
        query = (
            f"select {', '.join(expressions)} from read_csv(?, auto_detect=false, "
            f"header=true, skip=0, columns={{{columns}}}, delim='{self._header.delimiter}', "
            "quote='\"', escape='\"', comment='', encoding='utf-8', "
            f"compression='{compression}', nullstr={list(NA_VALUES)}, strict_mode=true, "
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


def _kind_bits(x: str) -> str:
    """Return SQL for the kinds of all values of a column, as bits."""
    # DuckDB would also read 1_000 and +-1 as numbers.
    number = (
        f"try_cast({x} as double) is not null "
        f"and not contains({x}, '_') and not contains({x}, '+-')"
    )
    date = (
        rf"regexp_full_match({x}, '\d{{4}}-\d\d-\d\d([ T]\d\d:\d\d.*)?') "
        f"and try_cast({x}[:10] as date) is not null"
    )
    return (
        f"coalesce(bit_or(case when {x} is null then 0 "
        f"when {number} then {BITS['number']} "
        f"when {date} then {BITS['date']} "
        f"when lower(trim({x})) in ('true', 'false') then {BITS['boolean']} "
        f"when trim({x}) in {NA_VALUES} then 0 "
        f"when contains({x}, chr(0)) then {BITS['NUL']} else {BITS['text']} end), 0)"
    )


def _value(x: str, kind: str) -> str:
    """Return SQL for a column as this kind; DuckDB fails at a value of another kind."""
    present = f"case when trim({x}) in {NA_VALUES} then null else {x} end"
    if kind == "boolean":
        present = f"cast(trim({present}) as boolean)"
    return cast_as(present, kind)
