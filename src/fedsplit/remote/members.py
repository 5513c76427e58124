"""The roll of a run: who takes part, who answers, who is given up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedsplit.checks import count, number
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.remote.channel import SILENT, Channel, Question, Reply

PACE, LONGEST_PACE = 0.02, 10.0
"""While a client is absent a question takes at least this share of ``give_up``, and at most so many seconds more."""

EAGER, ATTEMPT = 0.25, 0.5
"""Seconds between attempts to hear those whose answer cannot be done without, and the share of ``give_up`` that one
attempt may take: a question that got lost is asked once more at least."""


@dataclass(frozen=True)
class Patience:
    """How long a run waits, and for how many clients it is worth going on.

    round_timeout : seconds after which a round closes; later answers are dropped.
    give_up : seconds after which an absent client is removed.
    min_clients : the fewest clients for which the run may go on; None is all of them, so that nobody is removed.
    """

    round_timeout: float = 60.0
    give_up: float = 600.0
    min_clients: int | None = None

    def __post_init__(self) -> None:
        number("round_timeout", self.round_timeout)
        number("give_up", self.give_up)
        if self.min_clients is not None:
            count("min_clients", self.min_clients)


class Incident(NamedTuple):
    """Something that went wrong: the question's number, whose answer it was, and what."""

    question: int
    client: str
    what: str


class Removed(Exception):
    """Clients have been absent for too long, and the run may go on without them.

    ``reached`` are the coefficients of a fit that was interrupted by it, by name.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"removed: {listed(names)}")
        self.names = tuple(names)
        self.reached: Mapping[str, float] = {}


Check = Callable[[int, Any], str]
"""What is wrong with a cohort's answer; nothing where it is as it should be."""

NOT_FINITE = "an answer that is not finite"
"""What a check says of numbers that cannot be used. Where those of all cohorts are so, the run itself diverges."""

LONGEST_TEXT = 300
"""The most characters of an incident."""


@dataclass
class Book:
    """What happened so far: shared by all rolls of a run.

    incidents : all of them, in order.
    removed : clients that were given up, each with the reason.
    asked : how many questions were asked.
    absent : by cohort, since when it has not answered.
    """

    incidents: list[Incident] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    absent: dict[int, float] = field(default_factory=dict)


class Roll:
    """The cohorts that take part, over a channel.

    ``patience`` None is for cohorts in this process: all of them answer, and their answers need no check.
    ``names`` are the clients that take part, in the order of the channel, all where None.
    """

    def __init__(
        self,
        channel: Channel,
        patience: Patience | None = None,
        names: Sequence[str] | None = None,
        book: Book | None = None,
    ) -> None:
        self.channel, self.patience, self.book = channel, patience, Book() if book is None else book
        wanted = None if names is None else set(names)
        present = [
            [name for name in each if wanted is None or name in wanted] for each in channel.names
        ]
        self.cohorts = {at: tuple(members) for at, members in enumerate(present) if members}
        self.names = [name for members in self.cohorts.values() for name in members]

    def only(self, names: Sequence[str]) -> Roll:
        """The roll of these clients alone."""
        return Roll(self.channel, self.patience, names, self.book)

    def without(self, names: Sequence[str]) -> Roll:
        """The roll of all others."""
        return self.only([name for name in self.names if name not in names])

    def one_each(self, at: int, value: Any) -> str:
        """What is wrong with an answer that should have an entry for each client of the cohort."""
        several = isinstance(value, np.ndarray | list) and len(value) == len(self.cohorts[at])
        return "" if several else f"an answer of the wrong kind, {type(value).__name__}"

    def ask(
        self,
        questions: Mapping[int, Question],
        check: Check,
        insist: bool = False,
        lost: bool = False,
    ) -> dict[int, Reply]:
        """Good answers by cohort.

        Those of cohorts that do not give one in time are left out; with ``insist`` they are asked until they do.
        With ``lost`` the reply of one that has lost what was settled is passed on too; else it counts as no answer.
        ``Removed`` is raised when one has been absent for too long.
        """
        if self.patience is None:
            return _all_well(self.channel.ask(questions, math.inf))
        timeout = max(self.patience.round_timeout, ATTEMPT * self.patience.give_up * insist)
        found = self._hear(questions, check, timeout, lost)
        while insist and len(found) < len(questions):
            self.channel.wait(EAGER)
            missing = {at: question for at, question in questions.items() if at not in found}
            found |= self._hear(missing, check, timeout, lost)
        return {at: found[at] for at in questions if at in found}

    def _hear(
        self, questions: Mapping[int, Question], check: Check, timeout: float, lost: bool
    ) -> dict[int, Reply]:
        """Ask once; note who did not answer and since when."""
        assert self.patience is not None
        began = self.channel.now()
        self.book.asked += 1
        heard = self.channel.ask(questions, timeout)
        replies = {at: heard.get(at, SILENT) for at in questions}
        for reply in replies.values():
            if reply.outcome == "refused":
                raise InputError(reply.text)
        wrong = {
            at: what for at, reply in replies.items() if (what := _trouble(at, reply, check, lost))
        }
        if len(wrong) == len(self.cohorts) and set(wrong.values()) == {NOT_FINITE}:
            wrong = {}
        for at, question in questions.items():
            if at in wrong:
                self._note(at, wrong[at])
                self.book.absent.setdefault(at, began)
            elif (
                replies[at].outcome == "answer" and question.name != "settle"
            ):  # which is not yet an answer
                self.book.absent.pop(at, None)
        if wrong:
            self._give_up()
            pace = min(LONGEST_PACE, PACE * self.patience.give_up)
            self.channel.wait(max(0.0, began + pace - self.channel.now()))
        return {at: reply for at, reply in replies.items() if at not in wrong}

    def _note(self, at: int, what: str) -> None:
        line = " ".join(what[:LONGEST_TEXT].split())
        self.book.incidents += [Incident(self.book.asked, name, line) for name in self.cohorts[at]]

    def _give_up(self) -> None:
        """Remove who has been absent for too long, if enough are left."""
        assert self.patience is not None
        now, limit = self.channel.now(), self.patience.give_up
        gone = [at for at in self.cohorts if now - self.book.absent.get(at, now) >= limit]
        names = [name for at in gone for name in self.cohorts[at]]
        if not names:
            return
        least = len(self.names) if self.patience.min_clients is None else self.patience.min_clients
        left = len(self.names) - len(names)
        last = {incident.client: incident.what for incident in self.book.incidents}
        why = listed(f"{name} ({last[name]})" for name in names)
        if left < max(1, least):
            raise TooFewClients(
                f"client {why}: absent for {limit:g} seconds, and without it {left} of the {least} clients that are "
                "needed are left: start it again, or let fewer do with --min-clients"
            )
        self.book.removed |= {name: last[name] for name in names}
        for at in gone:
            del self.book.absent[at]
        raise Removed(names)


def _trouble(at: int, reply: Reply, check: Check, lost: bool) -> str:
    """What is wrong with a reply."""
    if reply.outcome == "answer":
        return check(at, reply.value)
    if reply.outcome == "unprepared":
        return "" if lost else "it has lost what was settled"
    return reply.text or ("it failed" if reply.outcome == "failed" else SILENT.text)


def _all_well(replies: dict[int, Reply]) -> dict[int, Reply]:
    """The replies of cohorts in this process, whose failures are the caller's."""
    for reply in replies.values():
        if reply.outcome not in ("answer", "unprepared"):
            raise InputError(reply.text)
    return replies
