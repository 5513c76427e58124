"""One frozen copy of a client's rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedsplit.data.reading import Reading
from fedsplit.data.sources.sources import sources
from fedsplit.data.tables import Source
from fedsplit.errors import StateError
from fedsplit.files import Stamp
from fedsplit.sites.rows.row_hashes import Hashes


@dataclass(frozen=True)
class About:
    """What is kept about a copy in its ``about.json``.

    Attributes
    ----------
    file : str
        The name of the copy.
    reading : Reading
        How it is read.
    columns : tuple of str
        Those that the rows were hashed with.
    key : str
        By which the key of these hashes is recognised.
    sha256 : dict of str to str
        Of each file of the copy, by its name.
    stamp : Stamp or None
        Of the file that was copied; None of a query.
    """

    file: str
    reading: Reading
    columns: tuple[str, ...]
    key: str
    sha256: dict[str, str]
    stamp: Stamp | None


@dataclass(frozen=True)
class Snapshot:
    """A frozen copy.

    Attributes
    ----------
    number : int
        From 1; 0 for a copy that does not answer yet.
    folder : Path
    about : About
    ids : (n,) array of int
        The number of each of its rows, among all that were ever in a copy.
    hashes : (n, p) array of uint64
        Of its cells.
    """

    number: int
    folder: Path
    about: About
    ids: NDArray[np.intp]
    hashes: Hashes

    def source(self) -> Source:
        """Its rows, read as they were when it was taken."""
        [found] = sources(str(self.folder / self.about.file), reading=self.about.reading)
        return found


def read_snapshot(folder: Path) -> Snapshot:
    """The copy in a folder, all of whose files are as they were written."""
    try:
        about = msgspec.json.decode((folder / "about.json").read_bytes(), type=About)
        for name, digest in about.sha256.items():
            if sha256(folder / name) != digest:
                raise StateError(
                    f"{folder / name}: was changed since it was frozen, so that nothing is "
                    "answered: restore it from a backup"
                )
        ids = np.load(folder / "rows.npy", allow_pickle=False)
        hashes = np.load(folder / "hashes.npy", allow_pickle=False)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(
            f"{folder}: this copy of the rows cannot be read ({error}), so that nothing is "
            "answered: restore it from a backup"
        ) from None
    return Snapshot(int(folder.name), folder, about, ids, hashes)


def sha256(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def common_hashes(old: Snapshot, new: Snapshot) -> tuple[Hashes, Hashes]:
    """The hashes of the cells of two copies in the columns that both have.

    Without any, those of all columns: no row is the same.
    """
    shared = [name for name in old.about.columns if name in new.about.columns]
    if not shared:
        return old.hashes.sum(axis=1, keepdims=True), new.hashes.sum(axis=1, keepdims=True)
    return old.hashes[:, _places(old, shared)], new.hashes[:, _places(new, shared)]


def _places(snapshot: Snapshot, columns: Sequence[str]) -> list[int]:
    return [snapshot.about.columns.index(name) for name in columns]
