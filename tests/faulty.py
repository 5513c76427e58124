"""Clients of whom things go wrong by a script, over a channel whose clock is a number: no test sleeps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import fedsplit as fs
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.options import FitOptions
from fedsplit.regression.server.fit import fit_over
from fedsplit.remote.channel import SILENT, Channel, Cohort, Question, Reply, Unprepared
from fedsplit.remote.clients import RemoteClients
from fedsplit.remote.cohort import ProblemCohort
from fedsplit.remote.members import Members

PROMPT, SLOW = 1.0, 100.0
"""Seconds to an answer, and to a late one."""

PATIENCE = fs.Patience()

Fault = Callable[[Reply], Reply]


class Moment(NamedTuple):
    """When a client is asked: the number of the question, its name, the client's, and the time."""

    number: int
    question: str
    client: str
    time: float


Script = Callable[[Moment], Fault | None]


def _rows(change: Callable[[Any], Any]) -> Fault:
    """Another array in the place of an answer's rows."""
    return lambda reply: _answer(reply, lambda told: told._replace(rows=change(told.rows)))


def _answer(reply: Reply, change: Callable[[fs.Answer], fs.Answer]) -> Reply:
    return (
        reply._replace(value=change(reply.value)) if isinstance(reply.value, fs.Answer) else reply
    )


def silent(reply: Reply) -> Reply:
    return reply._replace(seconds=np.inf)


def died(reply: Reply) -> Reply:
    """Its process ended, and what was settled is lost with it."""
    return Reply("failed", text="its process died", seconds=PROMPT)


FAULTS: dict[str, tuple[Fault, str]] = {
    "slow": (lambda reply: reply._replace(seconds=SLOW), "no answer in time"),
    "silent": (silent, "no answer in time"),
    "died": (died, "its process died"),
    "lost": (lambda reply: Reply("unprepared"), "it has lost what was settled"),
    "speechless": (lambda reply: Reply("failed"), "it failed"),
    "NaN": (_rows(lambda rows: np.full_like(rows, np.nan)), "an answer that is not finite"),
    "one NaN": (
        _rows(lambda rows: np.where(np.arange(rows.size).reshape(rows.shape), rows, np.nan)),
        "not finite",
    ),
    "infinite error": (
        lambda reply: _answer(reply, lambda a: a._replace(error=a.error + np.inf)),
        "not finite",
    ),
    "negative error": (
        lambda reply: _answer(reply, lambda a: a._replace(error=a.error - 1.0)),
        "not finite",
    ),
    "short": (
        _rows(lambda rows: rows[..., :-1] if rows.ndim > 1 else rows[:0]),
        "rows of the wrong shape",
    ),
    "two clients": (_rows(lambda rows: np.concatenate([rows, rows])), "rows of the wrong shape"),
    "huge": (
        _rows(lambda rows: np.zeros((1, 10**6))),
        "rows of the wrong shape, (1, 1000000) in the place of",
    ),
    "float32": (_rows(lambda rows: rows.astype(np.float32)), "rows of the wrong type, float32"),
    "text": (_rows(lambda rows: rows.astype(str)), "rows of the wrong type"),
    "a list": (_rows(lambda rows: rows.tolist()), "rows of the wrong type, list"),
    "another kind": (
        lambda reply: reply._replace(value={"rows": 1}),
        "an answer of the wrong kind, dict",
    ),
    "nothing": (lambda reply: reply._replace(value=None), "NoneType"),
    "a long text": (
        lambda reply: Reply("failed", text="trouble\n" * 10**5),
        "trouble trouble trouble",
    ),
}
"""All that can be wrong with an answer, and a part of what is said of it."""


class FaultyChannel:
    """One cohort for each of ``makes``, which makes it anew where it died."""

    free = False

    def __init__(
        self, makes: Sequence[Callable[[], Cohort]], script: Script, asked: int = 0
    ) -> None:
        self._makes, self.script, self.asked, self.time = makes, script, asked, 1000.0
        self._cohorts = [make() for make in makes]
        self.names = [list(cohort.names) for cohort in self._cohorts]
        self.kinds = self._cohorts[0].kinds
        self.log: list[tuple[float, str, list[str]]] = []

    def ask(self, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        self.asked += 1
        replies = {at: self._reply(at, question, timeout) for at, question in questions.items()}
        names = [name for at in questions for name in self.names[at]]
        self.log.append((self.time, next(iter(questions.values())).name, names))
        self.time += max(min(reply.seconds, timeout) for reply in replies.values())
        return replies

    def _reply(self, at: int, question: Question, timeout: float) -> Reply:
        fault = self.script(Moment(self.asked, question.name, self.names[at][0], self.time))
        if fault is died:
            self._cohorts[at] = self._makes[at]()
        try:
            reply = Reply("answer", self._cohorts[at].answer(question), seconds=PROMPT)
        except Unprepared:
            reply = Reply("unprepared", seconds=PROMPT)
        except fs.InputError as error:
            return Reply("refused", text=str(error))
        if fault is not None:
            reply = fault(reply)
        return reply if reply.seconds <= timeout else SILENT._replace(seconds=timeout)

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds


def well(moment: Moment) -> None:
    """Nothing is wrong."""


def together(
    p: fs.Problem, parts: Sequence[range], script: Script = well, asked: int = 0
) -> FaultyChannel:
    """The clients of a problem, by their numbers, in cohorts."""

    def make(part: range) -> Callable[[], Cohort]:
        return lambda: ProblemCohort([str(j) for j in part], p.part(part).among)

    return FaultyChannel([make(part) for part in parts], script, asked)


def channel_of(p: fs.Problem, script: Script = well, asked: int = 0) -> FaultyChannel:
    """The clients of a problem, each a cohort of its own."""
    return together(p, [range(j, j + 1) for j in range(p.m)], script, asked)


def faulty(
    p: fs.Problem | FaultyChannel,
    script: Script = well,
    patience: fs.Patience = PATIENCE,
    d: int | None = None,
) -> RemoteClients:
    """The same, for ``solve``."""
    channel = channel_of(p, script) if isinstance(p, fs.Problem) else p
    width = p.d if isinstance(p, fs.Problem) else d
    assert width is not None
    cohorts = range(len(channel.names))
    return RemoteClients(
        Members(channel, patience),
        width,
        dict.fromkeys(cohorts, Question("settle")),
        dict.fromkeys(cohorts, ""),
    )


def channel_to(
    frames: dict[str, pd.DataFrame], script: Script = well, asked: int = 0
) -> FaultyChannel:
    """The clients of a fit."""

    def make(name: str) -> Callable[[], Cohort]:
        return lambda: DatasetCohort([Dataset(source) for source in sources({name: frames[name]})])

    return FaultyChannel([make(name) for name in frames], script, asked)


def fit(
    frames: dict[str, pd.DataFrame] | Channel,
    formula: str,
    script: Script = well,
    patience: fs.Patience = PATIENCE,
    checkpoint: fs.Checkpoint | None = None,
    progress: Callable[..., object] | None = None,
    **settings: Any,
) -> fs.Model:
    """``fs.fit`` over a faulty channel."""
    channel = channel_to(frames, script) if isinstance(frames, dict) else frames
    chosen = FitOptions(
        None, formula, patience=patience, checkpoint=checkpoint, progress=progress, **settings
    )
    return fit_over(channel, chosen)
