"""A file without any bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsplit.data.tables import DTYPES, Values
from fedsplit.data.types import Fit, Type


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
    """Return whether there is a file at the path, and nothing in it."""
    try:
        return path.is_file() and path.stat().st_size == 0
    except OSError:
        return False
