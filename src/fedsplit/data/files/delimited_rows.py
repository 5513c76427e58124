"""Rows of delimited text, read in this process.

Python's parser takes files of any size and kind, and starts at once: it is for the many small files
of a federation, and for those that no other parser reads. Columns that are split already are read
in the same way.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedsplit.data.files.delimited_cells import Column
from fedsplit.data.files.header import Header, cells
from fedsplit.data.reading import PLAIN, Reading, ValueClass
from fedsplit.data.tables import DTYPES, Values, fail, one_line
from fedsplit.data.texts import unreadable
from fedsplit.data.types import Fit, Type, share
from fedsplit.errors import InputError

if TYPE_CHECKING:
    from _csv import Reader

ROWS_AT_ONCE = 20_000
"""Rows that are held as text."""

PLAIN_NUMBERS = re.compile(r"-?[0-9]+(\.[0-9]+)?(\n-?[0-9]+(\.[0-9]+)?)*")
"""Numbers one below the other, without spaces, signs or exponents that are seldom used."""

FRACTION = re.compile(r"\.0*[1-9]")
"""Of such a number that is not whole."""


class Misquoted(InputError):
    """A quotation mark is not closed, or is followed by more text."""


class DelimitedRows:
    """The rows of a file, some at a time.

    Parameters
    ----------
    where : str
        What error messages call the file.
    blocks : iterable of sequences of Column
        All columns, of some rows.
    names : sequence of str
        Of the columns.
    reading : Reading
    """

    def __init__(
        self,
        where: str,
        blocks: Iterable[Sequence[Column]],
        names: Sequence[str],
        reading: Reading,
    ) -> None:
        self._where = where
        self._blocks = blocks
        self._names = list(names)
        self._reading = reading

    def fits(self) -> dict[str, Fit | None]:
        """Return what the values of each column can be read as, as in ``Table.fits``."""
        classes: list[Counter[ValueClass]] = [Counter() for _ in self._names]
        for columns in self._blocks:
            for found, column in zip(classes, columns, strict=True):
                found.update(self._classes(column))
        return dict(zip(self._names, map(fit_of, classes), strict=True))

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        """Read some columns, as in ``Table.take``."""
        places = [self._names.index(name) for name in wanted]
        parts: list[list[np.ndarray[Any, Any]]] = [[] for _ in wanted]
        start = 0
        for columns in self._blocks:
            for part, place, (name, kind) in zip(parts, places, wanted.items(), strict=True):
                part.append(self._values(name, kind, columns[place], start))
            start += columns[0].rows
        empty: dict[Type, np.ndarray[Any, Any]] = {
            kind: np.empty(0, DTYPES[kind]) for kind in wanted.values()
        }
        whole = [
            np.concatenate(part or [empty[kind]])
            for part, kind in zip(parts, wanted.values(), strict=True)
        ]
        return dict(zip(wanted, whole, strict=True))

    def _plain(self, texts: Sequence[str]) -> str:
        """Return the values one below the other if all are plain numbers, else nothing.

        One search in them is faster than a look at each.
        """
        if self._reading != PLAIN:
            return ""
        lines = "\n".join(texts)
        # A value can have a line break in it.
        if lines.count("\n") < len(texts) and PLAIN_NUMBERS.fullmatch(lines):
            return lines
        return ""

    def _classes(self, column: Column) -> Counter[ValueClass]:
        """Return how many values of a column are of each class."""
        lines = self._plain(column.texts)
        if lines:
            total = column.rows
            decimal = 0
            if FRACTION.search(lines):
                decimal = sum(n for text, n in column.counted() if FRACTION.search(text))
            return Counter({"integer": total - decimal, "decimal": decimal})
        found: Counter[ValueClass] = Counter()
        for text, count in column.counted():
            found[self._reading.class_of(text.strip())] += count
        return found

    def _values(self, name: str, kind: Type, column: Column, start: int) -> np.ndarray[Any, Any]:
        """Return the values of a column, (n,), whose first is in the row after ``start``."""
        if kind == "number" and self._plain(column.texts):
            return column.spread(np.array(list(map(float, column.texts))))
        read = partial(self._reading.read, wanted=kind)
        try:
            known = {text: read(text) for text in set(column.texts)}
        except ValueError:
            texts = column.every()
            wrong = np.array([not _can(read, text) for text in texts])
            text = texts[int(np.argmax(wrong))].strip()
            earlier = np.zeros(start, dtype=bool)
            raise unreadable(
                self._where, name, kind, text, np.concatenate([earlier, wrong])
            ) from None
        return column.spread(np.array([known[text] for text in column.texts], dtype=DTYPES[kind]))


def parse_columns(where: str, file: IO[str], header: Header) -> Iterator[list[Column]]:
    """Yield the columns of some rows at a time, by Python's parser.

    Parameters
    ----------
    where : str
        What error messages call the file.
    file : text file
        At its start, opened without a conversion of line ends.
    header : Header
    """
    width = header.width
    rows: list[Sequence[str]] = []
    reader = cells(file, header.delimiter)
    for _ in range(header.skipped):
        next(reader)
    for row in _checked(where, reader):
        if len(row) != width:
            if row:
                fail(
                    where,
                    f"line {reader.line_num}: it has more or fewer values than the first line "
                    "has names",
                )
            if width > 1:  # an empty line
                continue
            row = [""]
        rows.append(row)
        if len(rows) == ROWS_AT_ONCE:
            yield _transposed(rows, header)
            rows = []
    if rows:
        yield _transposed(rows, header)


def _checked(where: str, reader: Reader) -> Iterator[list[str]]:
    """Yield the rows; raise Misquoted at a quotation mark that the parser refuses."""
    try:
        yield from reader
    except csv.Error:
        raise Misquoted(
            one_line(
                where,
                f"line {reader.line_num}: a quote is not closed, or has more text after it",
            )
        ) from None


def _transposed(rows: Sequence[Sequence[str]], header: Header) -> list[Column]:
    return list(map(Column, zip(*rows, strict=True)))[header.row_names :]


def fit_of(counts: Counter[ValueClass]) -> Fit:
    """Return how many of a column's values fit each type, from their number by class."""
    total = sum(counts.values()) - counts["missing"]
    return Fit(
        integer=share(counts["integer"], total),
        decimal=share(counts["integer"] + counts["decimal"], total),
        date=share(counts["date"], total),
        boolean=share(counts["boolean"], total),
        text=share(counts["text"], total),
    )


def _can(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True
