"""Clients elsewhere: the protocol's questions, asked of cohorts over a channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Answer, Clients, Decrement
from fedsplit.prox.solver import ProxSolver
from fedsplit.remote.channel import Channel, LocalChannel, Question, Reply, other_data, same_data
from fedsplit.remote.cohort import OracleCohort
from fedsplit.remote.members import NOT_FINITE, Check, Roll

FINITE = frozenset({"prox", "descend", "gradient", "diagonal", "direction", "information"})
"""Questions whose answers are finite numbers; those of others may be infinite."""

ATTEMPTS = 3
"""How often one question is repeated to a client that loses what was settled."""


class RemoteClients:
    """Clients that are asked over a channel, cohort by cohort, and may be absent.

    An answer of the wrong kind, shape or size, or one that is not finite where it must be, counts as none. Where no
    client's answer is finite the run itself diverges, and the answers are passed on. A question that nobody answers is
    asked again.

    Parameters
    ----------
    roll : Roll
        Whom to ask.
    d : int
        The length of x.
    settle : dict of Question
        By cohort, what it has to be told before it can answer; the reply says on which data it stands.
    keys : dict of str
        By cohort, the name of what is settled, which goes with every question.
    """

    def __init__(
        self, roll: Roll, d: int, settle: dict[int, Question], keys: dict[int, str]
    ) -> None:
        self.d, self.m, self.roll = d, len(roll.names), roll
        self.free = roll.channel.free
        self._settle, self._keys, self._insists = settle, keys, False
        self._told: dict[int, Any] = {}
        self._confirmed: set[int] = set()

    @property
    def names(self) -> Sequence[str] | None:
        """The clients by name, where they are elsewhere."""
        return None if self.roll.patience is None else self.roll.names

    def insistent(self) -> RemoteClients:
        """The same clients, asked until all of them have answered."""
        other = copy(self)
        other._insists = True
        return other

    def without(self, names: Sequence[str]) -> RemoteClients:
        """The other clients."""
        other = copy(self)
        other.roll = self.roll.without(names)
        other.m = len(other.roll.names)
        return other

    def over(self, channel: Channel) -> RemoteClients:
        """The same clients over another channel to them."""
        other = copy(self)
        other.roll = Roll(channel, self.roll.patience, self.roll.names)
        other._told, other._confirmed = {}, set()
        return other

    def settle(self) -> None:
        """Tell every cohort what it needs."""
        self._confirm(self.roll.cohorts, insist=True)

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        return self._ask("prox", (self.d,), v, s, start, solver)

    def descend(self, x: Array, step: float, steps: int, shift: Array | None = None) -> Answer:
        return self._ask("descend", (self.d,), x, step, steps, shift)

    def gradient(self, x: Array) -> Answer:
        return self._ask("gradient", (self.d,), x)

    def value(self, x: Array) -> Answer:
        return self._ask("value", (), x)

    def evaluate(self, x: Array) -> Answer:
        return self._ask("evaluate", (1 + self.d,), x)

    def curvature(self, x: Array | None = None) -> Answer:
        return self.insistent()._ask(
            "curvature", (2,), x
        )  # a step that follows from it must suit everybody

    def diagonal(self, x: Array) -> Answer:
        return self._ask("diagonal", (self.d + 2,), x)

    def decrement(self, x: Array, g: Array) -> Answer:
        return self._ask("decrement", (len(Decrement._fields),), x, g)

    def line(self, x: Array, direction: Array, t: Array) -> Answer:
        return self._ask("line", (len(t),), x, direction, t)

    def direction(self, x: Array, g: Array) -> Answer:
        return self._ask("direction", (self.d,), x, g)

    def margin(self, x: Array) -> Answer:
        return self._ask("margin", (), x)

    def information(self, x: Array) -> Answer:
        return self._ask("information", (self.d, self.d), x)

    def _ask(self, name: str, shape: tuple[int, ...], *args: Any) -> Answer:
        places = self._places()
        questions = {
            at: Question(
                name, (self._keys[at], self.m, *(_part(arg, part, self.m) for arg in args))
            )
            for at, part in places.items()
        }

        def check(at: int, value: Any) -> str:
            what = _wrong(value, (len(self.roll.cohorts[at]), *shape))
            return what or ("" if _sound(name, value) else NOT_FINITE)

        replies = self.heard(questions, check, self._insists)
        if self.roll.patience is None and len(replies) == 1:
            [reply] = replies.values()
            return reply.value  # type: ignore[no-any-return]  # a cohort in this process answers with an Answer
        while (
            not replies and self.roll.patience is not None
        ):  # until somebody answers, or all are given up
            replies = self.heard(questions, check, self._insists)
        return self._together(shape, places, replies)

    def _places(self) -> dict[int, slice]:
        """Which rows belong to each cohort."""
        places, end = {}, 0
        for at, members in self.roll.cohorts.items():
            places[at] = slice(end, end := end + len(members))
        return places

    def _together(
        self, shape: tuple[int, ...], places: dict[int, slice], replies: dict[int, Reply]
    ) -> Answer:
        """The cohorts' answers as one; rows of those who gave none are not numbers."""
        rows, margin = np.full((self.m, *shape), np.nan), np.full(self.m, np.nan)
        present, error, seconds = (
            np.zeros(self.m, dtype=bool),
            np.zeros(self.m),
            np.full(self.m, np.nan),
        )
        for at, reply in replies.items():
            part, told = places[at], reply.value
            rows[part], error[part], present[part], seconds[part] = (
                told.rows,
                told.error,
                True,
                reply.seconds,
            )
            if told.margin is not None:
                margin[part] = told.margin
        return Answer(rows, present, error, seconds, margin)

    def heard(self, questions: dict[int, Question], check: Check, insist: bool) -> dict[int, Reply]:
        """Good answers by cohort; those who have lost what was settled are told again, and asked again."""
        found: dict[int, Reply] = {}
        waiting = questions
        for attempt in range(ATTEMPTS):
            ready, again = self._confirm(waiting, insist), attempt < ATTEMPTS - 1
            replies = (
                self.roll.ask({at: waiting[at] for at in ready}, check, insist, lost=again)
                if ready
                else {}
            )
            found |= {at: reply for at, reply in replies.items() if reply.outcome == "answer"}
            lost = [at for at, reply in replies.items() if reply.outcome == "unprepared"]
            if not lost:
                break
            self._confirmed -= set(lost)
            waiting = {at: questions[at] for at in lost}
        return {at: found[at] for at in questions if at in found}

    def _confirm(self, cohorts: Iterable[int], insist: bool) -> list[int]:
        """Those of the cohorts that are settled, once those that were not have been told."""
        unsure = [at for at in cohorts if at not in self._confirmed]
        questions = {at: self._settle[at] for at in unsure}
        told = self.roll.ask(questions, self.roll.one_each, insist) if unsure else {}
        for at, reply in told.items():
            if at in self._told and not same_data(self._told[at], reply.value):
                raise other_data(self.roll.cohorts[at])
            self._told[at] = reply.value
            self._confirmed.add(at)
        return [at for at in cohorts if at in self._confirmed]


