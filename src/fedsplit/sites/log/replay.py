"""The answers of a client's log, computed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsplit.channels import codec
from fedsplit.channels.channel import Reply, Request, Unprepared
from fedsplit.clients.question import Answer, Question
from fedsplit.data.sources.sources import sources
from fedsplit.data.tables import Source
from fedsplit.errors import InputError
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.guards.rounding import STEADY
from fedsplit.regression.client.questions import NoisedSum, NoisySums, SumAnswer
from fedsplit.remote.messages import answer_type_of
from fedsplit.sites.log.masked_replay import MaskedReplay
from fedsplit.sites.rows.current_rows import version_of
from fedsplit.sites.rows.snapshots import Snapshots
from fedsplit.sites.settings import SiteSettings, read_settings
from fedsplit.sites.studies.hashes import short
from fedsplit.sites.studies.noise import ledger_of
from fedsplit.sites.studies.scope import narrowed
from fedsplit.sites.studies.study import Study, read_study
from fedsplit.statistic import Values


class NotPrepared(InputError):
    """An answer rests on a preparation that the log does not have."""


class Replay:
    """Computes the answers of a log again, in their order.

    Parameters
    ----------
    folder : Path
        Of the client.
    kinds : mapping of str to Question class
        The questions that a client answers.
    data : str or None
        The file, if it is not where it was.
    """

    def __init__(self, folder: Path, kinds: Mapping[str, type[Question]], data: str | None) -> None:
        self._folder = folder
        self._kinds = kinds
        self._data = data
        self._cohorts: dict[tuple[str, str], DatasetCohort] = {}
        # What clients were prepared with, by key: it travels with one question only.
        self._preparations: dict[str, Question] = {}
        self._sums = MaskedReplay(folder / "studies")

    def difference(self, request: Request, reply: Reply, entry: Mapping[str, Any]) -> float:
        """How far an answer is from the one that is computed now.

        Parameters
        ----------
        request : Request
        reply : Reply
        entry : mapping
            Their entry of the log, with the settings and the rows.

        Raises
        ------
        NotPrepared, InputError
            If it cannot be computed.
        """
        kind = answer_type_of(request)
        if isinstance(request.question, NoisySums):
            return self._noisy(request, reply, entry)
        if request.preparation is not None:
            self._preparations[request.key] = request.preparation
        cohort = self._cohort(entry["settings"], entry["rows"])
        if request.step is not None:
            return self._sums.difference(
                self._study(request.study), cohort, request, reply.value, self._answer
            )
        again = self._answer(cohort.answer, request)
        if request.study:
            again = narrowed(self._study(request.study), request.question, again)
        again = codec.decode(kind, codec.encode(again))
        if cohort.rules.refuse or cohort.asked_strict:
            again = _withheld(reply.value, again)
        return distance(reply.value, again)

    def _noisy(self, request: Request, reply: Reply, entry: Mapping[str, Any]) -> float:
        """Whether an answer with noise is the one that was drawn: it cannot be computed again."""
        ledger = ledger_of(self._folder / "studies", request.study)
        number = request.question.number  # type: ignore[attr-defined]  # of NoisySums
        if request.step is None:
            return distance(reply.value, ledger.kept(number, list[NoisedSum]))
        kept = ledger.kept(number, NDArray[np.int64]).view(np.uint64)
        study = self._study(request.study)
        cohort = self._cohort(entry["settings"], entry["rows"])
        return self._sums.difference(study, cohort, request, reply.value, lambda *_: [kept])

    def _study(self, name: str) -> Study:
        path = self._folder / "studies" / name / "study.json"
        if not path.is_file():
            raise InputError(f"the study {short(name[:16])} is no longer in the folder")
        return read_study(path.read_bytes(), self._kinds)

    def _answer(self, answer: Callable[[Request], Any], request: Request) -> Any:
        try:
            return answer(request)
        except Unprepared:
            preparation = self._preparations.get(request.key)
            if preparation is None:
                raise NotPrepared("the line that prepared it is not in the log") from None
            return answer(request._replace(preparation=preparation))

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


def _withheld(told: Any, again: Any) -> Any:
    """An answer without what a client under rules may withhold, where it has done so.

    Whether it does depends on all that it disclosed before, under any rules and of any rows; a log
    need not have all of that.
    """
    match told, again:
        case list(), list() if len(told) == len(again):
            return [_withheld(one, other) for one, other in zip(told, again, strict=True)]
        case SumAnswer(), SumAnswer() if told.values.keys() == again.values.keys():
            values = {
                name: told.values[name] if _is_withheld(told.values[name]) else own
                for name, own in again.values.items()
            }
            return again._replace(values=values)
        case Answer(), Answer() if STEADY in told.parts and STEADY in again.parts:
            radii = np.where(told.parts[STEADY] == 0, 0.0, again.parts[STEADY])
            return again._replace(parts=again.parts | {STEADY: radii})
    return again


def _is_withheld(values: Values) -> bool:
    """Whether all numbers of an answer are 0, as those of one too many of a kind."""
    return not any(part.any() for part in values.values())


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
    if largest == 0:
        return math.inf
    with np.errstate(over="ignore"):
        return float(apart / largest)
