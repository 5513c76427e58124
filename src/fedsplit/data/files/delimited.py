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
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.files.opening import open_text
from fedsplit.data.tables import DTYPES, Column, Table, Values, fail
from fedsplit.data.texts import (
    THOUSANDS,
    Texts,
    class_counts,
    number_counts,
    profile_of,
    unreadable,
)
from fedsplit.data.types import PLAIN, ColumnProfile, Reading, Type, ValueClass
from fedsplit.files import Stamp

if TYPE_CHECKING:
    from _csv import Reader

Part: TypeAlias = Texts | Array
"""The cells of a column in some rows; numbers where most of them are different numbers."""

Cells: TypeAlias = Callable[[int], "list[str] | Texts"]
"""Some rows: gives the cells of the column at a place."""

ROW_NAMES = "row names (a first column without a name) are left out"
"""The note on a file that has them."""


class DelimitedTable(Table):
    """Text whose first line has the names; all values of a column say what it can be read as.

    Of the ``delimiters`` that are possible, the one that occurs most often in the first line,
    outside quotes, is used; a space only if the line has none of the others.
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
        doubts = [
            f"column {name}: every number with a comma has three digits after it, as {text!r} has: "
            "if it separates thousands, decimal=',' is wrong here"
            for name, text in self._doubtful.items()
        ]
        return [ROW_NAMES, *doubts] if self._has_row_names else doubts

    def _names(self, small: int = 200_000) -> Sequence[str]:
        """Return the names of the columns; the rows after them are read as well if they are few.

        Rows of up to ``small`` characters, which are asked for next, stay in memory until then.
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
        self._doubtful |= {name: each.doubtful for name, each in columns.items() if each.doubtful}
        return columns

    def _read(self, file: IO[str], header: Header, columns: Mapping[str, CellColumn]) -> None:
        """Read columns from a file after its header."""
        absent = [name for name in columns if name not in header.names]
        if absent:
            fail(self.where, f"the file has changed: it no longer has a column {absent[0]!r}")
        places = {name: header.row_names + header.names.index(name) for name in columns}
        for block in rows_of(self.where, file, header):
            for name, column in columns.items():
                column.add(block(places[name]), self.reading)


class CellColumn:
    """The cells of a column of a file of text, to be read as a type, or None if that is to be seen.

    ``doubtful`` is a number, if every comma that was read as a decimal mark could separate
    thousands; None if one could not.
    """

    def __init__(self, kind: Type | None) -> None:
        self._as_numbers = kind in (None, "number")
        self._parts: list[Part] = []
        self.doubtful: str | None = ""

    def add(self, cells: list[str] | Texts, reading: Reading) -> None:
        """Append the cells of some rows; numbers most of which differ are read as such at once."""
        if isinstance(cells, Texts):
            distinct, differ = cells.distinct, 2 * len(cells.distinct) > len(cells.codes)
        else:
            some = cells[:1000]
            distinct, differ = cells, 2 * len(set(some)) > len(some)
        if reading.decimal == "," and self.doubtful is not None:
            self._doubt([cell for cell in distinct if "," in cell])
        # Numbers need less room than their texts.
        numbers = reading.numbers(distinct) if self._as_numbers and differ else None
        if isinstance(cells, Texts):
            self._parts.append(cells if numbers is None else numbers[cells.codes])
        else:
            self._parts.append(Texts.of(cells) if numbers is None else numbers)

    def offers(self, kind: Type) -> bool:
        return kind == "number" or all(isinstance(part, Texts) for part in self._parts)

    def profile(self, reading: Reading) -> ColumnProfile:
        counts: Counter[ValueClass] = Counter()
        for part in self._parts:
            if isinstance(part, Texts):
                counts.update(class_counts(part.counts(), reading))
            else:
                counts.update(number_counts(part))
        return profile_of(counts)

    def values(self, where: str, name: str, kind: Type, reading: Reading) -> Values:
        read: list[Any] = [np.empty(0, DTYPES[kind])]
        start = 0
        for part in self._parts:
            if isinstance(part, Texts):
                refused = partial(unreadable, where, name, kind, before=start)
                read.append(part.read(partial(reading.read, kind=kind), kind, refused))
            else:
                read.append(part)
            start += len(read[-1])
        return np.concatenate(read)

    def _doubt(self, with_comma: Sequence[str]) -> None:
        """Look whether the commas of some cells could separate thousands."""
        if not all(THOUSANDS.fullmatch(cell.strip()) for cell in with_comma):
            self.doubtful = None
        elif with_comma:
            self.doubtful = with_comma[0].strip()


class Header(NamedTuple):
    """What the first lines say: the names of the columns, without that of row names.

    ``row_names`` is whether the first value of every row is the row's name, which is no data;
    ``lines`` how many lines end before the first row, and ``rest`` the text after them that has
    been read already.
    """

    names: list[str]
    delimiter: str
    row_names: bool
    lines: int
    rest: str

    @property
    def width(self) -> int:
        """Values per row."""
        return len(self.names) + self.row_names


