"""A file without any bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedsplit.data.tables import DTYPES, to_frame
from fedsplit.data.types import Fit, Type


@dataclass
class EmptyFile:
    """A table without names of columns, and so without rows of any column."""

    where: str
    path: Path

    def fits(self) -> dict[str, Fit | None]:
        return {}

    def take(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        return to_frame(list(wanted), [np.empty(0, dtype=DTYPES[kind]) for kind in wanted.values()])

    def notes(self) -> Sequence[str]:
        return ()


def is_empty(path: Path) -> bool:
    """Return whether there is a file at the path, and nothing in it."""
    try:
        return path.is_file() and path.stat().st_size == 0
    except OSError:
        return False
