"""Frozen copies of a client's rows, so that no answer differs from another by a few rows.

Sums before and after one patient was added differ by this patient. So a client under rules answers
from a copy of its rows: of its file, or of the result of its query. Which rows came and went
between two copies is known by their hashes (see ``row_hashes``), which are kept with each copy.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.data.files.formats import suffix_of
from fedsplit.data.files.sql import QueryTable
from fedsplit.data.tables import Source
from fedsplit.errors import InputError, StateError
from fedsplit.files import Stamp
from fedsplit.sites.rows.row_hashes import Change, cell_hashes, change, column_names, matched, views
from fedsplit.sites.rows.snapshot import About, Snapshot, common_hashes, read_snapshot, sha256

KEY_BYTES = 32

CANDIDATE = ".candidate"
"""The folder of a copy that does not answer yet."""


class Snapshots:
    """The copies of a client's rows, in a folder that only its owner can read.

    Parameters
    ----------
    folder : Path
        Of the client's state.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "snapshots"
        self.discard()  # of a process that was killed
        self.copies = [read_snapshot(each) for each in sorted(self._folder.glob("[0-9]*"))]
        for each in self.copies:
            if each.about.key != self._key_name():
                raise StateError(
                    f"{self._folder / 'key'}: is another key than that of the snapshots: restore "
                    "it from a backup"
                )

    def get(self, number: int) -> Snapshot:
        """The copy of this number."""
        for each in self.copies:
            if each.number == number:
                return each
        raise StateError(
            f"{self._folder / _name(number)}: the snapshot {number} of the file is missing, so "
            "that what it disclosed is not known: restore it from a backup"
        )

    def candidate(self, source: Source) -> Snapshot:
        """Copy rows, to be compared with the other copies before they answer.

        Raises
        ------
        InputError
            If the rows cannot be read, or the file is changed while it is copied.
        """
        with self._discarded_on_failure():
            return self._candidate(source)

    def _candidate(self, source: Source) -> Snapshot:
        folder = self._folder / CANDIDATE
        self.discard()
        folder.mkdir(mode=0o700, parents=True)
        file, stamp = _copied(source, folder)
        about = About(file, source.reading, (), self._key_name(), {}, stamp)
        copy = Snapshot(0, folder, about, np.zeros(0, np.intp), np.zeros((0, 0), np.uint64))
        columns = column_names(copy.source())
        hashes = cell_hashes(copy.source(), columns, self._key())
        copy = replace(copy, about=replace(about, columns=tuple(columns)), hashes=hashes)
        return replace(copy, ids=self._numbered(copy))

    def accept(self, candidate: Snapshot) -> Snapshot:
        """Keep a copy durably; from now on it is the last."""
        with self._discarded_on_failure():
            return self._accept(candidate)

    def _accept(self, candidate: Snapshot) -> Snapshot:
        number = 1 + max((int(each.name) for each in self._folder.glob("[0-9]*")), default=0)
        place = candidate.folder
        np.save(place / "rows.npy", candidate.ids)
        np.save(place / "hashes.npy", candidate.hashes)
        kept = [place / candidate.about.file, place / "rows.npy", place / "hashes.npy"]
        for path in kept:
            path.chmod(0o400)
            files.sync(path)
        about = asdict(candidate.about) | {"sha256": {path.name: sha256(path) for path in kept}}
        files.write_private(place / "about.json", json.dumps(about, indent=2))
        place.replace(self._folder / _name(number))
        files.sync(self._folder)
        self.copies.append(read_snapshot(self._folder / _name(number)))
        return self.copies[-1]

    def discard(self) -> None:
        """Delete the copy that does not answer yet, if there is one."""
        shutil.rmtree(self._folder / CANDIDATE, ignore_errors=True)

    @contextmanager
    def _discarded_on_failure(self) -> Iterator[None]:
        """Leave no half copy on a full disk, where the log and the ledgers need the room."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def changes(self, candidate: Snapshot) -> list[list[Change]]:
        """How a copy differs from each of the others, in each set of columns (see ``views``)."""
        return [
            [change(old, new) for old, new in views(*common_hashes(each, candidate))]
            for each in self.copies
        ]

    def _numbered(self, candidate: Snapshot) -> NDArray[np.intp]:
        """The numbers of the rows of a copy; each keeps the one that it had in an earlier one."""
        ids = np.full(len(candidate.hashes), -1, dtype=np.intp)
        for beginning, end in ((0, 1), (1, None)):  # first those that are equal in all columns
            for each in reversed(self.copies):
                for old, new in islice(views(*common_hashes(each, candidate)), beginning, end):
                    matched(ids, new, old, each.ids)
        free = 1 + max((int(each.ids.max(initial=-1)) for each in self.copies), default=-1)
        came = ids < 0
        ids[came] = free + np.arange(np.count_nonzero(came))
        return ids

    def _key(self) -> bytes:
        path = self._folder / "key"
        if not path.exists() and not any(self._folder.glob("[0-9]*")):
            files.write_private(path, secrets.token_bytes(KEY_BYTES))
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            found = b""
        if len(found) != KEY_BYTES:
            raise StateError(
                f"{path}: is missing or damaged, so that rows cannot be compared with those of the "
                "snapshots: restore it from a backup"
            )
        return found

    def _key_name(self) -> str:
        return hashlib.blake2b(key=self._key(), digest_size=8).hexdigest()


def _copied(source: Source, folder: Path) -> tuple[str, Stamp | None]:
    """Freeze the rows of a source in a folder: the name of the file, and the stamp of the source's.

    A file is copied as it is, since every format has its own types. The result of a query is saved.
    """
    if isinstance(source, QueryTable):
        source.save(folder / "data.parquet")
        return "data.parquet", None
    path = source.path
    if path is None:
        raise InputError(f"{source.name}: a client that refuses answers has a file or a query")
    stamp = Stamp.of(path)
    name = f"data{suffix_of(path)}"
    shutil.copyfile(path, folder / name)
    if Stamp.of(path) != stamp:
        raise InputError(f"{path}: was changed while it was copied: try again when it is complete")
    return name, stamp


def _name(number: int) -> str:
    return f"{number:06d}"
