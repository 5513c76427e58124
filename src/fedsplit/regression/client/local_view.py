"""What the owner of a file may see of it beside a study; none of it leaves."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fedsplit.data.sources.client_data import Source
from fedsplit.data.tables import is_missing


def complete_rows(source: Source, columns: Collection[str]) -> tuple[int, int]:
    """How many rows there are, and how many have a value in each of some columns."""
    present = source.columns()
    wanted = [name for name in present if name in columns] or list(present)[:1]
    found = source.take(dict.fromkeys(wanted, "text"))
    if not found:
        return 0, 0
    missing = np.any([is_missing(values) for values in found.values()], axis=0)
    return len(missing), int((~missing).sum())
