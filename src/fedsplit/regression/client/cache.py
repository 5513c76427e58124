"""A client's prepared data on disk, so that a new process answers without reading its source."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.channels.cohort import other_data, same_data
from fedsplit.clients.question import Question
from fedsplit.files import Stamp
from fedsplit.losses.observations import Observations
from fedsplit.regression.client.coding import (
    Coding,
    Frame,
    check_coding,
    check_frame,
    check_question,
    key_of,
)
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.ledger import DisclosureLedger
from fedsplit.regression.client.guards.rules import WARN, Rules
from fedsplit.regression.client.guards.thresholds import check_numbers
from fedsplit.regression.client.moments import moments_of
from fedsplit.regression.client.questions import FitQuestion, SumQuestion, strict_is_asked
from fedsplit.regression.families.response import Groups
from fedsplit.statistic import Values

KEPT = 4
"""How many codings of the data are kept, and how many frames of each: the latest ones."""

ARRAYS = ("A", "b", "w", "o", "index")


class Origin(NamedTuple):
    """The file that rows were read from, as it was then."""

    path: str
    stamp: Stamp


class Prepared(NamedTuple):
    """What is kept of coded rows beside their arrays.

    Attributes
    ----------
    origin : Origin
        The source.
    columns : tuple of str
        Of the design.
    classes : int
        How many classes a classifier has.
    told : mapping of str to array
        Their moments, as the server has them.
    rules : Rules
        Those under which the rows were coded.
    groups : Groups or None
        Of a grouped target.
    """

    origin: Origin
    columns: tuple[str, ...]
    classes: int
    told: Mapping[str, Array]
    rules: Rules
    groups: Groups | None = None


class CachedCohort(DatasetCohort):
    """One client, whose coded rows and costs are kept as memory-mapped files.

    They are used while the source file is unchanged. A source that is not a file is read again by
    every process.

    Parameters
    ----------
    dataset : Dataset
    folder : Path
        Where to keep them.
    rules, vectors : Rules, bool
        As in ``DatasetCohort``.
    """

    def __init__(
        self, dataset: Dataset, folder: Path, rules: Rules = WARN, vectors: bool = False
    ) -> None:
        super().__init__([dataset], rules, vectors)
        self._folder = folder / "prepared"
        self._dataset = dataset
        self._read_from: Origin | None = None
        self._belongs: Callable[[Coding, Frame], None] | None = None
        if rules.refuse or vectors:  # otherwise rows have no numbers that last
            dataset.ledger = DisclosureLedger(folder / "disclosed")

    def answer(
        self, request: Request, belongs: Callable[[Coding, Frame], None] | None = None
    ) -> Any:
        """As in ``Cohort``; ``belongs`` refuses what was prepared for another study."""
        for question in request.parts:
            coding = getattr(question, "coding", None)
            if coding is not None:
                check_coding(coding)
        if request.key and request.key not in self._prepared:
            self._restore(request.key)
        strict = self.asked_strict or any(map(strict_is_asked, request.parts))
        if self.rules.asked(strict).refuse:
            check_numbers(request.parts)
        self._belongs = belongs
        value = super().answer(request)
        if self.rules.refuse and _ends(request.question):
            column = self.rules.person
            persons = None if column is None else self._dataset.persons(column)
            self._dataset.private += filter(None, [self._dataset.ledger.in_words(persons)])
        return value

    def _prepare(self, request: Request) -> None:
        super()._prepare(request)
        if request.key not in self._prepared:
            return
        frame, problem = self._prepared[request.key]
        if self._belongs is not None and self._coding is not None:
            self._belongs(self._coding, frame)
        if not isinstance(request.question, FitQuestion):
            check_question(request.question, problem.d)

    def code(self, coding: Coding) -> None:
        self._read_from = self._origin()  # before the rows are read: they may change on the way
        super().code(coding)

    def coded(self, coding: Coding) -> None:
        self._save(coding, self._read_from)

    def settle(self, coding: Coding, frame: Frame) -> list[Values]:
        self.load_or_code(coding, scaled=True)
        check_frame(frame, self.rows[0], moments_of(self._moments(self.rows[0]), coding.plan))
        moments = super().settle(coding, frame)
        folder = self._folder_of(coding)
        if folder.is_dir():
            files.write(folder / f"{key_of(coding, frame)}.frame", codec.encode((coding, frame)))
            _keep_latest(folder.glob("*.frame"))
            _keep_latest(path for path in folder.iterdir() if path.is_dir())
        return moments

    def load_or_code(self, coding: Coding, scaled: bool = False) -> None:
        """Take the rows whose moments were told; they must still be the same.

        Parameters
        ----------
        coding : Coding
        scaled : bool
            Whether rows that have been scaled will do.
        """
        if self._coding == coding and (scaled or self.rows[0].scaling is None):
            return
        self._load(coding)
        if self._coding == coding and self.rows[0].scaling is None:
            return
        about = self._about(coding)
        self.code(coding)
        if about is None:
            return
        if not same_data(about.told, self._moments(self.rows[0])):
            self._forget()
            raise other_data([self._dataset.name])
        self._save(coding, self._read_from)

    def _data(self, coding: Coding, frame: Frame) -> list[Observations]:
        without_ridge = key_of(coding, frame.without_ridge())[:32]
        folder = self._folder_of(coding) / without_ridge
        if not folder.is_dir():
            data = super()._data(coding, frame)
            if folder.parent.is_dir():
                _write_arrays(folder, data[0]._asdict())
            return data
        arrays = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in Observations._fields)
        return [Observations(*arrays)]

    def _folder_of(self, coding: Coding) -> Path:
        return self._folder / hashlib.sha256(codec.encode(coding)).hexdigest()[:32]

    def _origin(self) -> Origin | None:
        path = self._dataset.path
        if path is None:
            return None
        return Origin(str(path), Stamp.of(path))

    def _save(self, coding: Coding, origin: Origin | None) -> None:
        """Keep coded rows, unless they are not those of a file."""
        if origin is None:
            return
        folder = self._folder_of(coding)
        [design] = self.rows
        told = self._moments(design)
        shutil.rmtree(folder, ignore_errors=True)
        _write_arrays(folder, {name: getattr(design, name) for name in ARRAYS})
        rules = self.rules.asked(coding.strict)
        about = Prepared(origin, tuple(design.columns), design.classes, told, rules, design.groups)
        files.write(folder / "about", codec.encode(about))
        _keep_latest(path for path in self._folder.iterdir() if path.is_dir())

    def _load(self, coding: Coding) -> None:
        """Load the coded rows, if they are there and the source has not changed."""
        folder = self._folder_of(coding)
        about = self._about(coding)
        try:
            # copy on write: rows are scaled in place, the files stay as they are
            A, b, w, o, index = (np.load(folder / f"{name}.npy", mmap_mode="c") for name in ARRAYS)
        except (OSError, ValueError):
            return
        if about is None:
            return
        if about.origin != self._origin() or about.rules != self.rules.asked(coding.strict):
            return
        family = coding.plan.chosen_family
        rows = Design(
            self._dataset.name,
            family,
            about.columns,
            A,
            b,
            w,
            o,
            about.classes,
            groups=about.groups,
            index=index,
        )
        self._forget()
        self.rows = [rows]
        self._told = {rows.name: about.told}
        self._findings = {rows.name: ()}
        self._coding = coding

    def _about(self, coding: Coding) -> Prepared | None:
        """What is known of the rows that were coded last in this way."""
        try:
            about: Prepared = codec.decode(
                Prepared, (self._folder_of(coding) / "about").read_bytes()
            )
        except (OSError, ValueError):
            return None
        return about

    def _restore(self, key: str) -> None:
        """Restore the preparation with this key, if it is on disk."""
        if not re.fullmatch("[0-9a-f]{64}", key):
            return
        for path in self._folder.glob(f"*/{key}.frame"):
            try:
                coding, frame = codec.decode(tuple[Coding, Frame], path.read_bytes())
            except ValueError:  # cut short by a loss of power: the server prepares it again
                continue
            self._load(coding)
            if self._coding == coding:
                super().settle(coding, frame)


def _ends(question: Question) -> bool:
    """Whether a question is about the end of a fit."""
    return isinstance(question, SumQuestion) and question.kind == "end"


def _keep_latest(paths: Iterable[Path]) -> None:
    """Remove all but the latest ``KEPT``."""
    for path in sorted(paths, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _write_arrays(folder: Path, arrays: dict[str, Any]) -> None:
    """Write arrays into a folder that gets its name only when it is complete."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, array in arrays.items():
        path = partial / f"{name}.npy"
        np.save(path, array)
        files.sync(path)  # or a loss of power could leave zeros under the right name
    partial.replace(folder)
