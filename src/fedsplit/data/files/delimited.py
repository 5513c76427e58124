"""Delimited text: CSV and its relatives.

There is one parser, Python's ``csv`` in its strict mode. Blocks of lines without quotation marks,
of which most large files consist, need none: NumPy looks where the delimiters are, and texts are
made only of the cells that are asked for, once of those that are equal.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.files.header import ROW_NAMES, Header, cells, read_header
from fedsplit.data.files.opening import open_text
from fedsplit.data.look_alikes import THOUSANDS
from fedsplit.data.reading import PLAIN, Reading, ValueClass
from fedsplit.data.tables import DTYPES, Column, Table, Values, fail
from fedsplit.data.texts import Texts, class_counts, profile_of
from fedsplit.data.types import ColumnProfile, Type
from fedsplit.files import Stamp

Part: TypeAlias = Texts | Array
"""The cells of a column in some rows; numbers where most of them are different numbers."""


class DelimitedTable(Table):
    """Text whose first line has the names; all values of a column say what it can be read as.

    Parameters
    ----------
    name, where, path, reading
        As in ``Table``.
    delimiters : str
        Candidates; the one that occurs most often in the first line, outside quotes, is used. A
        space is one only if the line has none of the others.
    """

    path: Path

    def __init__(
        self, name: str, where: str, path: Path, reading: Reading = PLAIN, *, delimiters: str
    ) -> None:
        super().__init__(name, where, path, reading)
        self._delimiters = delimiters
        self._doubtful: dict[str, str] = {}
        self._begun: tuple[Stamp | None, Header] | None = None

    def notes(self) -> Sequence[str]:
        self.names()  # which are read by now, as a rule
        found = [
            f"column {name}: every number with a comma has three digits after it, as {text!r} has: "
            "if it separates thousands, decimal=',' is wrong here"
            for name, text in self._doubtful.items()
        ]
        if self._has_row_names:
            found.insert(0, ROW_NAMES)
        return found

    def _names(self, small: int = 200_000) -> Sequence[str]:
        """Return the names of the columns.

        Parameters
        ----------
        small : int
            Characters up to which the rows, which are asked for next, are kept until then.
        """
        stamp = self._stamp_now()
        with open_text(self.where, self.path) as file:
            header = read_header(self.where, file, self._delimiters)
            rest = file.read(small)
            if len(rest) < small:
                self._begun = stamp, header._replace(rest=header.rest + rest)
        self._has_row_names = header.row_names
        return header.names

    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        columns = {name: CellColumn(kind) for name, kind in wanted.items()}
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == self._stamp_now():
            self._read(StringIO(), begun[1], columns)
        else:
            with open_text(self.where, self.path) as file:
                self._read(file, read_header(self.where, file, self._delimiters), columns)
        for name, column in columns.items():
            if column.doubtful:
                self._doubtful[name] = column.doubtful
        return columns

    def _read(self, file: IO[str], header: Header, columns: Mapping[str, CellColumn]) -> None:
        """Read columns from a file after its header."""
        absent = [name for name in columns if name not in header.names]
        if absent:
            fail(self.where, f"the file has changed: it no longer has a column {absent[0]!r}")
        first = int(header.row_names)
        places = {name: first + header.names.index(name) for name in columns}
        for block in rows_of(self.where, file, header):
            for name, column in columns.items():
                column.add(block(places[name]), self.reading)


class CellColumn:
    """The cells of a column of a file of text, which says nothing about types.

    Parameters
    ----------
    kind : Type or None
        What the values are to be read as; None if that is to be seen.

    Attributes
    ----------
    doubtful : str or None
        A number, if every comma that was read as a decimal mark could separate thousands; None if
        one could not.
    """

    def __init__(self, kind: Type | None) -> None:
        self._texts_wanted = kind not in (None, "number")
        self._parts: list[Part] = []
        self.doubtful: str | None = ""

    def add(self, cells: list[str] | Texts, reading: Reading, sample: int = 1000) -> None:
        """Append the cells of some rows.

        Parameters
        ----------
        cells : list of str or Texts
        reading : Reading
        sample : int
            Cells by which it is seen whether most of them are different. Numbers that are need
            less room than their texts, and are read as such at once.
        """
        distinct = cells.distinct if isinstance(cells, Texts) else cells
        if reading.decimal == "," and self.doubtful is not None:
            self._doubt([cell for cell in distinct if "," in cell])
        numbers = None
        if not self._texts_wanted and self._differ(cells, sample):
            numbers = reading.numbers(distinct)
        if isinstance(cells, Texts):
            self._parts.append(cells if numbers is None else numbers[cells.codes])
        else:
            self._parts.append(Texts.of(cells) if numbers is None else numbers)

    def _differ(self, cells: list[str] | Texts, sample: int) -> bool:
        """Return whether most cells are different, of a list by a sample."""
        if isinstance(cells, Texts):
            return 2 * len(cells.distinct) > len(cells.codes)
        some = cells[:sample]
        return 2 * len(set(some)) > len(some)

    def offers(self, kind: Type) -> bool:
        return kind == "number" or all(isinstance(part, Texts) for part in self._parts)

    def profile(self, reading: Reading) -> ColumnProfile:
        counts: Counter[ValueClass] = Counter()
        for part in self._parts:
            if isinstance(part, Texts):
                counts.update(class_counts(part.counts(), reading))
                continue
            missing = int(np.count_nonzero(np.isnan(part)))
            whole = int(np.count_nonzero(np.isfinite(part) & (np.floor(part) == part)))
            counts["missing"] += missing
            counts["integer"] += whole
            counts["decimal"] += len(part) - missing - whole
        return profile_of(counts)

    def values(self, where: str, name: str, kind: Type, reading: Reading) -> Values:
        found: list[Any] = [np.empty(0, DTYPES[kind])]
        start = 0
        for part in self._parts:
            if isinstance(part, Texts):
                found.append(part.read(where, name, kind, reading, start))
            else:
                found.append(part)
            start += len(found[-1])
        return np.concatenate(found)

    def _doubt(self, with_comma: Sequence[str]) -> None:
        """Look whether the commas of some cells could separate thousands."""
        if not all(THOUSANDS.fullmatch(cell.strip()) for cell in with_comma):
            self.doubtful = None
        elif with_comma:
            self.doubtful = with_comma[0].strip()


Cells: TypeAlias = Callable[[int], "list[str] | Texts"]
"""Some rows: gives the cells of the column at a place."""


def rows_of(where: str, file: IO[str], header: Header, size: int = 1 << 20) -> Iterator[Cells]:
    """Yield the rows of a file, some at a time.

    Parameters
    ----------
    where : str
        What error messages call the file.
    file : text file
        After the header, opened without a conversion of line ends.
    header : Header
    size : int
        Characters that are split at a time: enough for what is done once a block to cost nothing,
        and few beside what pandas takes.
    """
    rest = header.rest
    lines = header.lines
    while chunk := file.read(size):
        whole, feed, rest = (rest + chunk).rpartition("\n")
        block = _split(whole + feed, header)
        if block is None:
            rest = whole + feed + rest
            break
        lines += whole.count("\n") + 1
        yield block
    else:
        if not rest:
            return
        # The last line may have no end.
        block = _split(rest if rest.endswith("\n") else rest + "\n", header)
        if block is not None:
            yield block
            return
    # What was read may end within a line, even between the two marks of a line's end.
    rest += file.readline()
    yield from _parsed(where, chain(StringIO(rest, newline=""), file), header, lines)


def _split(text: str, header: Header, few: int = 10_000) -> Cells | None:
    """Find the cells of whole lines; None if they need a parser, or a message from it.

    Parameters
    ----------
    text : str
    header : Header
    few : int
        Characters up to which the parser is faster than NumPy.
    """
    if len(text) < few or '"' in text or not text:
        return None
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\r" in text or "\0" in text:
        return None
    content = text.encode()
    data = np.frombuffer(content + bytes(WORD), dtype=np.uint8)
    feeds = data == ord("\n")
    ends = np.flatnonzero(feeds | (data == ord(header.delimiter)))
    rows = np.count_nonzero(feeds)
    if len(ends) != rows * header.width or not feeds[ends[header.width - 1 :: header.width]].all():
        return None
    # A cell begins after the end of the one before it, the first one at the very beginning.
    before, after = (each.reshape(rows, header.width) for each in (np.append(-1, ends[:-1]), ends))
    return lambda place: _cells(content, data, before[:, place] + 1, after[:, place])


WORD = 8
"""Bytes of a number that stands for a cell."""


def _cells(content: bytes, data: Any, starts: Any, ends: Any) -> list[str] | Texts:
    """Return the cells between places in the bytes of a text, each place (n,).

    Parameters
    ----------
    content : bytes
    data : (N + WORD,) array of uint8
        The same, and zeros.
    starts, ends : (n,) arrays of int
    """
    lengths = ends - starts
    if lengths.max() > WORD:
        return [content[i:j].decode() for i, j in zip(starts.tolist(), ends.tolist(), strict=True)]
    # The eight bytes from every place on are a number: equal numbers are equal cells.
    words = np.ndarray((len(data) - WORD + 1,), "<u8", data, 0, (1,))
    masks = np.array([(1 << 8 * length) - 1 for length in range(WORD + 1)], dtype="<u8")
    codes, distinct = pd.factorize(words[starts] & masks[lengths])
    # As bytes, without the zeros after them.
    texts = [word.decode() for word in distinct.astype("<u8").view(f"S{WORD}").tolist()]
    return Texts(texts, codes.astype(np.min_scalar_type(-len(texts) - 1)))


def _parsed(
    where: str, lines: Iterable[str], header: Header, before: int, at_once: int = 20_000
) -> Iterator[Cells]:
    """Yield the rows of lines that may have quotes.

    Parameters
    ----------
    where : str
    lines : iterable of str
        With their ends, of any kind.
    header : Header
    before : int
        How many lines of the file there are before these.
    at_once : int
        Rows that are held as text.
    """
    reader = cells(_tidied(where, lines, header.delimiter), header.delimiter)
    found: list[str] = []
    began = before + 1
    try:
        for row in reader:
            if row and len(row) != header.width:
                fail(
                    where,
                    f"line {before + reader.line_num}: it has more or fewer values than the first "
                    "line has names",
                )
            # An empty line is a missing value if there is but one column, and else no row.
            found += row or [""] * (header.width == 1)
            began = before + reader.line_num + 1
            if len(found) >= at_once * header.width:
                yield partial(_every, found, header.width)
                found = []
    except csv.Error:
        fail(where, f"line {began}: a quote is not closed, or has more text after it")
    if found:
        yield partial(_every, found, header.width)


def _every(cells: list[str], width: int, place: int) -> list[str]:
    """Return the cells of a column, from those of rows of this width."""
    return cells[place::width]


def _tidied(where: str, lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """Yield lines without the spaces between a closing quote and a delimiter, which csv refuses.

    Cells are trimmed in any case, so that nothing is lost where this quote is an opening one.
    """
    loose = re.compile(rf'(?<!")" +(?=[{re.escape(delimiter)}\r\n])')
    for line in lines:
        _check_nul(where, line)
        if '" ' in line and delimiter != " ":
            line = loose.sub('"', line)
        yield line


def _check_nul(where: str, text: str) -> None:
    if "\0" in text:
        fail(where, "it has a NUL byte: save the file as text in UTF-8")
