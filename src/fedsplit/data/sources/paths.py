"""The data files that a path names."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from fedsplit.data.files.formats import READERS, suffix_of
from fedsplit.data.tables import fail


def data_files(
    item: str | os.PathLike[str], folder: Path | None = None, most: int = 5000
) -> list[Path]:
    """Return the files that a path names.

    Parameters
    ----------
    item : str or PathLike
        A file, a folder, or a glob pattern; a name that exists is not read as a pattern.
    folder : Path, optional
        Where a relative path starts, by default the working folder.
    most : int
        More files than this are hardly one client each: somebody has named the wrong folder.

    Returns
    -------
    list of Path
        The file itself, the data files in the folder, or the files that match; at least one.
    """
    text = os.fspath(item)
    if not isinstance(text, str) or not text or "\0" in text:
        fail(repr(text), "is not the name of a file")
    # A URL, which DuckDB or pandas might try to open.
    if re.match(r"\w[\w+.-]*:/", text):
        fail(text, "only local files can be read, download it first")
    path = Path(text)
    if folder is not None:
        path = folder / text
    try:
        found = _find(path)
    except OSError as error:
        fail(str(path), error.strerror or error)
    if not found:
        if path.is_dir():
            fail(str(path), f"no file in the folder ends in one of {', '.join(READERS)}")
        fail(str(path), "there is no such file or folder, and no file matches it as a pattern")
    if len(found) > most:
        fail(
            str(path),
            f"is {len(found):,} files, more than {most:,} clients: put their rows into one file "
            "with a column of clients, which group names",
        )
    return found


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        inside = [each for each in path.iterdir() if each.is_file() and suffix_of(each)]
        return sorted(each for each in inside if not each.name.startswith("."))
    if os.path.lexists(path):
        return [path]
    found = glob.glob(str(path))  # noqa: PTH207  # Path.glob takes no absolute pattern
    return [Path(each) for each in sorted(found)]
