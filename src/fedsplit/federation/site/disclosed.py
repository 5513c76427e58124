"""What was disclosed of rows on this machine, whichever folder or coordinator it was for.

Rows are recognised by keyed hashes of their cells, so that one file that is served from two folders
has one ledger, and rows that stay in a file from one month to the next keep theirs.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.errors import StateError
from fedsplit.federation.database import Database
from fedsplit.federation.messages import LogHead
from fedsplit.federation.site.row_hashes import Change, Hashes, change, matched, views
from fedsplit.regression.client.guards.ledger import Basis, Disclosed, DisclosureLedger

SCHEMA = """
CREATE TABLE secret (key BLOB NOT NULL);
CREATE TABLE copies (
    name TEXT PRIMARY KEY, family INTEGER NOT NULL, columns TEXT NOT NULL, hashes BLOB NOT NULL,
    ids BLOB NOT NULL);
CREATE TABLE arrays (name TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE entries (
    family INTEGER, key TEXT, sums TEXT NOT NULL, tags TEXT NOT NULL, PRIMARY KEY (family, key));
CREATE TABLE spent (
    family INTEGER, study BLOB, epsilon REAL NOT NULL, delta REAL NOT NULL,
    PRIMARY KEY (family, study));
"""

SITES = "CREATE TABLE sites (key BLOB PRIMARY KEY, number INTEGER NOT NULL, hash BLOB NOT NULL)"
"""By site, the head of its log before the last answer whose sums are here."""


class Known(NamedTuple):
    """A copy of rows as this machine knows it.

    Attributes
    ----------
    name : str
    family : int
        Copies that have rows in common are one family.
    columns : list of str
    hashes : (n, p) array
        Of the cells.
    ids : (n,) array of int
        The number of each row within the family.
    """

    name: str
    family: int
    columns: list[str]
    hashes: Hashes
    ids: NDArray[np.intp]


class DisclosedRows(Database):
    """The ledgers of all rows that sites on this machine have answered from.

    Parameters
    ----------
    path : Path
        One file per user and machine.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A site's own database has every answer as well, and waits for the disk.
        super().__init__(path, SCHEMA + SITES, 2, durable=False, upgrades={1: SITES})
        # By family, so that the next study of the same rows does not begin with the first entry.
        self._bases: dict[int, Basis] = {}
        with self.transaction():
            if not self.execute("SELECT key FROM secret"):
                self.execute("INSERT INTO secret VALUES (?)", secrets.token_bytes(32))

    @property
    def key(self) -> bytes:
        """By which cells are hashed: without it the hashes of likely values cannot be tried."""
        found: bytes = self.scalar("SELECT key FROM secret")
        return found

    def copy(self, name: str) -> Known | None:
        """A copy of this name."""
        rows = self.execute("SELECT * FROM copies WHERE name = ?", name)
        return _known(*rows[0]) if rows else None

    def add_copy(self, name: str, columns: Sequence[str], hashes: Hashes) -> Known:
        """Enter a copy; its rows keep the numbers that they have in earlier ones."""
        every = [_known(*row) for row in self.execute("SELECT * FROM copies ORDER BY rowid DESC")]
        ids = np.full(len(hashes), -1, dtype=np.intp)
        mine = Known(name, -1, list(columns), hashes, ids)
        family = next((each.family for each in every if _share_rows(each, mine)), None)
        if family is None:
            family = 1 + max((each.family for each in every), default=-1)
        related = [each for each in every if each.family == family]
        for beginning, end in ((0, 1), (1, None)):  # first those that are equal in all columns
            for each in related:
                for old, new in islice(views(*common_hashes(each, mine)), beginning, end):
                    matched(ids, new, old, each.ids)
        free = 1 + max((int(each.ids.max(initial=-1)) for each in related), default=-1)
        came = ids < 0
        ids[came] = free + np.arange(np.count_nonzero(came))
        known = mine._replace(family=family)
        row = name, family, json.dumps(known.columns), _saved(hashes), _saved(ids)
        self.execute("INSERT INTO copies VALUES (?, ?, ?, ?, ?)", *row)
        return known

    def differences(self, known: Known, answered: Sequence[str]) -> list[list[Change]]:
        """How a copy differs from others that have answered, in each set of columns."""
        found = []
        for name in answered:
            other = self.copy(name)
            if other is not None and other.family == known.family:
                found.append([change(*each) for each in views(*common_hashes(other, known))])
        return found

    def head(self, site: bytes) -> LogHead:
        """The head of a site's log before its last answer whose sums are here."""
        rows = self.execute("SELECT number, hash FROM sites WHERE key = ?", site)
        return LogHead(*rows[0]) if rows else LogHead(0, b"")

    def note_head(self, site: bytes, head: LogHead) -> None:
        row = site, head.number, head.hash
        self.execute("INSERT OR REPLACE INTO sites VALUES (?, ?, ?)", *row)

    def ledger(self, known: Known) -> RecordedLedger:
        """What was disclosed of the rows of a copy, and of those that came with others."""
        return RecordedLedger(self, known.family, self._entries_of(known), self._bases)

    def trial_ledger(self, known: Known) -> RecordedLedger:
        """The same, with what is added in memory, and not recorded."""
        return TrialLedger(self, known.family, self._entries_of(known), dict(self._bases))

    def _entries_of(self, known: Known) -> list[tuple[Any, ...]]:
        statement = "SELECT key, sums, tags FROM entries WHERE family = ? ORDER BY rowid"
        return self.execute(statement, known.family)

    def entries(self, known: Known) -> int:
        """How many entries the ledger of the rows of a copy has."""
        statement = "SELECT count(*) FROM entries WHERE family = ?"
        return int(self.scalar(statement, known.family))

    def spent(self, known: Known, but: bytes) -> tuple[float, float]:
        """ε and δ of all studies with noise about these rows, but for one."""
        rows = self.execute(
            "SELECT total(epsilon), total(delta) FROM spent WHERE family = ? AND study != ?",
            known.family,
            but,
        )
        return rows[0]

    def spend(self, known: Known, study: bytes, epsilon: float, delta: float) -> None:
        """Note what a study promises; once, however many of its questions are answered."""
        row = known.family, study, epsilon, delta
        self.execute("INSERT OR IGNORE INTO spent VALUES (?, ?, ?, ?)", *row)


class RecordedLedger(DisclosureLedger):
    """A ledger whose entries are in the database, within the transaction of an answer.

    ``rows`` are the entries that there are: key, sums and tags; ``bases``, by family, what was
    computed of them.
    """

    def __init__(
        self,
        database: DisclosedRows,
        family: int,
        rows: Sequence[tuple[Any, ...]],
        bases: dict[int, Basis],
    ) -> None:
        self._bases = bases
        self._family = family
        super().__init__()
        self._database = database
        for key, sums, tags in rows:
            self._entries[key] = json.loads(sums)
            self._tags[key] = json.loads(tags)

    @property
    def basis(self) -> Basis:
        return self._bases.get(self._family, Basis())

    @basis.setter
    def basis(self, basis: Basis) -> None:
        self._bases[self._family] = basis

    def add(self, key: str, disclosed: Sequence[Disclosed], tags: Sequence[str] = ()) -> None:
        if key in self:
            return
        super().add(key, disclosed, tags)
        row = self._family, key, json.dumps(self._entries[key]), json.dumps(self._tags[key])
        self._database.execute("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)", *row)

    def _kept(self, array: Array | NDArray[np.intp]) -> str:
        content = _saved(array)
        name = sha256(content).hexdigest()
        self._database.execute("INSERT OR IGNORE INTO arrays VALUES (?, ?)", name, content)
        return name

    def _array(self, name: str) -> Array:
        content = self._database.scalar("SELECT content FROM arrays WHERE name = ?", name)
        if content is None or sha256(content).hexdigest() != name:
            raise StateError(
                f"{self._database.path}: a part of what was disclosed is missing or damaged, so "
                "that nothing is answered: restore it from a backup"
            )
        return _loaded(content)


class TrialLedger(RecordedLedger):
    """The same, with entries in memory that are not recorded."""

    def add(self, key: str, disclosed: Sequence[Disclosed], tags: Sequence[str] = ()) -> None:
        DisclosureLedger.add(self, key, disclosed, tags)

    def _kept(self, array: Array | NDArray[np.intp]) -> str:
        return DisclosureLedger._kept(self, array)

    def _array(self, name: str) -> Array:
        known: Array | None = self._arrays.get(name)
        return super()._array(name) if known is None else known


def _share_rows(old: Known, new: Known) -> bool:
    """Whether two copies have a row in common, also if a value of it was corrected."""
    return any(change(*each).gone < len(each[0]) for each in views(*common_hashes(old, new)))


def common_hashes(old: Known, new: Known) -> tuple[Hashes, Hashes]:
    """The hashes of the cells of two copies in the columns that both have.

    Without any, those of all columns: no row is the same.
    """
    shared = [name for name in old.columns if name in new.columns]
    if not shared:
        return old.hashes.sum(axis=1, keepdims=True), new.hashes.sum(axis=1, keepdims=True)
    places = [[each.columns.index(name) for name in shared] for each in (old, new)]
    return old.hashes[:, places[0]], new.hashes[:, places[1]]


def _known(name: str, family: int, columns: str, hashes: bytes, ids: bytes) -> Known:
    return Known(name, family, json.loads(columns), _loaded(hashes), _loaded(ids))


def _saved(array: NDArray[np.generic]) -> bytes:
    content = io.BytesIO()
    np.save(content, np.ascontiguousarray(array), allow_pickle=False)
    return content.getvalue()


def _loaded(content: bytes) -> NDArray[Any]:
    found: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return found
