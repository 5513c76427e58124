"""Which reader reads a file, by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedsplit.data.delimited import DelimitedTable
from fedsplit.data.json_objects import JsonTable
from fedsplit.data.parquet import ParquetTable
from fedsplit.data.tables import Table

READERS: dict[str, Callable[[str, Path], Table]] = {
    ".csv": partial(DelimitedTable, delimiters=",;\t|"),
    ".txt": partial(DelimitedTable, delimiters=",;\t|"),
    ".tsv": partial(DelimitedTable, delimiters="\t"),
    ".jsonl": JsonTable,
    ".ndjson": JsonTable,
    ".json": JsonTable,
}
"""Called as ``reader(where, path)``, by the end of the file's name."""
READERS |= {f"{suffix}.gz": reader for suffix, reader in READERS.items()}
READERS[".parquet"] = ParquetTable  # which is compressed inside


def suffix_of(path: Path) -> str | None:
    """Return the longest suffix in ``READERS`` that the name ends in, after something else."""
    name = path.name.lower()
    known = [suffix for suffix in READERS if name.endswith(suffix) and len(name) > len(suffix)]
    return max(known, key=len, default=None)
