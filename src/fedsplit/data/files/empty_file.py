"""A file without any bytes, or with none that say anything."""

from __future__ import annotations

import zlib
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsplit.data.files.opening import open_bytes
from fedsplit.data.tables import DTYPES, Values
from fedsplit.data.types import Fit, Type

MOST_BYTES = 1000
"""A larger file, as it is on the disk, has something in it."""


@dataclass
class EmptyFile:
    """A table without names of columns, and so without rows of any column."""

    where: str
    path: Path

    def fits(self) -> dict[str, Fit | None]:
        return {}

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        return {name: np.empty(0, dtype=DTYPES[kind]) for name, kind in wanted.items()}

    def notes(self) -> Sequence[str]:
        return ()


def is_empty(path: Path) -> bool:
    """Return whether there is a file at the path, and nothing but blanks in it."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return False
        with open_bytes(path) as file:
            return not file.read().removeprefix(BOM_UTF8).strip()
    except (OSError, EOFError, zlib.error):  # which its reader reports
        return False
