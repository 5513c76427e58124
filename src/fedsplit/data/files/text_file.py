"""A text file; a small one is read from disk only once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO

from fedsplit.data.files.opening import check_file, decoded, open_bytes

SMALL = 200_000
"""Most bytes of a file, as it is on the disk, that is small."""


class TextFile:
    """A text file that is opened several times; the bytes of a small one are kept in between.

    Parameters
    ----------
    where : str
        What error messages call the file.
    path : Path
    """

    def __init__(self, where: str, path: Path) -> None:
        self._where = where
        self._path = path
        self._kept: bytes | None = None

    def open_bytes(self) -> IO[bytes]:
        """Open the bytes, decompressed."""
        if self._kept is not None:
            return BytesIO(self._kept)
        if check_file(self._where, self._path) > SMALL:
            return open_bytes(self._path)
        with open_bytes(self._path) as file:
            self._kept = file.read()
        return BytesIO(self._kept)

    @contextmanager
    def open_text(self) -> Iterator[IO[str]]:
        """Open the text, with or without a byte order mark, its line ends unchanged."""
        with self.open_bytes() as file, decoded(self._where, file) as text:
            yield text

    def forget(self) -> None:
        """Drop what is kept."""
        self._kept = None