def in_process(clients: Clients) -> RemoteClients:
    """Clients of this process, as if they were elsewhere."""
    cohort = OracleCohort([str(j) for j in range(clients.m)], lambda m: clients)
    return RemoteClients(Roll(LocalChannel(cohort)), clients.d, {0: Question("settle")}, {0: ""})


def insisting(clients: Clients) -> Clients:
    """The clients, asked until all of them have answered; those in this process always do."""
    return clients.insistent() if isinstance(clients, RemoteClients) else clients


def measurable(clients: Clients) -> bool:
    """Whether questions may be asked for a measurement alone: of clients in this process, where they cost little."""
    return not isinstance(clients, RemoteClients) or clients.free


def unrecorded(clients: Clients) -> bool:
    """Whether a question more or less makes no difference: of clients in this process, without a checkpoint."""
    return not isinstance(clients, RemoteClients) or isinstance(clients.roll.channel, LocalChannel)


def _part(arg: Any, part: slice, m: int) -> Any:
    """A cohort's part of an argument: its rows where there is one for each client."""
    return arg[part] if isinstance(arg, np.ndarray) and arg.ndim == 2 and len(arg) == m else arg


def _wrong(value: Any, shape: tuple[int, ...]) -> str:
    """What is wrong with the form of an answer."""
    if not isinstance(value, Answer):
        return f"an answer of the wrong kind, {type(value).__name__}"
    parts = {"rows": (value.rows, shape), "error": (value.error, shape[:1])}
    if value.margin is not None:
        parts["margin"] = (value.margin, shape[:1])
    for name, (array, wanted) in parts.items():
        if not isinstance(array, np.ndarray) or array.dtype != np.float64:
            return f"{name} of the wrong type, {getattr(array, 'dtype', type(array).__name__)}"
        if array.shape != wanted:
            return f"{name} of the wrong shape, {array.shape} in the place of {wanted}"
    return ""


def _sound(name: str, answer: Answer) -> bool:
    """Whether an answer's numbers can be true. Far out on a line a cost may be no number; a margin may be none."""
    rows = np.isfinite(answer.rows) if name in FINITE else ~np.isnan(answer.rows)
    sound = rows.any(axis=1).all() if name == "line" else rows.all() or name == "margin"
    return bool(sound and np.isfinite(answer.error).all() and (answer.error >= 0).all())
