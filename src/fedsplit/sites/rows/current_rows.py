"""The rows that a client answers from, while its file may change."""

from __future__ import annotations

import time
from pathlib import Path

from fedsplit.data.reading import Reading
from fedsplit.data.sources.sources import sources
from fedsplit.data.tables import Source
from fedsplit.errors import InputError, StateError
from fedsplit.files import Stamp
from fedsplit.regression.client.cache import CachedCohort
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.guards.ledger import DisclosureLedger
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.sites.rows.row_hashes import UNCHANGED
from fedsplit.sites.rows.snapshot import Snapshot
from fedsplit.sites.rows.snapshots import Snapshots

SETTLED = 5_000_000_000
"""Nanoseconds after its last change when a file counts as completely written."""

SNAPSHOT = "snapshot "
"""Before the number of a copy, in logs and in the record of what was disclosed."""

LAST_ANSWERS = "until then the last copy answers"


class CurrentRows:
    """A client's rows: under rules that refuse, frozen copies of them, otherwise as they are.

    A new copy is used from the beginning of a fit on, if at least k rows were added and either
    none or at least k removed, against every copy before. Until then the last one answers.

    Parameters
    ----------
    name : str
        Of the client.
    data : str
        The file, or a list with one file or query.
    folder : Path
        Of the client's state.
    rules : Rules
    vectors : bool
        Tell matrices for proofs only.
    reading : Reading
        How the file is read.

    Attributes
    ----------
    source : Source
        Where the rows come from now.
    cohort : CachedCohort
        What answers.
    """

    def __init__(
        self, name: str, data: str, folder: Path, rules: Rules, vectors: bool, reading: Reading
    ) -> None:
        self._name = name
        self._data = data
        self._folder = folder
        self._rules = rules
        self._vectors = vectors
        self._reading = reading
        self._snapshots: Snapshots | None = None
        # The state of the source when it was last read, or compared with the copies.
        self._looked: tuple[Stamp | None, Reading] | None = None
        if not rules.refuse:
            self._answer_from(self._open())
            return
        self._snapshots = Snapshots(folder)
        for tag in DisclosureLedger(folder / "disclosed").tags:
            if tag.startswith(SNAPSHOT):
                # noticed before another has its number
                self._snapshots.get(int(tag.removeprefix(SNAPSHOT)))
        if not self._snapshots.copies:
            self._snapshots.accept(self._snapshots.candidate(self._open()))
        self._use(self._snapshots.copies[-1])

    def follow(self, begins: bool) -> str:
        """Look whether the rows have changed; what the owner is to be told, if anything.

        Parameters
        ----------
        begins : bool
            Whether a fit begins. Under rules the rows stay the same until then.
        """
        if self._snapshots is None:
            source = self._open()
            state = _state_of(source)
            if state[0] is None or state == self._looked:
                return ""
            self._answer_from(source)
            return "its file has changed, and is used from now on"
        if not begins:
            return ""
        try:
            return self._look(self._snapshots)
        except StateError:
            raise
        except (InputError, OSError) as error:
            return f"its data cannot be used as they are now ({error}): {LAST_ANSWERS}"

    @property
    def version(self) -> str:
        """Which rows answer: those of a snapshot, or of the file as it was last changed."""
        return self._version

    def notes(self) -> list[str]:
        """What the owner alone should know of the last answer; it is said once."""
        found = [note for each in self.cohort.datasets.values() for note in each.private]
        for each in self.cohort.datasets.values():
            each.private = []
        return found

    def own_source(self) -> Source:
        """The same rows for somebody else, who may read while questions are answered."""
        if self._snapshots is None:
            return self._open()
        return self._snapshots.copies[-1].source()

    def places(self) -> list[str]:
        """Paths that only the owner may see."""
        found = [str(Path(self._data).absolute()), self._data]
        path = Dataset(self.source).path
        if path is not None:
            found.append(str(path))
        return sorted(found, key=len, reverse=True)

    def _open(self) -> Source:
        """The source as it is now, of which nothing has been read."""
        found = sources(self._data, reading=self._reading)
        if len(found) != 1:
            raise InputError(f"{self._data}: a client has one file, this names {len(found)}")
        return found[0]

    def _answer_from(self, source: Source) -> None:
        self.source = source
        self._looked = _state_of(source)
        self._version = version_of(source)
        self.cohort = self._cohort_of(Dataset(source, self._name))

    def _cohort_of(self, dataset: Dataset) -> CachedCohort:
        return CachedCohort(dataset, self._folder, self._rules, self._vectors)

    def _use(self, snapshot: Snapshot) -> None:
        """Answer from a copy; where that fails, from the one before."""
        dataset = self._dataset(snapshot)
        cohort = self._cohort_of(dataset)
        self._version = dataset.version = f"{SNAPSHOT}{snapshot.number}"
        self.source, self.cohort = snapshot.source(), cohort

    def _dataset(self, snapshot: Snapshot) -> Dataset:
        return Dataset(snapshot.source(), self._name, snapshot.ids)

    def _look(self, snapshots: Snapshots) -> str:
        """Copy the rows if they are others than before, and use the copy if it may be used."""
        source = self._open()
        state = _state_of(source)
        last = snapshots.copies[-1].about
        stamp = state[0]
        if stamp is not None:
            if state in (self._looked, (last.stamp, last.reading)):
                return ""
            if 0 <= time.time_ns() - stamp.modified < SETTLED:
                raise InputError("the file has just been changed")
        told = self._compare(snapshots, snapshots.candidate(source))
        self._looked = state
        return told

    def _compare(self, snapshots: Snapshots, candidate: Snapshot) -> str:
        """Use a copy if its rows differ by enough from the others; what the owner is told."""
        changes = snapshots.changes(candidate)
        last = changes[-1][0]
        columns = len(set(candidate.about.columns) ^ set(snapshots.copies[-1].about.columns))
        what = f"its data have changed ({last})"
        if last == UNCHANGED:
            what = f"its data have other columns ({columns} added or removed)"
        k = self._rules.smallest
        why = ""
        few = [each for found in changes for each in found if not each.allowed(k)]
        if few:
            why = (
                f"they are used once at least {k} rows were added and none or at least {k} "
                "removed, against every copy"
            )
            if few[0] != last:
                why = f"not counting corrected values, {few[0]}: {why}"
        if last == UNCHANGED and not columns:
            snapshots.discard()
            return ""
        if why:
            snapshots.discard()
            return f"{what}: {why}; {LAST_ANSWERS}"
        self._use(snapshots.accept(candidate))
        return f"{what}, and are used from this fit on"


def version_of(source: Source) -> str:
    """By which the rows of a file are recognised in a log, also where it was copied elsewhere."""
    stamp = _state_of(source)[0]
    if stamp is None:
        return ""
    return f"file {stamp.size} {stamp.modified}"


def _state_of(source: Source) -> tuple[Stamp | None, Reading]:
    """What the rows of a source depend on; the stamp is None where it is not a file."""
    return None if source.path is None else Stamp.of(source.path), source.reading
