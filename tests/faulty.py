"""Clients that fail by a script, over a channel whose clock is a number: no test sleeps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import fedsplit as fs
from fedsplit.arrays import Mask
from fedsplit.channels.channel import SILENT, Channel, Cohort, Reply, Request, Unprepared
from fedsplit.channels.clients import RemoteClients
from fedsplit.channels.cohort import Fingerprint, ProblemCohort
from fedsplit.channels.members import Members
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Curvature, Value
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions

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

    def changed(answer: fs.Answer) -> fs.Answer:
        first = next(iter(answer.parts))
        return answer._replace(parts=answer.parts | {first: change(answer.rows)})

    return lambda reply: _answer(reply, changed)


def _error(change: Callable[[Any], Any]) -> Fault:
    """Another proved error of a prox."""

    def changed(answer: fs.Answer) -> fs.Answer:
        if "error" not in answer.parts:
            return answer
        return answer._replace(parts=answer.parts | {"error": change(answer.error)})

    return lambda reply: _answer(reply, changed)


class Unreliable(fs.Clients):
    """Clients in this process of whom only those that ``draw()`` gives answer.

    Questions of the types ``always`` are answered by all. Nobody may read an absent client's row.
    """

    def __init__(
        self,
        p: fs.Problem,
        draw: Callable[[], Mask],
        always: tuple[type[CostQuestion], ...] = (Value, Curvature),
    ) -> None:
        self._whole, self._draw, self._always = p.clients, draw, always
        self.m, self.d = p.m, p.d

    def ask(self, question: CostQuestion) -> fs.Answer:
        answer = self._whole.ask(question)
        if isinstance(question, self._always):
            return answer
        present = self._draw()
        parts = {name: np.array(array) for name, array in answer.parts.items()}
        for array in parts.values():
            array[~present] = np.nan
        return answer._replace(parts=parts, present=present)


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
    "lost": (lambda reply: Reply("unprepared"), "it lost what it was prepared with"),
    "speechless": (lambda reply: Reply("failed"), "it failed"),
    "NaN": (_rows(lambda rows: np.full_like(rows, np.nan)), "an answer that is not finite"),
    "one NaN": (
        _rows(lambda rows: np.where(np.arange(rows.size).reshape(rows.shape), rows, np.nan)),
        "not finite",
    ),
    "infinite error": (
        _error(lambda error: error + np.inf),
        "not finite",
    ),
    "negative error": (
        _error(lambda error: error - 1.0),
        "error is below zero",
    ),
    "short": (
        _rows(lambda rows: rows[..., :-1] if rows.ndim > 1 else rows[:0]),
        "has the wrong shape",
    ),
    "two clients": (_rows(lambda rows: np.concatenate([rows, rows])), "has the wrong shape"),
    "huge": (
        _rows(lambda rows: np.zeros((1, 10**6))),
        "has the wrong shape, (1, 1000000), expected",
    ),
    "float32": (_rows(lambda rows: rows.astype(np.float32)), "has the wrong type, float32"),
    "text": (_rows(lambda rows: rows.astype(str)), "has the wrong type"),
    "a list": (_rows(lambda rows: rows.tolist()), "has the wrong type, list"),
    "another kind": (
        lambda reply: reply._replace(value={"rows": 1}),
        "an answer of the wrong type, dict",
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
    recorded = True

    def __init__(
        self, makes: Sequence[Callable[[], Cohort]], script: Script, asked: int = 0
    ) -> None:
        self._makes, self.script, self.asked, self.time = makes, script, asked, 1000.0
        self._cohorts = [make() for make in makes]
        self.names = [list(cohort.names) for cohort in self._cohorts]
        self.log: list[tuple[float, str, list[str]]] = []
        self._posted: dict[int, tuple[float, Reply]] = {}  # by cohort, what arrives when

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        self.asked += 1
        replies = {at: self._reply(at, request, timeout) for at, request in requests.items()}
        names = [name for at in requests for name in self.names[at]]
        self.log.append((self.time, next(iter(requests.values())).question.name(), names))
        self.time += max(min(reply.seconds, timeout) for reply in replies.values())
        return replies

    def _reply(self, at: int, request: Request, timeout: float) -> Reply:
        fault = self.script(
            Moment(self.asked, request.question.name(), self.names[at][0], self.time)
        )
        if fault is died:
            self._cohorts[at] = self._makes[at]()
        try:
            reply = Reply("answer", self._cohorts[at].answer(request), seconds=PROMPT)
        except Unprepared:
            reply = Reply("unprepared", seconds=PROMPT)
        except fs.InputError as error:
            return Reply("refused", text=str(error))
        if fault is not None:
            reply = fault(reply)
        return reply if reply.seconds <= timeout else SILENT._replace(seconds=timeout)

    def post(self, requests: Mapping[int, Request]) -> None:
        for at, request in requests.items():
            self.asked += 1
            self.log.append((self.time, request.question.name(), self.names[at]))
            reply = self._reply(at, request, np.inf)
            self._posted[at] = self.time + reply.seconds, reply

    def collect(self, timeout: float) -> dict[int, Reply]:
        first = min(when for when, _ in self._posted.values())
        if first > self.time + timeout:
            self.time += timeout
            return {}
        self.time = max(self.time, first)
        arrived = [at for at, (when, _) in self._posted.items() if when <= self.time]
        return {at: self._posted.pop(at)[1] for at in arrived}

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
        dict.fromkeys(cohorts, Fingerprint()),
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
