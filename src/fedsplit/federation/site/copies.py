"""Frozen copies of a site's rows, so that no answer differs from another by a few rows.

Sums before and after one patient was added differ by this patient. So a study is answered from a
copy of the rows that is taken when it is approved: of a file, byte for byte, as every format has
its own types, or of the result of a query. A copy is named by the hash of its contents, and two
studies of unchanged rows share it. How the file is read belongs to it: unless that is the usual
way, the copy is a list with this one file, which has the codes of missing values, decimal mark,
dates and names that held when it was frozen.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import file_digest
from pathlib import Path

from fedsplit import files
from fedsplit.data.files.formats import suffix_of
from fedsplit.data.files.sql import QueryTable
from fedsplit.data.sources import sources
from fedsplit.data.tables import Source
from fedsplit.data.types import PLAIN, Reading
from fedsplit.errors import InputError, StateError
from fedsplit.federation.site.disclosed import DisclosedRows, Known
from fedsplit.federation.site.row_hashes import Hashes, cell_hashes, column_names
from fedsplit.federation.tables import in_toml
from fedsplit.files import Stamp


class Copies:
    """The copies in a folder.

    Parameters
    ----------
    folder : Path
    data : str
        What a site answers from: a file, or a list with one file or query.
    reading : Reading
        How files are read.
    disclosed : DisclosedRows
    smallest : int
        k: rows that come or go in smaller numbers are not answered from yet.
    """

    def __init__(
        self, folder: Path, data: str, reading: Reading, disclosed: DisclosedRows, smallest: int
    ) -> None:
        self._folder = folder
        self._data = data
        self._reading = reading
        self._disclosed = disclosed
        self._smallest = smallest

    def current(self) -> Source:
        """The rows as they are now; nothing has been read yet."""
        return source_of(self._data, self._reading)

    def take(self, answered: Sequence[str]) -> tuple[str, str]:
        """Freeze the rows as they are now.

        A copy is complete on disk before anything names it. A kill in between leaves a file that
        nothing refers to, and that the next copy of these rows finds.

        Parameters
        ----------
        answered : sequence of str
            The copies that have answered, the latest last.

        Returns
        -------
        name : str
            That of the copy to answer from: of an earlier one, while the rows differ from those of
            others by too few.
        note : str
            What the owner should know of that.
        """
        path, columns, hashes = self._frozen()
        name = path.name
        known = self._disclosed.copy(name) or self._disclosed.add_copy(name, columns, hashes)
        k = self._smallest
        for found in self._disclosed.differences(known, answered):
            for each in found:
                if not each.allowed(k):
                    return answered[-1], (
                        f"the rows have changed ({found[0]}), and are used once at least {k} rows "
                        f"were added and none or at least {k} removed, against every copy that "
                        "has answered: until then the last copy answers"
                    )
        return name, ""

    def _frozen(self) -> tuple[Path, list[str], Hashes]:
        """Write the rows as they are now, with the hashes of their cells."""
        source = self.current()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        suffix = ".parquet"
        if not isinstance(source, QueryTable):
            suffix = "" if source.path is None else suffix_of(source.path) or ""
        path = self._written(lambda partial: _write(source, partial), suffix)
        if source.reading != PLAIN:
            keys = {"path": path.name, **asdict(source.reading)}
            lines = [f"{key} = {in_toml(each)}\n" for key, each in keys.items()]
            content = "".join(["[clients.rows]\n", *lines]).encode()
            path = self._written(lambda partial: partial.write_bytes(content), ".toml")
        frozen = source_of(str(path))
        columns = column_names(frozen)
        return path, columns, cell_hashes(frozen, columns, self._disclosed.key)

    def _written(self, write: Callable[[Path], object], suffix: str) -> Path:
        """The path of what ``write`` writes, which has the name of its hash."""
        partial = self._folder / ".partial"
        partial.unlink(missing_ok=True)
        try:
            write(partial)
            files.sync(partial)
            path = self._folder / f"{_hash(partial)}{suffix}"
            if not path.exists():
                partial.chmod(0o400)
                partial.rename(path)  # a file that has its name is complete
                files.sync(self._folder)
        except OSError as error:
            why = error.strerror or error
            raise StateError(f"{self._folder}: the rows cannot be copied ({why})") from None
        finally:
            partial.unlink(missing_ok=True)
        return path

    def open(self, name: str) -> tuple[Source, Known]:
        """The rows of a copy, which must be as it was when it was taken."""
        path = self._folder / name
        known = self._disclosed.copy(name)
        _check(path)
        try:
            source = source_of(str(path))
        except InputError as error:  # a list whose file is missing
            raise StateError(f"{error}: restore it") from None
        if source.path is not None and source.path != path:
            _check(source.path)
        if known is None:  # the record of the machine is another one
            columns = column_names(source)
            hashes = cell_hashes(source, columns, self._disclosed.key)
            known = self._disclosed.add_copy(name, columns, hashes)
        return source, known


def source_of(data: str, reading: Reading = PLAIN) -> Source:
    """The one file or query that a site answers from."""
    found = sources(data, reading=reading)
    if len(found) != 1:
        raise InputError(f"{data}: a site has one file, this names {len(found)}")
    return found[0]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _check(path: Path) -> None:
    """Raise StateError for a part of a copy that is not as it was when it was frozen."""
    try:
        same = _hash(path) == path.name.partition(".")[0]
    except OSError as error:
        raise StateError(f"{path}: cannot be read ({error.strerror}): restore it") from None
    if not same:
        raise StateError(f"{path}: was changed since it was frozen: restore it from a backup")


def _write(source: Source, partial: Path) -> None:
    """Write the rows of a source into a file."""
    if isinstance(source, QueryTable):
        source.save(partial)
        return
    path = source.path
    if path is None:
        raise InputError(f"{source.name}: a site answers from a file or a query")
    stamp = Stamp.of(path)
    shutil.copyfile(path, partial)
    if Stamp.of(path) != stamp:
        raise InputError(f"{path}: was changed while it was copied: try again when it is complete")
