"""What the owner of a file may see of it beside a study; none of it leaves."""

from __future__ import annotations

from collections.abc import Collection

from fedsplit.data.sources.client_data import Source


def complete_rows(source: Source, columns: Collection[str]) -> tuple[int, int]:
    """How many rows there are, and how many have a value in each of some columns."""
    present = source.columns()
    wanted = [name for name in present if name in columns] or list(present)[:1]
    if not wanted:
        return 0, 0
    missing = source.read(dict.fromkeys(wanted, "text")).isna().any(axis=1)
    return len(missing), int((~missing).sum())
