"""Delimited text: CSV and its relatives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from fedsplit.data.files.delimited_cells import Column, Unsuited, split_columns
from fedsplit.data.files.delimited_rows import DelimitedRows, Misquoted, parse_columns
from fedsplit.data.files.delimited_sql import DelimitedQuery
from fedsplit.data.files.header import ROW_NAMES, Header, read_header
from fedsplit.data.files.survey import Survey, survey
from fedsplit.data.files.text_file import TextFile
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import Values
from fedsplit.data.types import Fit, Type

SMALL = 200_000
"""Bytes up to which Python's parser is faster than DuckDB, which takes milliseconds to start."""

FEW = 10_000
"""Bytes up to which Python's parser is faster than NumPy."""

MANY = 1 << 25
"""Bytes from which DuckDB, which uses all cores, is faster than NumPy."""

T = TypeVar("T")


@dataclass
class DelimitedTable:
    """Text whose first line has the names; all values of a column say what it can be read as.

    There are three parsers, which read the same from every file: NumPy's for files without quotes,
    Python's for small files and for what the others cannot read, and DuckDB's for large ones.

    Parameters
    ----------
    where : str
        What error messages call the file.
    path : Path
    delimiters : str
        Candidates; the one that occurs most often in the first line, outside quotes, is used. A
        space is one only if the line has none of the others.
    reading : Reading
    """

    where: str
    path: Path
    delimiters: str
    reading: Reading = PLAIN
    _coded: Sequence[Sequence[Column]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def fits(self) -> dict[str, Fit | None]:
        return self._ask(DelimitedRows.fits, DelimitedQuery.fits)

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        found = self._ask(lambda rows: rows.take(wanted), lambda query: query.take(wanted))
        self._file.forget()  # not to be held in memory beside what is made of it
        self._coded = None
        return found

    def notes(self) -> list[str]:
        if self._header.row_names:
            return [ROW_NAMES]
        return []

    def _ask(
        self, of_rows: Callable[[DelimitedRows], T], of_query: Callable[[DelimitedQuery], T]
    ) -> T:
        """Return the answer of the parser that suits the file."""
        # A space next to a quote may be a delimiter, which DuckDB does not see.
        regular = self._survey.one_line_end and self._header.delimiter != " "
        if regular and self._survey.plain and FEW < self._survey.size <= MANY:
            with contextlib.suppress(Unsuited):
                return of_rows(self._rows(self._columns()))
        if regular and self._survey.size > SMALL:
            return of_query(self._query)
        try:
            with self._file.open_text() as file:
                return of_rows(self._rows(parse_columns(self.where, file, self._header)))
        except Misquoted:
            if not regular:
                raise
            # DuckDB takes spaces after a quote too, and else says what is wrong.
            return of_query(self._query)

    def _rows(self, blocks: Iterable[Sequence[Column]]) -> DelimitedRows:
        return DelimitedRows(self.where, blocks, self._header.names, self.reading)

    def _columns(self) -> Iterator[Sequence[Column]]:
        """Yield the columns; codes, which take less memory than the file, are kept until taken."""
        if self._coded is not None:
            yield from self._coded
            return
        found = []
        every = True
        with self._file.open_bytes() as file:
            for columns in split_columns(file, self._header):
                every = every and all(column.codes is not None for column in columns)
                if every:
                    found.append(columns)
                yield columns
        if every:
            self._coded = found

    @property
    def _query(self) -> DelimitedQuery:
        return DelimitedQuery(
            self.where, self.path, self._header, self.reading, self._survey.delimiters
        )

    @cached_property
    def _file(self) -> TextFile:
        return TextFile(self.where, self.path)

    @cached_property
    def _header(self) -> Header:
        with self._file.open_text() as file:
            return read_header(self.where, file, self.delimiters)

    @cached_property
    def _survey(self) -> Survey:
        with self._file.open_bytes() as file:
            return survey(self.where, file, self._header.delimiter)
