"""Rows of delimited text, read by DuckDB.

It is fast on large files. Every choice is made here and none is left to its guesses: the result is
that of ``DelimitedRows``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedsplit.data.delimited_rows import fit_of
from fedsplit.data.header import Header
from fedsplit.data.opening import is_gzip
from fedsplit.data.reading import Reading, ValueClass
from fedsplit.data.sql import fetch
from fedsplit.data.tables import Values, fail
from fedsplit.data.text_sql import (
    days_of,
    is_boolean,
    is_date,
    is_integer,
    is_missing,
    is_number,
    literal,
    trimmed,
    with_point,
)
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
        classes = [f"{self._class(f'c{i}')} as k{i}" for i in range(len(names))]
        counts = [
            f"count(*) filter (k{i} = {code})"
            for i in range(len(names))
            for code in range(len(CLASSES))
        ]
        [rows], *found = self._select(["count(*)", *counts], classes)
        self._check_delimiters(int(rows))
        table = np.array(found, dtype=int).reshape(len(names), len(CLASSES))
        return {
            name: fit_of(Counter(dict(zip(CLASSES, map(int, row), strict=True))))
            for name, row in zip(names, table, strict=True)
        }

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        """Read some columns, as in ``Table.take``."""
        places = [f"c{self.header.names.index(name)}" for name in wanted]
        present = [self._present(place) for place in places]
        values = [
            f"{self._value(place, kind)} as v{i}"
            for i, (place, kind) in enumerate(zip(places, wanted.values(), strict=True))
        ]
        wrong = [f"v{i} is null and {each} is not null" for i, each in enumerate(present)]
        found = self._select([*(f"v{i}" for i in range(len(values))), *wrong], ["*", *values])
        columns, misfits = found[: len(wanted)], found[len(wanted) :]
        for (name, kind), expression, misfit in zip(wanted.items(), present, misfits, strict=True):
            if misfit.any():
                [texts] = self._select([expression])
                raise unreadable(self.where, name, kind, texts[np.argmax(misfit)], misfit)
        return dict(zip(wanted, columns, strict=True))

    def _select(
        self, expressions: Iterable[str], columns: Sequence[str] = ("*",)
    ) -> list[np.ndarray[Any, Any]]:
        """Return the values of SQL expressions.

        Parameters
        ----------
        expressions : iterable of str
            In the columns that ``columns`` names.
        columns : sequence of str
            In the trimmed texts of the file, called c0, c1, …
        """
        texts = [f"{trimmed(f't{i}')} as c{i}" for i in range(len(self.header.names))]
        query = (
            f"select {', '.join(expressions)} from (select {', '.join(columns)} "
            f"from (select {', '.join(texts)} from {self._rows()}))"
        )
        return fetch(self.where, query, self.path)

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

    def _present(self, x: str) -> str:
        """Return SQL for a trimmed text, null where it is missing."""
        return f"case when {is_missing(x, self.reading)} then null else {x} end"

    def _class(self, x: str) -> str:
        """Return SQL for the class of a trimmed text, as its place in ``CLASSES``."""
        number = with_point(x, self.reading)
        return (
            f"case when {is_missing(x, self.reading)} then 0 when {is_integer(number)} then 1 "
            f"when {is_number(number)} then 2 "
            f"when {is_date(x)} then 3 when {is_boolean(x)} then 4 else 5 end"
        )

    def _value(self, x: str, kind: Type) -> str:
        """Return SQL for a trimmed text as a type, null if it is missing or not of the type."""
        number = with_point(x, self.reading)
        boolean = f"when {is_boolean(x)} then cast(lower({x}) = 'true' as double)"
        match kind:
            case "number":
                value = f"case when {is_number(number)} then cast({number} as double) {boolean} end"
            case "boolean":
                value = f"case {boolean} end"
            case "date":
                value = f"case when {is_date(x)} then {days_of(x)} end"
            case "text":
                value = f"case when {is_number(number)} then {number} else {x} end"
        return f"case when {is_missing(x, self.reading)} then null else {value} end"

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
