"""CSV and its relatives: every choice made here, and none left to DuckDB's guesses."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd

from fedsplit.data.queries import cast, fetch
from fedsplit.data.table import check_names, fail, framed, opened, raw, zipped

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")
"""What stands for a missing value, in quotes or not, with or without spaces around it."""

HEADER = 1_000_000
"""Most characters of the first line."""

KINDS = {0: "number", 1: "number", 2: "boolean", 4: "date"}
"""The kind of a column whose values are all of one kind or missing; any mixture is text."""


@dataclass
class DelimitedTable:
    """Text with a first line of names; a column's kind is that of all its values, to the last line."""

    where: str
    path: Path
    delimiters: str

    def kinds(self) -> dict[str, str]:
        names, delimiter, inside = self._header
        columns = [f"c{i}" for i in range(len(names))]
        *codes, rows = self._select([*map(_code, columns), "count(*)"], len(names), delimiter)
        bits = {name: int(code[0]) for name, code in zip(names, codes, strict=True)}
        for name, code in bits.items():
            if code & 16:
                fail(
                    self.where,
                    f"column {name!r} has a NUL byte: this is not text, save it as UTF-8",
                )
        self._check_count(columns, delimiter, inside + (1 + int(rows[0])) * (len(names) - 1))
        return {name: KINDS.get(code, "text") for name, code in bits.items()}

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        names, delimiter, _ = self._header
        chosen = [_value(f"c{names.index(name)}", kind) for name, kind in wanted.items()]
        return framed(wanted, self._select(chosen, len(names), delimiter))

    def _select(self, expressions: Sequence[str], width: int, delimiter: str) -> list[Any]:
        """Expressions of the columns c0, c1, …, whatever their names."""
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(width))
        compression = "gzip" if zipped(self.path) else "none"
        query = (
            f"select {', '.join(expressions)} from read_csv(?, auto_detect=false, header=true, skip=0, "
            f"columns={{{columns}}}, delim='{delimiter}', quote='\"', escape='\"', comment='', encoding='utf-8', "
            f"compression='{compression}', nullstr={list(MISSING)}, strict_mode=true, null_padding=false, "
            "ignore_errors=false, hive_partitioning=false)"
        )
        return fetch(self.where, query, self.path)

    def _check_count(self, columns: Sequence[str], delimiter: str, expected: int) -> None:
        """Refuse a file with delimiters that are neither between values nor in them.

        DuckDB drops surplus values of a row where all are missing, and a row that has shifted may have such a one.
        """
        with raw(self.path) as file:
            count = sum(
                chunk.count(delimiter.encode()) for chunk in iter(partial(file.read, 1 << 20), b"")
            )
        if count != expected:
            parts = (
                f"coalesce(sum(length({x}) - length(replace({x}, '{delimiter}', ''))), 0)"
                for x in columns
            )
            inside = self._select([f"cast({' + '.join(parts)} as bigint)"], len(columns), delimiter)
            if count != expected + int(inside[0][0]):
                fail(
                    self.where,
                    "a line has more values than the first line has names: are values with "
                    f"{delimiter!r} in them quoted?",
                )

    @cached_property
    def _header(self) -> tuple[list[str], str, int]:
        """The names in the first line, the delimiter, and how many there are inside names.

        The delimiter is the candidate that is there most often, outside quotes.
        """
        with opened(self.where, self.path) as file:
            line = file.readline(HEADER)
            while line.count('"') % 2 and len(line) < HEADER and (more := file.readline(HEADER)):
                line += more
        if "\0" in line:
            fail(self.where, "its first line has a NUL byte: this is not text, save it as UTF-8")
        if not line.strip():
            fail(self.where, "its first line is empty: put the names of the columns there")
        bare = re.sub(r'"[^"]*"', "", line)
        counts = sorted(((bare.count(each), each) for each in self.delimiters), reverse=True)
        if len(counts) > 1 and counts[0][0] == counts[1][0] > 0:
            fail(
                self.where,
                f"its first line has {counts[0][1]!r} as often as {counts[1][1]!r}: use one between names",
            )
        delimiter = counts[0][1] if counts[0][0] else self.delimiters[0]
        try:
            names = [
                name.strip() for name in next(csv.reader([line], delimiter=delimiter, strict=True))
            ]
        except csv.Error as error:
            fail(self.where, f"its first line cannot be read: {error}")
        if broken := [name for name in names if "\n" in name or "\r" in name]:
            fail(
                self.where,
                f"the name {broken[0]!r} in the first line has a line break: write it in one line",
            )
        check_names(self.where, names)
        if all(re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", name) for name in names):
            fail(self.where, "its first line is numbers: put the names of the columns there")
        return names, delimiter, line.count(delimiter) - len(names) + 1


def _code(x: str) -> str:
    """The kinds of a column's values as bits: 1 number, 2 boolean, 4 date, 8 text, 16 not text."""
    return (
        f"coalesce(bit_or(case when {x} is null then 0 "
        f"when try_cast({x} as double) is not null and not contains({x}, '_') and not contains({x}, '+-') then 1 "
        rf"when regexp_full_match({x}, '\d{{4}}-\d\d-\d\d([ T]\d\d:\d\d.*)?') "
        f"and try_cast({x}[:10] as date) is not null then 4 "
        f"when lower(trim({x})) in ('true', 'false') then 2 "
        f"when trim({x}) in {MISSING} then 0 when contains({x}, chr(0)) then 16 else 8 end), 0)"
    )


def _value(x: str, kind: str) -> str:
    """The column as this kind; a value of another kind is DuckDB's error."""
    present = f"case when trim({x}) in {MISSING} then null else {x} end"
    return cast(f"cast(trim({present}) as boolean)" if kind == "boolean" else present, kind)
