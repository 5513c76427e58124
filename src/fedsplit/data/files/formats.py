"""Which reader reads a file, by its name."""

from __future__ import annotations

import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fedsplit.data.files.delimited import DelimitedTable
from fedsplit.data.files.libraries import (
    STATISTICAL,
    LibraryTable,
    load_json,
    load_rds,
    load_statistical,
    load_xlsx,
)
from fedsplit.data.files.opening import open_bytes
from fedsplit.data.files.sql import ParquetTable
from fedsplit.data.tables import DTYPES, Source, Values, fail
from fedsplit.data.types import ColumnProfile, Reading, Type

Reader: TypeAlias = Callable[[str, str, Path, Reading], Source]
"""Makes a table of a file, which is read only when the table is asked for something."""

READERS: dict[str, Reader] = {
    ".csv": partial(DelimitedTable, delimiters=",;\t| "),
    ".txt": partial(DelimitedTable, delimiters=",;\t| "),
    ".tsv": partial(DelimitedTable, delimiters="\t"),
    **dict.fromkeys(
        (".jsonl", ".ndjson", ".json"), partial(LibraryTable, load=load_json, library="json")
    ),
}
"""By the end of the file's name."""
READERS |= {f"{suffix}.gz": reader for suffix, reader in READERS.items()}
# Those that are compressed inside, or not at all.
READERS[".parquet"] = ParquetTable
READERS[".xlsx"] = partial(LibraryTable, load=load_xlsx, library="openpyxl")
READERS[".rds"] = partial(LibraryTable, load=load_rds, library="rdata")
for suffix in STATISTICAL:
    READERS[suffix] = partial(LibraryTable, load=load_statistical, library="pyreadstat")


def open_table(path: Path, reading: Reading, name: str | None = None) -> Source:
    """Return a file as a client, called after it unless the user gave a name."""
    suffix = suffix_of(path)
    if suffix is None:
        fail(
            str(path),
            "this kind of file cannot be read, its name must end in one of " + ", ".join(READERS),
        )
    stem = path.name[: -len(suffix)]
    where = str(path) if name in (None, stem) else f"{name} ({path})"
    reader: Reader = EmptyFile if _is_empty(path) else READERS[suffix]
    return reader(name or stem, where, path.absolute(), reading)


def suffix_of(path: Path) -> str | None:
    """Return the longest suffix in ``READERS`` that the name ends in, after something else."""
    name = path.name.lower()
    known = [suffix for suffix in READERS if name.endswith(suffix) and len(name) > len(suffix)]
    return max(known, key=len, default=None)


class EmptyFile(Source):
    """A file that says nothing: a table without names of columns, and without rows of any."""

    def names(self) -> list[str]:
        return []

    def columns(self, names: object = None) -> dict[str, ColumnProfile | None]:
        return {}

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        return {name: np.empty(0, dtype=DTYPES[kind]) for name, kind in wanted.items()}


def _is_empty(path: Path) -> bool:
    """Return whether there is a file at the path, and nothing but blanks in it."""
    try:
        # More bytes than these, packed or not, have something in them.
        if not path.is_file() or path.stat().st_size > 1000:
            return False
        with open_bytes(path) as file:
            return not file.read().removeprefix(BOM_UTF8).strip()
    except (OSError, EOFError, zlib.error):  # which its reader reports
        return False
