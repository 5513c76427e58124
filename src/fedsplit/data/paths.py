"""Which files a path names, and how each is read."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path

from fedsplit.data.delimited import DelimitedTable
from fedsplit.data.json import JsonTable
from fedsplit.data.queries import ParquetTable
from fedsplit.data.table import Table, fail

READERS: dict[str, Callable[[str, Path], Table]] = {
    ".csv": lambda where, path: DelimitedTable(where, path, ",;\t|"),
    ".txt": lambda where, path: DelimitedTable(where, path, ",;\t|"),
    ".tsv": lambda where, path: DelimitedTable(where, path, "\t"),
    ".jsonl": JsonTable,
    ".ndjson": JsonTable,
    ".json": JsonTable,
}
READERS |= {f"{suffix}.gz": reader for suffix, reader in READERS.items()} | {
    ".parquet": ParquetTable
}
"""How a file is read, by the end of its name."""


def suffix(path: Path) -> str | None:
    """The longest known ending of the name."""
    ends = [end for end in READERS if path.name.lower().endswith(end) and len(path.name) > len(end)]
    return max(ends, key=len, default=None)


def paths(item: str | os.PathLike[str], folder: Path | None = None) -> list[Path]:
    """The file itself, the data files in the folder, or those that match; a name that exists is not a pattern."""
    text = os.fspath(item)
    if not isinstance(text, str) or not text or "\0" in text:
        fail(repr(text), "is not the name of a file")
    if re.match(r"\w[\w+.-]*:/", text):
        fail(text, "only local files can be read, download it first")
    path = Path(text) if folder is None else folder / text
    try:
        found = _find(path)
    except OSError as error:
        fail(str(path), error.strerror or error)
    if not found:
        kinds = f"no file in the folder ends in one of {', '.join(READERS)}"
        fail(
            str(path),
            kinds
            if path.is_dir()
            else "there is no such file or folder, and no file matches it as a pattern",
        )
    return found


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        inside = (
            each for each in path.iterdir() if each.is_file() and not each.name.startswith(".")
        )
        return sorted(each for each in inside if suffix(each))
    if os.path.lexists(path):
        return [path]
    return [Path(each) for each in sorted(glob.glob(str(path)))]  # noqa: PTH207  # Path.glob takes no absolute pattern
