"""What every table gives, and how it refuses."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol, cast

import numpy as np
import pandas as pd

from fedsplit.errors import InputError


class Table(Protocol):
    """Columns of four kinds that can be read: number, boolean, text, date; any other is ``other``."""

    def kinds(self) -> dict[str, str]:
        """Each column's kind."""
        ...

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        """The wanted columns, each as its own kind or as text.

        Numbers and booleans are float64 with NaN for missing, text and dates object with None.
        """
        ...


def fail(where: str, what: object) -> NoReturn:
    """Refuse in one line."""
    line = " ".join(str(what).split())
    raise InputError(
        f"{' '.join(where.split())}: {line if len(line) <= 250 else line[:249] + '…'}"
    ) from None


def check_names(where: str, names: Sequence[str]) -> None:
    """Refuse two columns of one name, and no column at all."""
    if not names:
        fail(where, "it has no columns")
    if "" in names:
        fail(where, f"column {names.index('') + 1} of {len(names)} has no name: name it")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        fail(where, f"{count} columns are named {name!r}: rename all but one")


def check_file(where: str, path: Path) -> None:
    """Refuse what is not a file that can be opened, and a gzip file that is not whole."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            fail(where, "is a folder, not a file" if stat.S_ISDIR(mode) else "is not a file")
        with raw(path) as file:
            while zipped(path) and file.read(1 << 20):  # DuckDB does not look at the checksum
                pass
    except OSError as error:
        fail(where, error.strerror or error)
    except (EOFError, zlib.error) as error:
        fail(where, f"{error}: the file is damaged, or was cut short")


def zipped(path: Path) -> bool:
    """Whether the name says gzip."""
    return path.suffix.lower() == ".gz"


def raw(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked."""
    return cast(IO[bytes], gzip.open(path)) if zipped(path) else path.open("rb")


@contextmanager
def opened(where: str, path: Path) -> Iterator[IO[str]]:
    """The file as UTF-8 text, with its line ends as they are."""
    check_file(where, path)
    with raw(path) as file:
        try:
            yield TextIOWrapper(file, encoding="utf-8-sig", newline="")
        except UnicodeDecodeError as error:
            fail(where, f"is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8")


def framed(wanted: Mapping[str, str], columns: Sequence[np.ndarray[Any, Any]]) -> pd.DataFrame:
    """Columns as a frame, without a copy and without pandas' own ideas about text."""
    named = {
        name: pd.Series(column, dtype=column.dtype, copy=False)
        for name, column in zip(wanted, columns, strict=True)
    }
    return pd.DataFrame(named, copy=False)
