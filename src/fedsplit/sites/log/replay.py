"""A client's log, checked: the chain of its lines, and whether its answers come out again."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedsplit.clients.question import Answer, Question
from fedsplit.data.sources.client_data import Source
from fedsplit.data.sources.sources import sources
from fedsplit.errors import InputError
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.remote import codec
from fedsplit.remote.channel import Request, Unprepared
from fedsplit.remote.messages import read_reply, read_request
from fedsplit.sites.log.audit_log import Head, read_log
from fedsplit.sites.rows.current_rows import version_of
from fedsplit.sites.rows.snapshots import Snapshots
from fedsplit.sites.settings import SiteSettings, read_settings
from fedsplit.sites.studies.scope import narrowed
from fedsplit.sites.studies.study import read_study
from fedsplit.version import __version__

TOLERANCE = 1e-12
"""How far answers of another version may be from those that come out, relative to the largest."""

WITHOUT_DATA = ("hello", "propose", "finish")
"""Questions that are answered without the data."""


@dataclass
class Audit:
    """What was found.

    Attributes
    ----------
    lines : int
        How many lines the log has.
    equal, close : int
        How many answers came out again bit by bit, and how many to the tolerance.
    troubles : list of str
        What is wrong: which line, and why.
    heads : dict of int to str
        The hash of each line, by its number.
    """

    lines: int = 0
    equal: int = 0
    close: int = 0
    troubles: list[str] = field(default_factory=list)
    heads: dict[int, str] = field(default_factory=dict)

    @property
    def head(self) -> Head | None:
        """The last line; None of an empty log."""
        if not self.heads:
            return None
        number = max(self.heads)
        return Head(number, self.heads[number])


def audit(
    folder: Path,
    kinds: Mapping[str, type[Question]],
    data: str | None = None,
    log: Path | None = None,
    progress: Callable[[int], object] = lambda number: None,
) -> Audit:
    """Check the log of a client, and compute every answer in it again.

    Parameters
    ----------
    folder : Path
        Of the client.
    kinds : mapping of str to Question class
        The questions that a client answers.
    data : str, optional
        The file, if it is not where it was.
    log : Path, optional
        The log, if it is not in the folder.
    progress : callable
        Called with the number of each line.
    """
    found = Audit()
    replay = Replay(folder, kinds, data)
    try:
        for entry in read_log(log or folder / "questions.jsonl"):
            found.lines += 1
            found.heads[entry["number"]] = entry["hash"]
            progress(entry["number"])
            if entry["outcome"] != "answer" or entry["question"] in WITHOUT_DATA:
                continue
            where = f"line {entry['number']}, {entry['question']}"
            try:
                difference = replay.difference(entry)
            except (InputError, Unprepared, KeyError, TypeError, ValueError) as error:
                found.troubles.append(
                    f"{where}: cannot be computed again ({error or 'unprepared'})"
                )
                continue
            if difference == 0.0:
                found.equal += 1
            elif difference <= TOLERANCE and entry["version"] != __version__:
                found.close += 1
            else:
                found.troubles.append(f"{where}: another answer comes out ({difference:.0e} away)")
    except InputError as error:
        found.troubles.append(str(error))
    return found


class Replay:
    """Computes the answers of a log again, in their order.

    Parameters
    ----------
    folder, kinds, data
        As in ``audit``.
    """

    def __init__(self, folder: Path, kinds: Mapping[str, type[Question]], data: str | None) -> None:
        self._folder = folder
        self._kinds = kinds
        self._data = data
        self._cohorts: dict[tuple[str, str], DatasetCohort] = {}
        # What clients were prepared with, by key: it travels with one question only.
        self._preparations: dict[str, Question] = {}

    def difference(self, entry: Mapping[str, Any]) -> float:
        """How far the answer in an entry is from the one that comes out."""
        request = read_request(b64decode(entry["message"]), self._kinds)
        kind = request.question.answer_type
        told = read_reply(b64decode(entry["reply"]), kind, 0.0).value
        if request.preparation is not None:
            self._preparations[request.key] = request.preparation
        cohort = self._cohort(entry["settings"], entry["rows"])
        again = self._answer(cohort, request)
        if request.study:
            path = self._folder / "studies" / request.study / "study.json"
            again = narrowed(read_study(path.read_bytes(), self._kinds), request.question, again)
        return distance(told, codec.decode(kind, codec.encode(again)))

    def _answer(self, cohort: DatasetCohort, request: Request) -> Any:
        try:
            return cohort.answer(request)
        except Unprepared:
            preparation = self._preparations[request.key]
            return cohort.answer(request._replace(preparation=preparation))

    def _cohort(self, name: str, rows: str) -> DatasetCohort:
        """The client as it was set up when it answered, with the rows that it had."""
        if (name, rows) not in self._cohorts:
            settings = read_settings(self._folder, name)
            dataset = Dataset(self._source(settings, rows), settings.name)
            self._cohorts[name, rows] = DatasetCohort([dataset], settings.rules, settings.vectors)
        return self._cohorts[name, rows]

    def _source(self, settings: SiteSettings, rows: str) -> Source:
        """The rows that answered."""
        kind, _, which = rows.partition(" ")
        if kind == "snapshot" and self._data is None:
            return Snapshots(self._folder).get(int(which)).source()
        [source] = sources(self._data or settings.data, reading=settings.reading)
        if self._data is None and kind == "file" and version_of(source) != rows:
            path = Dataset(source).path
            raise InputError(f"{path} has changed since, and without rules no copy of it was kept")
        return source


def distance(told: Any, again: Any) -> float:
    """How far two answers are apart, relative to the largest number of each part.

    Times, and how much was computed on the way, are left out. Answers that differ in anything but
    numbers are infinitely far apart.
    """
    if isinstance(told, Answer):
        told, again = dict(told.parts), dict(again.parts)
    if hasattr(told, "_asdict"):
        told, again = told._asdict(), again._asdict()
    elif hasattr(told, "__dataclass_fields__"):
        told, again = vars(told), vars(again)
    if isinstance(told, Mapping):
        if list(told) != list(again):
            return math.inf
        return max((distance(told[name], again[name]) for name in told), default=0.0)
    if isinstance(told, list | tuple):
        if len(told) != len(again):
            return math.inf
        return max((distance(a, b) for a, b in zip(told, again, strict=True)), default=0.0)
    if isinstance(told, np.ndarray | float):
        return _apart(np.asarray(told), np.asarray(again))
    return 0.0 if told == again else math.inf


def _apart(told: Any, again: Any) -> float:
    if told.shape != again.shape:
        return math.inf
    if np.array_equal(told, again, equal_nan=True):
        return 0.0
    if not np.array_equal(np.isfinite(told), np.isfinite(again)):
        return math.inf
    finite = np.isfinite(told)
    largest = np.abs(told[finite]).max(initial=0.0)
    apart = np.abs(told[finite] - again[finite]).max(initial=0.0)
    return float(apart / max(largest, np.finfo(float).tiny))
