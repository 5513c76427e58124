"""What the bytes of a text file say about how to read it."""

from __future__ import annotations

from functools import partial
from typing import IO, NamedTuple

from fedsplit.data.tables import fail


class Survey(NamedTuple):
    """Counts over a whole file, decompressed.

    Attributes
    ----------
    size : int
        Bytes.
    delimiters : int
    one_line_end : bool
        Whether all lines end in the same way.
    plain : bool
        Whether, moreover, that is with a line feed, and there are no quotation marks.
    """

    size: int
    delimiters: int
    one_line_end: bool
    plain: bool


def survey(where: str, file: IO[bytes], delimiter: str) -> Survey:
    """Count the delimiters of a file, and look at its line ends; a NUL byte is refused."""
    size = delimiters = returns = feeds = pairs = quotes = 0
    last = b""
    for chunk in iter(partial(file.read, 1 << 20), b""):
        if b"\0" in chunk:
            fail(where, "it has a NUL byte: save the file as text in UTF-8")
        size += len(chunk)
        delimiters += chunk.count(delimiter.encode())
        returns += chunk.count(b"\r")
        feeds += chunk.count(b"\n")
        quotes += chunk.count(b'"')
        pairs += chunk.count(b"\r\n") + (last + chunk[:1] == b"\r\n")
        last = chunk[-1:]
    one_line_end = not returns or not feeds or returns == feeds == pairs
    plain = one_line_end and not quotes and (feeds > 0 or not returns)
    return Survey(size, delimiters, one_line_end, plain)
