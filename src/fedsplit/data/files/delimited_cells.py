"""Rows of delimited text without quotes, split by NumPy.

Most columns of most files have few distinct values, each of a few characters. The eight bytes from
where a cell begins are a number, and equal numbers are equal cells: no text is made of a cell that
was seen before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.files.header import Header

BLOCK = 1 << 22
"""Bytes that are split at a time."""

WORD = 8
"""Bytes of a number."""

LONGEST = 8 * WORD
"""Most bytes of a cell."""

FIRST_BYTES = np.array([(1 << 8 * i) - 1 for i in range(WORD + 1)], dtype=np.uint64)
"""By number, a word in which all bits of so many bytes are set."""


class Unsuited(Exception):
    """The file is for another parser, which also says what is wrong with it."""


class Column(NamedTuple):
    """The cells of a column in some rows.

    Attributes
    ----------
    texts : sequence of str
        Of every row, or the distinct ones.
    codes : (n,) array of int or None
        The place of every row's text among the distinct ones; None where every row has its own.
    """

    texts: Sequence[str]
    codes: NDArray[Any] | None = None

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of every row, (n,), from those of the texts."""
        if self.codes is None:
            return values
        found: NDArray[Any] = values[self.codes]
        return found

    def every(self) -> Sequence[str]:
        """The texts of all rows."""
        if self.codes is None:
            return self.texts
        return [self.texts[code] for code in self.codes.tolist()]

    def counted(self) -> Iterable[tuple[str, int]]:
        """Each distinct text, with its number of rows."""
        if self.codes is None:
            return Counter(self.texts).items()
        return zip(self.texts, np.bincount(self.codes).tolist(), strict=True)

    @property
    def rows(self) -> int:
        """How many there are."""
        if self.codes is None:
            return len(self.texts)
        return len(self.codes)


def split_columns(file: IO[bytes], header: Header) -> Iterator[list[Column]]:
    """Yield the columns of some rows at a time.

    Parameters
    ----------
    file : binary file
        At its start. It has no quotation marks and no NUL bytes, and its lines all end in the same
        way, with a line feed.
    header : Header

    Raises
    ------
    Unsuited
        If a row has more or fewer values than the first line has names, a text is long, or the file
        is not UTF-8.
    """
    line_end = b"\n"
    for _ in range(header.skipped):
        if file.readline().endswith(b"\r\n"):
            line_end = b"\r\n"
    rest = b""
    while chunk := file.read(BLOCK):
        lines, feed, rest = (rest + chunk).rpartition(b"\n")
        if feed:
            yield _split(lines + feed, header, line_end)
    if rest:
        yield _split(rest + line_end, header, line_end)


def _split(lines: bytes, header: Header, line_end: bytes) -> list[Column]:
    """The columns of whole lines."""
    try:
        lines.decode()
    except UnicodeDecodeError:
        raise Unsuited from None
    data = np.frombuffer(lines + bytes(LONGEST), dtype=np.uint8)
    feeds = data == ord("\n")
    ends = np.flatnonzero(feeds | (data == ord(header.delimiter)))
    rows = np.count_nonzero(feeds)
    if len(ends) != rows * header.width or not feeds[ends[header.width - 1 :: header.width]].all():
        raise Unsuited
    starts = np.concatenate([[0], ends[:-1] + 1]).reshape(rows, header.width)
    lengths = ends.reshape(rows, header.width) - starts
    lengths[:, -1] -= len(line_end) - 1
    if lengths.max() > LONGEST:
        raise Unsuited
    places = range(int(header.row_names), header.width)
    return [_column(data, starts[:, j], lengths[:, j]) for j in places]


def _column(data: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> Column:
    """The cells that begin at ``starts`` in the bytes of a file, (n,)."""
    # a word from every byte on, without a copy
    words = np.ndarray((len(data) - WORD + 1,), "<u8", data, 0, (1,))
    width = max(1, -(-int(lengths.max()) // WORD))
    cells = np.empty((len(starts), width), dtype="<u8")
    for k in range(width):
        cells[:, k] = words[starts + k * WORD]
        cells[:, k] &= FIRST_BYTES[np.clip(lengths - k * WORD, 0, WORD)]
    codes = None
    if width == 1:
        codes, cells = pd.factorize(cells[:, 0])
        codes = codes.astype(np.min_scalar_type(len(cells)))
    # bytes without the zeros after them
    texts = cells.reshape(-1).view(f"S{WORD * width}").tolist()
    return Column(b"\n".join(texts).decode().split("\n"), codes)
