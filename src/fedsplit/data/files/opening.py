"""Opening a data file, compressed or not."""

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


def is_gzip(path: Path) -> bool:
    """Return whether the file's name says that it is compressed with gzip."""
    return path.suffix.lower() == ".gz"


def open_bytes(path: Path) -> IO[bytes]:
    """Open the file's bytes, decompressed."""
    if is_gzip(path):
        return cast(IO[bytes], gzip.open(path))
    return path.open("rb")


@contextmanager
def open_text(where: str, path: Path) -> Iterator[IO[str]]:
    """Open the file as UTF-8 text, with or without a byte order mark, its line ends unchanged."""
    check_file(where, path)
    with open_bytes(path) as file, decoded(where, file) as text:
        yield text


@contextmanager
def decoded(where: str, file: IO[bytes]) -> Iterator[IO[str]]:
    """Yield the bytes of a file as text, as in ``open_text``."""
    try:
        yield TextIOWrapper(file, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError as error:
        fail(where, f"is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8")


def check_file(where: str, path: Path) -> int:
    """Return how many bytes a file has, as it is on the disk.

    Raises
    ------
    InputError
        Unless this is a regular file that can be opened, complete if it is compressed.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            fail(where, "is a folder, not a file")
        if not stat.S_ISREG(found.st_mode):
            fail(where, "is not a file")
        with open_bytes(path) as file:
            # gzip verifies its checksum at the end of the file; DuckDB never does.
            while is_gzip(path) and file.read(1 << 20):
                pass
        return found.st_size
    except OSError as error:
        fail(where, error.strerror or error)
    except (EOFError, zlib.error) as error:
        fail(where, f"{error}: the file is damaged or incomplete")
