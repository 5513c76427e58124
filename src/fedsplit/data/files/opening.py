"""Opening a data file, compressed or not, without unpacking more than a data file would have."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

from fedsplit.data.tables import fail
from fedsplit.files import check_unpacked


class CheckedGzip(gzip.GzipFile):
    """A gzip file that refuses to be unpacked to far more than its size."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path
        self._packed = path.stat().st_size

    def read1(self, size: int = -1) -> bytes:
        chunk = super().read1(size)
        check_unpacked(self._path, self._packed, self.tell())
        return chunk


def open_bytes(path: Path) -> IO[bytes]:
    """Open the file's bytes, decompressed if its name says that it is compressed with gzip."""
    packed = path.suffix.lower() == ".gz"
    return cast(IO[bytes], CheckedGzip(path)) if packed else path.open("rb")


@contextmanager
def open_text(where: str, path: Path) -> Iterator[IO[str]]:
    """Open the file as UTF-8 text, with or without a byte order mark, its line ends unchanged.

    What goes wrong while it is read, up to the end of a gzip file, raises InputError.
    """
    check_file(where, path)
    try:
        with open_bytes(path) as file:
            yield TextIOWrapper(file, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError as error:
        fail(where, f"is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8")
    except OSError as error:
        fail(where, error.strerror or f"{error}: the file is damaged or incomplete")
    except (EOFError, zlib.error) as error:
        fail(where, f"{error}: the file is damaged or incomplete")


def check_file(where: str, path: Path) -> None:
    """Raise InputError unless this is a regular file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            fail(where, "is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            fail(where, "is not a file")
    except OSError as error:
        fail(where, error.strerror or error)
