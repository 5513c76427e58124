"""Which reader reads a file, by its name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

from fedsplit.data.files.delimited import DelimitedTable
from fedsplit.data.files.frame_files import FrameFile
from fedsplit.data.files.json_objects import JsonTable
from fedsplit.data.files.parquet import ParquetTable
from fedsplit.data.files.r_files import load_rds
from fedsplit.data.files.spreadsheet import load_xlsx
from fedsplit.data.files.statistical_files import FUNCTIONS, load_statistical
from fedsplit.data.reading import Reading
from fedsplit.data.tables import Table


class Reader(Protocol):
    """What makes a table of a file."""

    def __call__(self, where: str, path: Path, *, reading: Reading) -> Table:
        """Return the table; the file is read only when the table is asked for something."""
        ...


READERS: dict[str, Reader] = {
    ".csv": partial(DelimitedTable, delimiters=",;\t| "),
    ".txt": partial(DelimitedTable, delimiters=",;\t| "),
    ".tsv": partial(DelimitedTable, delimiters="\t"),
    ".jsonl": JsonTable,
    ".ndjson": JsonTable,
    ".json": JsonTable,
}
"""By the end of the file's name."""
READERS |= {f"{suffix}.gz": reader for suffix, reader in READERS.items()}
# Those that are compressed inside, or not at all.
READERS[".parquet"] = ParquetTable
READERS[".xlsx"] = partial(FrameFile, load=load_xlsx, library="openpyxl")
READERS[".rds"] = partial(FrameFile, load=load_rds, library="rdata")
for suffix in FUNCTIONS:
    READERS[suffix] = partial(FrameFile, load=load_statistical, library="pyreadstat")


def suffix_of(path: Path) -> str | None:
    """Return the longest suffix in ``READERS`` that the name ends in, after something else."""
    name = path.name.lower()
    known = [suffix for suffix in READERS if name.endswith(suffix) and len(name) > len(suffix)]
    return max(known, key=len, default=None)