def read_header(where: str, file: IO[str], delimiters: str) -> Header:
    """Read the names of the columns at the start of a file whose line ends are not converted."""
    lines = list(islice(_records(file), 3))
    before = 0
    # The first line of a file for Excel, which reads the delimiter there.
    if lines and (stated := re.fullmatch(r'(?i)"?sep=([,;\t| ])"?[\r\n]*', lines[0])):
        delimiters = stated[1]
        before = 1
        del lines[0]
    if not lines:
        fail(where, "the file is empty: put the names of the columns into its first line")
    line, *rows = lines
    if "\0" in line:
        fail(where, "its first line has a NUL byte: save the file as text in UTF-8")
    if not line.strip():
        fail(where, "its first line is empty: put the names of the columns there")
    first = next((row for row in rows if row.strip()), "")
    try:
        delimiter = _delimiter(where, line, first, delimiters)
        names = [cell.strip() for cell in next(_parser([line], delimiter))]
    except csv.Error as error:
        fail(where, f"its first line cannot be read: {error}")
    for name in names:
        if "\n" in name or "\r" in name:
            fail(where, f"the name {name!r} in the first line has a line break: remove it")
    row_names = _has_row_names(line, len(names), first, delimiter)
    if not names[0] and len(names) > 1:  # R's write.csv and pandas' to_csv give them no name
        row_names = True
        names = names[1:]
    # Without a line of names, the first row of data would be lost.
    if all(re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", name) for name in names):
        fail(where, "its first line is numbers: put the names of the columns there")
    return Header(names, delimiter, row_names, before + 1, "".join(rows))


def _records(file: IO[str], longest: int = 1_000_000) -> Iterator[str]:
    """Yield lines of limited length, each of which goes on after a line break inside quotes."""
    while line := file.readline(longest):
        while line.count('"') % 2 and len(line) < longest and (more := file.readline(longest)):
            line += more
        yield line


def _delimiter(where: str, line: str, first: str, candidates: str) -> str:
    """Return the candidate that occurs most often outside quotes, or the first candidate."""
    unquoted = re.sub(r'"[^"]*"', "", line)
    marks = candidates.replace(" ", "") or candidates
    most = max(map(unquoted.count, marks))
    if most:
        best = [mark for mark in marks if unquoted.count(mark) == most]
        if len(best) > 1:
            fail(
                where,
                f"its first line has {best[0]!r} as often as {best[1]!r}: "
                "use one of them between names",
            )
        return best[0]
    # Spaces separate several names, and as many values in the first row.
    if " " in candidates:
        names = _count(line, " ")
        fits = _count(first, " ") == names or _has_row_names(line, names, first, " ")
        if names > 1 and fits:
            return " "
    return marks[0]


def _has_row_names(line: str, names: int, first: str, delimiter: str) -> bool:
    """Return whether rows begin with a name that the first line has no place for.

    R's write.table writes them so, all in quotes. Without quotes a row that has one value too many
    is a mistake, and its values must not be shifted.
    """
    quoted = line.startswith('"') and first.startswith('"')
    return quoted and _count(first, delimiter) == names + 1


def _count(line: str, delimiter: str) -> int:
    """Return how many values a row has, 0 if it cannot be read."""
    try:
        return len(next(_parser([line], delimiter), ()))
    except csv.Error:
        return 0


def _parser(lines: Iterable[str], delimiter: str) -> Reader:
    """Return an iterator over the lines' cells; it raises ``csv.Error`` at a misplaced quote."""
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=delimiter != " ")


def rows_of(where: str, file: IO[str], header: Header, size: int = 1 << 20) -> Iterator[Cells]:
    """Yield the rows of a file after its header, ``size`` characters at a time.

    They are enough for what is done once a block to cost nothing, and few beside what pandas takes.
    """
    text, lines = header.rest, header.lines
    while True:
        chunk = file.read(size)
        text += chunk
        if not text:
            return
        if not chunk and not text.endswith("\n"):  # the last line may have no end
            text += "\n"
        end = text.rfind("\n") + 1
        block = _split(text[:end], header)
        if block is None:
            break
        yield block
        lines += text.count("\n", 0, end)
        text = text[end:]
    # What was read may end within a line, even between the two marks of a line's end.
    text += file.readline()
    yield from _parsed(where, chain(StringIO(text, newline=""), file), header, lines)


def _split(text: str, header: Header, few: int = 10_000) -> Cells | None:
    """Find the cells of whole lines; None if they need a parser, or a message from it.

    Up to ``few`` characters the parser is faster.
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
    """Return the cells between places in the bytes of a text, each (n,).

    ``data`` is the same bytes as an array, (N + WORD,), with zeros after them.
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
    """Yield the rows of lines that may have quotes, after ``before`` others, some at a time."""
    reader = _parser(_tidied(where, lines, header.delimiter), header.delimiter)
    width = header.width
    cells: list[str] = []
    began = before + 1
    try:
        for row in reader:
            if row and len(row) != width:
                fail(
                    where,
                    f"line {before + reader.line_num}: it has more or fewer values than the first "
                    "line has names",
                )
            # An empty line is a missing value if there is but one column, and else no row.
            cells += row or [""] * (width == 1)
            began = before + reader.line_num + 1
            if len(cells) >= at_once * width:
                yield partial(_column_of, cells, width)
                cells = []
    except csv.Error:
        fail(where, f"line {began}: a quote is not closed, or has more text after it")
    yield partial(_column_of, cells, width)


def _column_of(cells: list[str], width: int, place: int) -> list[str]:
    return cells[place::width]


def _tidied(where: str, lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """Yield lines without the spaces between a closing quote and a delimiter, which csv refuses.

    Cells are trimmed in any case, so that nothing is lost where this quote is an opening one.
    """
    loose = re.compile(rf'(?<!")" +(?=[{re.escape(delimiter)}\r\n])')
    for line in lines:
        if "\0" in line:
            fail(where, "it has a NUL byte: save the file as text in UTF-8")
        yield loose.sub('"', line) if '" ' in line and delimiter != " " else line
