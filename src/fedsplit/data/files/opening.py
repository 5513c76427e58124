"""Opening a file that a user names: data, compressed or not, or TOML, of no more than sane size."""

from __future__ import annotations

import gzip
import re
import stat
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

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


PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
DEEP_KEY = re.compile(rf"(?<![\w-]){PART}(?:[ \t]*\.[ \t]*{PART}){{16,}}")
"""A key that tomllib would take minutes and gigabytes for, if it has thousands of parts."""


def is_toml(path: Path) -> bool:
    """Return whether a file is TOML, by its name."""
    return path.suffix.lower() == ".toml"


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file holds; InputError if it is not TOML, or of no sensible size."""
    where = str(path)
    check_file(where, path)
    try:
        # room for 400 characters for each of 10 000 clients: Python takes a second for each MB
        if path.stat().st_size > (1 << 22):
            fail(where, "is larger than 4 MB, which no list of clients or model is")
        text = path.read_text(encoding="utf-8")
        if DEEP_KEY.search(text):
            fail(where, "has a key of more than sixteen parts: two or three are enough")
        return tomllib.loads(text)
    except OSError as error:
        fail(where, error.strerror or error)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        fail(where, f"is not TOML: {error}")
