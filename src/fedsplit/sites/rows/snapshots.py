"""Frozen copies of a client's file, so that no answer differs from another by a few rows.

Sums before and after one patient was added differ by this patient. So a client under rules answers
from a copy of its file. A new copy takes its place once at least k rows have come, and either none
or at least k have gone, against every copy before. A row that was corrected has gone and come.

Rows are told apart by keyed hashes of their values. The key never leaves the folder: without it the
hashes of likely values cannot be tried.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.data.reading import Reading
from fedsplit.data.sources.client_data import Source
from fedsplit.data.sources.sources import sources

KEY_BYTES = 32


class Stamp(NamedTuple):
    """The size of a file, and when it was last changed."""

    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns)


class Snapshot(NamedTuple):
    """A frozen copy.

    Attributes
    ----------
    number : int
        From 1.
    path : Path
    ids : (n,) array of int
        The number of each of its rows, among all that were ever in a copy.
    """

    number: int
    path: Path
    ids: NDArray[np.intp]


class Change(NamedTuple):
    """How a file differs from the copy that it is compared with.

    Attributes
    ----------
    came, gone : int
        Rows.
    """

    came: int
    gone: int

    def allowed(self, smallest: int) -> bool:
        """Whether both together disclose nothing of fewer rows than this."""
        return self.came >= smallest and (self.gone == 0 or self.gone >= smallest)


class Snapshots:
    """The copies of one file, in a folder that only its owner can read.

    Parameters
    ----------
    path : Path
        The file.
    folder : Path
        Of the client's state.
    reading : Reading
        How the file is read.
    """

    def __init__(self, path: Path, folder: Path, reading: Reading) -> None:
        self._path = path
        self._folder = folder / "snapshots"
        self._reading = reading
        self._looked: Stamp | None = None

    @property
    def _key(self) -> bytes:
        path = self._folder / "key"
        if not path.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            files.write(path, secrets.token_bytes(KEY_BYTES))
            path.chmod(0o600)
        return path.read_bytes()

    def all(self) -> list[Snapshot]:
        """Those that were taken, the latest last."""
        found = []
        for place in sorted(self._folder.glob("[0-9]*/rows.npy")):
            about = json.loads((place.parent / "about.json").read_text(encoding="utf-8"))
            copy = place.parent / about["file"]
            found.append(Snapshot(int(place.parent.name), copy, np.load(place)))
        return found

    def latest(self, smallest: int) -> tuple[Snapshot, str]:
        """The copy to answer from, and what the owner is to be told; empty if nothing is new.

        Parameters
        ----------
        smallest : int
            k.
        """
        known = self.all()
        stamp = Stamp.of(self._path)
        if not known:
            return self._take([]), ""
        if stamp == self._looked or stamp == self._stamp_of(known[-1]):
            return known[-1], ""
        self._looked = stamp
        changes = [self._change(each) for each in known]
        last = changes[-1]
        if last == Change(0, 0):
            return known[-1], ""
        for change in changes:
            if not change.allowed(smallest):
                return known[-1], (
                    f"its file has changed ({last.came} rows came, {last.gone} went): it is used "
                    f"once at least {smallest} have come and none or at least {smallest} have "
                    "gone, against every copy; until then the last copy answers"
                )
        taken = self._take(known)
        counts = f"{last.came} rows came, {last.gone} went"
        return taken, f"its file has changed ({counts}), and is used from the next fit on"

    def source(self, snapshot: Snapshot) -> Source:
        """The rows of a copy."""
        [found] = sources(str(snapshot.path), reading=self._reading)
        return found

    def _stamp_of(self, snapshot: Snapshot) -> Stamp:
        about = json.loads((snapshot.path.parent / "about.json").read_text(encoding="utf-8"))
        return Stamp(*about["stamp"])

    def _change(self, before: Snapshot) -> Change:
        """How the file differs from a copy, in the columns that both have."""
        [now] = sources(str(self._path), reading=self._reading)
        then = self.source(before)
        both = [name for name in then.columns() if name in now.columns()]
        new = Counter(self._hashes(now, both))
        old = Counter(self._hashes(then, both))
        return Change((new - old).total(), (old - new).total())

    def _take(self, known: Sequence[Snapshot]) -> Snapshot:
        """Copy the file; its rows keep the numbers that they had in the copy before."""
        number = len(known) + 1
        folder = self._folder / f"{number:06d}"
        partial = self._folder / f".{number:06d}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700, parents=True)
        stamp = Stamp.of(self._path)
        copy = partial / self._path.name
        shutil.copyfile(self._path, copy)
        copy.chmod(0o400)
        [source] = sources(str(copy), reading=self._reading)
        np.save(partial / "rows.npy", self._numbered(source, known))
        about = {"file": copy.name, "stamp": list(stamp)}
        files.write(partial / "about.json", json.dumps(about))
        partial.replace(folder)
        self._looked = stamp
        return self.all()[-1]

    def _numbered(self, source: Source, known: Sequence[Snapshot]) -> NDArray[np.intp]:
        """The number of each row, that of the same one in an earlier copy if there is one."""
        if not known:
            return np.arange(len(self._hashes(source, list(source.columns()))), dtype=np.intp)
        free = max(int(each.ids.max(initial=-1)) for each in known) + 1
        last = self.source(known[-1])
        both = [name for name in last.columns() if name in source.columns()]
        numbers: dict[bytes, list[int]] = {}
        pairs = zip(self._hashes(last, both), known[-1].ids.tolist(), strict=True)
        for digest, number in pairs:
            numbers.setdefault(digest, []).append(number)
        found = []
        for digest in self._hashes(source, both):
            same = numbers.get(digest)
            if same:
                found.append(same.pop(0))
            else:
                found.append(free)
                free += 1
        return np.array(found, dtype=np.intp)

    def _hashes(self, source: Source, columns: Sequence[str]) -> list[bytes]:
        """The keyed hash of each row, of the values in some columns, whatever their format."""
        fits = {name: fit for name, fit in source.columns().items() if fit is not None}
        names = sorted(set(columns) & set(fits))
        frame = source.read(dict.fromkeys(names, "text"))
        values = []
        for name in names:
            texts = frame[name].astype(str).tolist()
            if fits[name].type == "number":
                texts = [_canonical(text) for text in texts]
            values.append(texts)
        key = self._key
        return [
            hashlib.blake2b("\x1f".join(row).encode(), key=key, digest_size=16).digest()
            for row in zip(*values, strict=True)
        ]


def _canonical(text: str) -> str:
    """A number in one form, so that a file that is written anew has the same rows."""
    try:
        return repr(float(text))
    except ValueError:
        return text
