"""Prepared data on disk: a client whose process is new answers without reading its source again."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedsplit import files
from fedsplit.losses.observations import Observations
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Design, Moments
from fedsplit.regression.client.validation import check_frame, check_question
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.fit_questions import Coded, Coding, Frame, key_of
from fedsplit.remote import codec
from fedsplit.remote.channel import Request

KEPT = 4
"""How many codings of the data are kept, and how many frames of each: the latest ones."""

PARTS = ("A", "b", "w", "o")


class Stamp(NamedTuple):
    """Which file the data came from, its size, and when it was changed."""

    path: str
    size: int
    changed: int


class Prepared(NamedTuple):
    """What is kept of coded rows beside their arrays."""

    stamp: Stamp
    columns: tuple[str, ...]
    classes: int
    moments: Moments
    strict: bool


class CachedCohort(DatasetCohort):
    """One client, whose coded rows and costs are kept as memory-mapped files.

    They are used while the source file has the same size and time of last change. A source that is
    not a file is read again by every process.

    Parameters
    ----------
    dataset : Dataset
    folder : Path
        Where to keep them.
    strict : bool
        As in ``DatasetCohort``.
    """

    def __init__(self, dataset: Dataset, folder: Path, strict: bool = False) -> None:
        super().__init__([dataset], strict)
        self._folder = folder / "prepared"
        self._dataset = dataset

    def answer(self, request: Request) -> Any:
        if request.key and request.key not in self._prepared:
            self._restore(request.key)
        if request.key in self._prepared:
            check_question(request.question, self._prepared[request.key][1].d)
        return super().answer(request)

    def code(self, coding: Coding) -> list[Coded]:
        coded = super().code(coding)
        if (stamp := self._stamp()) is not None:
            self._save(coding, stamp)
        return coded

    def settle(self, coding: Coding, frame: Frame) -> list[Moments]:
        if self._coding != coding:
            self._take(coding)
        if self._coding != coding:
            self.code(coding)
        check_frame(frame, self.rows[0])
        told = super().settle(coding, frame)
        if (place := self._place(coding)).is_dir():
            files.write(place / f"{key_of(coding, frame)}.frame", codec.encode((coding, frame)))
            _keep_latest(place.glob("*.frame"))
            _keep_latest(each for each in place.iterdir() if each.is_dir())
        return told

    def _data(self, coding: Coding, frame: Frame) -> list[Observations]:
        place = self._place(coding) / _without_ridge(coding, frame)
        if not place.is_dir():
            data = super()._data(coding, frame)
            if place.parent.is_dir():
                _write_arrays(place, data[0]._asdict())
            return data
        return [
            Observations(
                *(np.load(place / f"{part}.npy", mmap_mode="r") for part in Observations._fields)
            )
        ]

    def _place(self, coding: Coding) -> Path:
        return self._folder / hashlib.sha256(codec.encode(coding)).hexdigest()[:32]

    def _stamp(self) -> Stamp | None:
        if (path := self._dataset.path) is None:
            return None
        status = path.stat()
        return Stamp(str(path), status.st_size, status.st_mtime_ns)

    def _save(self, coding: Coding, stamp: Stamp) -> None:
        place = self._place(coding)
        [rows], [moments] = self.rows, self._moments
        shutil.rmtree(place, ignore_errors=True)
        _write_arrays(place, {part: getattr(rows, part) for part in PARTS})
        about = Prepared(
            stamp, tuple(rows.columns), rows.classes, moments, coding.strict or self.strict
        )
        files.write(place / "about", codec.encode(about))
        _keep_latest(each for each in self._folder.iterdir() if each.is_dir())

    def _take(self, coding: Coding) -> None:
        """The coded rows from the disk, where they are there and of the source as it is."""
        place = self._place(coding)
        try:
            about: Prepared = codec.decode(Prepared, (place / "about").read_bytes())
            A, b, w, o = (np.load(place / f"{part}.npy", mmap_mode="c") for part in PARTS)
        except (OSError, ValueError):
            return
        if about.stamp != self._stamp() or (self.strict and not about.strict):
            return
        rows = Design(
            self._dataset.name,
            FAMILIES[coding.plan.family],
            about.columns,
            A,
            b,
            w,
            o,
            about.classes,
        )
        self._forget()
        self._coding, self.rows, self._moments = coding, [rows], [about.moments]

    def _restore(self, key: str) -> None:
        """What was settled under this key, where it is on the disk."""
        if not re.fullmatch("[0-9a-f]{64}", key):
            return
        for path in self._folder.glob(f"*/{key}.frame"):
            coding, frame = codec.decode(tuple[Coding, Frame], path.read_bytes())
            self._take(coding)
            if self._coding == coding:
                super().settle(coding, frame)


def _without_ridge(coding: Coding, frame: Frame) -> str:
    return key_of(coding, frame.without_ridge())[:32]


def _keep_latest(paths: Iterable[Path]) -> None:
    """All but the latest few are removed."""
    for path in sorted(paths, key=lambda each: each.stat().st_mtime)[:-KEPT]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _write_arrays(place: Path, arrays: dict[str, Any]) -> None:
    """Arrays as files in a folder that has its name only when it is whole."""
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(partial / f"{name}.npy", array)
    partial.replace(place)
