"""Rows of delimited text, read by DuckDB.

It is fast on large files. Every choice is made here and none is left to its guesses: the result is
that of ``DelimitedRows``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from fedsplit.data.files.delimited_rows import fit_of
from fedsplit.data.files.header import Header
from fedsplit.data.files.opening import is_gzip
from fedsplit.data.files.sql import fetch
from fedsplit.data.files.text_sql import (
    days_of,
    is_boolean,
    is_date,
    is_integer,
    is_missing,
    is_number,
    literal,
    plain,
    trimmed,
    with_point,
)
from fedsplit.data.reading import Reading, ValueClass
from fedsplit.data.tables import Values, fail
from fedsplit.data.texts import unreadable
from fedsplit.data.types import Fit, Type

CLASSES: tuple[ValueClass, ...] = get_args(ValueClass)


@dataclass(frozen=True)
class DelimitedQuery:
    """Queries of a file whose lines all end in the same way.

    Parameters
    ----------
    where : str
        What error messages call the file.
    path : Path
    header : Header
    reading : Reading
    delimiters : int
        How many the file has in all.
    """

    where: str
    path: Path
    header: Header
    reading: Reading
    delimiters: int

    def fits(self) -> dict[str, Fit | None]:
        """Return what the values of each column can be read as, as in ``Table.fits``."""
        names = self.header.names
        places = range(len(names))
        inner = self._texts({i: self._plain_class(f"t{i}") for i in places})
        classes = [
            f"case when f{i} is null then {self._class(f'c{i}')} else f{i} end as k{i}"
            for i in places
        ]
        counts = [
            f"count(*) filter (k{i} = {code})" for i in places for code in range(len(CLASSES))
        ]
        query = (
            f"select count(*), {', '.join(counts)} from (select {', '.join(classes)} from {inner})"
        )
        [rows], *found = fetch(self.where, query, self.path)
        self._check_delimiters(int(rows))
        table = np.array(found, dtype=int).reshape(len(names), len(CLASSES))
        return {
            name: fit_of(Counter(dict(zip(CLASSES, map(int, row), strict=True))))
            for name, row in zip(names, table, strict=True)
        }

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        """Read some columns, as in ``Table.take``."""
        kinds = {self.header.names.index(name): kind for name, kind in wanted.items()}
        inner = self._texts({i: self._plain_value(f"t{i}", kind) for i, kind in kinds.items()})
        values = []
        outer = []
        for i, kind in kinds.items():
            slow = self._value(f"c{i}", kind)
            values += [f"c{i}", f"case when f{i} is null then {slow} else f{i} end as v{i}"]
            missing = is_missing(f"c{i}", self.reading)
            outer += [f"v{i}", f"case when v{i} is null then not {missing} else false end"]
        query = f"select {', '.join(outer)} from (select {', '.join(values)} from {inner})"
        found = fetch(self.where, query, self.path)
        for i, name, misfit in zip(kinds, wanted, found[1::2], strict=True):
            if misfit.any():
                query = f"select {trimmed(f't{i}')} from {self._rows()}"
                [texts] = fetch(self.where, query, self.path)
                raise unreadable(self.where, name, kinds[i], texts[np.argmax(misfit)], misfit)
        return dict(zip(wanted, found[::2], strict=True))

    def _texts(self, fast: Mapping[int, str]) -> str:
        """Return SQL for some columns, in which every expression is evaluated once for a value.

        Parameters
        ----------
        fast : mapping of int to str
            For the column of each place, SQL for what is wanted of a text t0, t1, … if it is plain,
            and null if it is not. The result has that as f0, f1, … and as c0, c1, … the trimmed
            texts that are not plain.
        """
        found = ", ".join(f"t{i}, {expression} as f{i}" for i, expression in fast.items())
        slow = ", ".join(
            f"f{i}, case when f{i} is null then {trimmed(f't{i}')} end as c{i}" for i in fast
        )
        return f"(select {slow} from (select {found} from {self._rows()}))"

    def _rows(self) -> str:
        """Return SQL for the rows; the columns are called t0, t1, … in it."""
        header = self.header
        types = ", ".join(f"'{name}': 'VARCHAR'" for name in self._row)
        compression = "gzip" if is_gzip(self.path) else "none"
        return (
            f"read_csv(?, auto_detect=false, header=false, skip={header.skipped}, "
            f"columns={{{types}}}, delim={literal(header.delimiter)}, "
            "quote='\"', escape='\"', comment='', encoding='utf-8', "
            f"compression='{compression}', strict_mode=true, null_padding=false, "
            "ignore_errors=false, hive_partitioning=false)"
        )

    @property
    def _row(self) -> list[str]:
        """The names in SQL of all values of a row."""
        columns = [f"t{i}" for i in range(len(self.header.names))]
        if self.header.row_names:
            return ["row_name", *columns]
        return columns

    def _plain_class(self, t: str) -> str:
        """Return SQL for the class of a plain number, null for any other text."""
        if self.reading.na:  # which may be numbers
            return "null"
        number = with_point(t, self.reading)
        return f"case when {is_integer(number)} then 1 when {is_number(number)} then 2 end"

    def _class(self, x: str) -> str:
        """Return SQL for the class of a trimmed text, as its place in ``CLASSES``."""
        number = with_point(x, self.reading)
        return (
            f"case when {is_missing(x, self.reading)} then 0 when {is_integer(number)} then 1 "
            f"when {is_number(number)} then 2 "
            f"when {is_date(x)} then 3 when {is_boolean(x)} then 4 else 5 end"
        )

    def _plain_value(self, t: str, kind: Type) -> str:
        """Return SQL for a plain number as a double, null for any other text and type."""
        if kind != "number" or self.reading.na:
            return "null"
        number = with_point(t, self.reading)
        return f"case when {is_number(number)} then cast({number} as double) end"

    def _value(self, x: str, kind: Type) -> str:
        """Return SQL for a trimmed text as a type, null if it is missing or not of the type."""
        number = with_point(x, self.reading)
        boolean = f"when {is_boolean(x)} then cast(lower({x}) = 'true' as double)"
        match kind:
            case "number":
                found = f"case when {is_number(number)} then cast({number} as double) {boolean} end"
            case "boolean":
                found = f"case {boolean} end"
            case "date":
                found = f"case when {is_date(x)} then {days_of(x)} end"
            case "text":
                found = plain(x, self.reading)
        return f"case when {is_missing(x, self.reading)} then null else {found} end"

    def _check_delimiters(self, rows: int) -> None:
        """Raise InputError if there are delimiters that are neither between values nor in them.

        DuckDB silently drops the surplus values of a row if all of them are missing, and a row
        whose values are shifted can end in such a value.
        """
        header = self.header
        expected = header.delimiters + rows * (header.width - 1)
        # Those inside values need a query, and are looked for only if the count is not what
        # unquoted values would have.
        if self.delimiters == expected:
            return
        delimiter = literal(header.delimiter)
        inside = [
            f"coalesce(sum(length({name}) - length(replace({name}, {delimiter}, ''))), 0)"
            for name in self._row
        ]
        query = f"select cast({' + '.join(inside)} as bigint) from {self._rows()}"
        [[in_values]] = fetch(self.where, query, self.path)
        if self.delimiters != expected + int(in_values):
            fail(
                self.where,
                "a line has more values than the first line has names: are values with "
                f"{header.delimiter!r} in them quoted?",
            )
