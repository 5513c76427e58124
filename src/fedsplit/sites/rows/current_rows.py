"""The rows that a client answers from, while its file may change."""

from __future__ import annotations

from pathlib import Path

from fedsplit.data.reading import Reading
from fedsplit.data.sources.client_data import Source
from fedsplit.data.sources.sources import sources
from fedsplit.errors import InputError
from fedsplit.regression.client.cache import CachedCohort
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.guards.answered import Answered, Asked
from fedsplit.regression.client.guards.blocks import Block
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.sites.rows.snapshots import Snapshot, Snapshots, Stamp


class CurrentRows:
    """A client's file: under rules that refuse its snapshots, otherwise as it is.

    Parameters
    ----------
    name : str
        Of the client.
    data : str
        The file.
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
        self.source = self._read()
        self._path = Dataset(self.source).path
        self._number = 0
        self._stamp: Stamp | None = None
        self._snapshots: Snapshots | None = None
        if rules.refuse and self._path is not None:
            self._snapshots = Snapshots(self._path, folder, reading)
            self._use(self._snapshots.latest(rules.smallest)[0])
        else:
            if self._path is not None:
                self._stamp = Stamp.of(self._path)
            self.cohort = self._cohort_of(Dataset(self.source, name))

    def follow(self, begins: bool) -> str:
        """Look whether the file has changed; what the owner is to be told, if anything.

        Parameters
        ----------
        begins : bool
            Whether a fit begins. Under rules the rows stay the same until then.
        """
        if self._path is None:
            return ""
        if self._snapshots is not None:
            snapshot, told = self._snapshots.latest(self._rules.smallest)
            if begins and snapshot.number != self._number:
                self._use(snapshot)
            return told
        stamp = Stamp.of(self._path)
        if stamp == self._stamp:
            return ""
        self._stamp = stamp
        self.source = self._read()
        self.cohort = self._cohort_of(Dataset(self.source, self._name))
        return "its file has changed, and is used from now on"

    @property
    def version(self) -> str:
        """Which rows answer: those of a snapshot, or of the file as it was last changed."""
        if self._number:
            return f"snapshot {self._number}"
        if self._stamp is None:
            return ""
        return f"file {self._stamp.size} {self._stamp.changed}"

    def notes(self) -> list[str]:
        """What the owner alone should know of the last answer; it is said once."""
        found = [note for each in self.cohort.datasets.values() for note in each.private]
        for each in self.cohort.datasets.values():
            each.private = []
        return found

    def own_source(self) -> Source:
        """The same rows for somebody else, who may read while questions are answered."""
        path = Dataset(self.source).path
        if path is None:
            return self._read()
        [found] = sources(str(path), reading=self._reading)
        return found

    def places(self) -> list[str]:
        """Paths that only the owner may see."""
        found = [str(Path(self._data).absolute()), self._data]
        path = Dataset(self.source).path
        if path is not None:
            found.append(str(path))
        return sorted(found, key=len, reverse=True)

    def _read(self) -> Source:
        found = sources(self._data, reading=self._reading)
        if len(found) != 1:
            raise InputError(f"{self._data}: a client has one file, this names {len(found)}")
        return found[0]

    def _cohort_of(self, dataset: Dataset) -> CachedCohort:
        return CachedCohort(dataset, self._folder, self._rules, self._vectors)

    def _use(self, snapshot: Snapshot) -> None:
        assert self._snapshots is not None
        self._number = snapshot.number
        self.source = self._snapshots.source(snapshot)
        dataset = Dataset(self.source, self._name, snapshot.ids)
        self.cohort = self._cohort_of(dataset)
        dataset.answered = Answered(
            self._name, self._folder / "answered", self._told, snapshot.number
        )

    def _told(self, asked: Asked) -> Block:
        """The columns of something that was asked for, of the snapshot that answered."""
        assert self._snapshots is not None
        [snapshot] = [each for each in self._snapshots.all() if each.number == asked.snapshot]
        dataset = Dataset(self._snapshots.source(snapshot), self._name, snapshot.ids)
        return dataset.told(asked, self._rules)
