"""The first lines of a delimited file: its delimiter, and the names of its columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING, NamedTuple

from fedsplit.data.tables import check_names, fail

if TYPE_CHECKING:
    from _csv import Reader

LONGEST_LINE = 1_000_000
"""Most characters of each of the first lines."""

SEPARATOR_LINE = re.compile(r'"?sep=([,;\t| ])"?[\r\n]*', re.IGNORECASE)
"""The first line of a file for Excel, which is told the delimiter there."""


ROW_NAMES = "row names (a first column without a name) are left out"
"""What a user is told of a file that has them."""


class Header(NamedTuple):
    """What the first lines say.

    Attributes
    ----------
    names : list of str
        Of the columns, without that of row names.
    delimiter : str
        One character.
    row_names : bool
        Whether the first value of every row is the row's name, which is no data.
    lines : int
        How many lines end before the first row.
    rest : str
        Text after these lines that has been read already.
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
    """Read the names of a file's columns.

    Parameters
    ----------
    where : str
        What error messages call the file.
    file : text file
        At its start, opened without a conversion of line ends.
    delimiters : str
        Candidates; the one that occurs most often in the first line, outside quotes, is used. A
        space is one only if the line has none of the others.
    """
    lines = list(islice(_records(file), 3))
    before = 0
    if lines and (stated := SEPARATOR_LINE.fullmatch(lines[0])):
        delimiters = stated[1]
        before = 1
        del lines[0]
    _check_text(where, lines)
    line, *rows = lines
    first = next((row for row in rows if row.strip()), None)
    try:
        delimiter = _delimiter(where, line, first, delimiters)
        names = [cell.strip() for cell in split(line, delimiter)]
    except csv.Error as error:
        fail(where, f"its first line cannot be read: {error}")
    for name in names:
        if "\n" in name or "\r" in name:
            fail(where, f"the name {name!r} in the first line has a line break: remove it")
    row_names = _has_row_names(line, len(names), first, delimiter)
    if not names[0] and len(names) > 1:  # R's write.csv and pandas' to_csv give them no name
        row_names = True
        names = names[1:]
    check_names(where, names)
    # Without a line of names, the first row of data would be lost.
    if all(re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", name) for name in names):
        fail(where, "its first line is numbers: put the names of the columns there")
    return Header(names, delimiter, row_names, before + 1, "".join(rows))


def _records(file: IO[str]) -> Iterator[str]:
    """Yield lines, each of which goes on after a line break inside quotes."""
    while line := file.readline(LONGEST_LINE):
        while line.count('"') % 2 and len(line) < LONGEST_LINE:
            more = file.readline(LONGEST_LINE)
            if not more:
                break
            line += more
        yield line


def _check_text(where: str, lines: Sequence[str]) -> None:
    """Raise InputError unless the first line can hold names."""
    if not lines:
        fail(where, "the file is empty: put the names of the columns into its first line")
    if "\0" in lines[0]:
        fail(where, "its first line has a NUL byte: save the file as text in UTF-8")
    if not lines[0].strip():
        fail(where, "its first line is empty: put the names of the columns there")


def _delimiter(where: str, line: str, first: str | None, candidates: str) -> str:
    """Return the candidate that occurs most often outside quotes, or the first candidate."""
    unquoted = re.sub(r'"[^"]*"', "", line)
    marks = candidates.replace(" ", "") or candidates
    most = max(unquoted.count(each) for each in marks)
    if most:
        found = [each for each in marks if unquoted.count(each) == most]
        if len(found) > 1:
            fail(
                where,
                f"its first line has {found[0]!r} as often as {found[1]!r}: "
                "use one of them between names",
            )
        return found[0]
    if " " in candidates and _is_spaced(line, first):
        return " "
    return marks[0]


def _is_spaced(line: str, first: str | None) -> bool:
    """Return whether spaces separate several names, and as many values in the first row."""
    names = len(split(line, " "))
    if names == 1 or first is None:
        return False
    return _count(first, " ") == names or _has_row_names(line, names, first, " ")


def _has_row_names(line: str, names: int, first: str | None, delimiter: str) -> bool:
    """Return whether rows begin with a name that the first line has no place for.

    R's write.table writes them so, all in quotes. Without quotes a row that has one value too many
    is a mistake, and its values must not be shifted.
    """
    if first is None or not (line.startswith('"') and first.startswith('"')):
        return False
    return _count(first, delimiter) == names + 1


def _count(line: str, delimiter: str) -> int:
    """Return how many values a row has, 0 if it cannot be read."""
    try:
        return len(split(line, delimiter))
    except csv.Error:
        return 0


def split(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line."""
    return next(cells([line], delimiter))


def cells(lines: Iterable[str], delimiter: str) -> Reader:
    """Return an iterator over the lines' cells; it raises ``csv.Error`` at a misplaced quote."""
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=delimiter != " ")
