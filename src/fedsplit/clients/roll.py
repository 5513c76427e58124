"""The roll of a run: who takes part, who answers, who is given up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedsplit.checks import count, number
from fedsplit.clients.channel import SILENT, Channel, Question, Reply
from fedsplit.errors import InputError, TooFewClients, listed

PACE, LONGEST_PACE = 0.02, 10.0
"""While a client is absent a question takes at least this share of ``give_up``, and at most so many seconds more."""

EAGER = 0.25
"""Seconds between attempts to hear those whose answer cannot be done without."""


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


def fine(cohort: int, value: Any) -> str:
    """Every answer is as it should be."""
    return ""


@dataclass
class Book:
    """What happened so far: shared by all rolls of a run.

    incidents : all of them, in order.
    removed : clients that were given up, each with the reason.
    asked : how many questions were asked.
    """

    incidents: list[Incident] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    asked: int = 0


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
        present = [[name for name in each if wanted is None or name in wanted] for each in channel.names]
        self.cohorts = {at: tuple(members) for at, members in enumerate(present) if members}
        self.names = [name for members in self.cohorts.values() for name in members]
        self._absent_since: dict[int, float] = {}

    def only(self, names: Sequence[str]) -> Roll:
        """The roll of these clients alone."""
        return Roll(self.channel, self.patience, names, self.book)

    def without(self, names: Sequence[str]) -> Roll:
        """The roll of all others."""
        return self.only([name for name in self.names if name not in names])

    @property
    def expected(self) -> float:
        """The seconds that a question which must be answered may take."""
        return math.inf if self.patience is None else self.patience.give_up

    def ask(self, questions: Mapping[int, Question], check: Check = fine, insist: bool = False) -> dict[int, Reply]:
        """Good answers by cohort.

        Those of cohorts that do not give one in time are left out; with ``insist`` they are asked until they do.
        ``Removed`` is raised when one has been absent for too long.
        """
        if self.patience is None:
            return self.channel.ask(questions, math.inf)
        found = self._hear(questions, check, self.patience.give_up if insist else self.patience.round_timeout)
        while insist and len(found) < len(questions):
            self.channel.wait(EAGER)
            missing = {at: question for at, question in questions.items() if at not in found}
            found |= self._hear(missing, check, self.patience.give_up)
        return {at: found[at] for at in questions if at in found}

    def _hear(self, questions: Mapping[int, Question], check: Check, timeout: float) -> dict[int, Reply]:
        """Ask once; note who did not answer and since when."""
        assert self.patience is not None
        began = self.channel.now()
        self.book.asked += 1
        replies = self.channel.ask(questions, timeout)
        found = {}
        for at in questions:
            reply = replies.get(at, SILENT)
            if reply.outcome == "refused":
                raise InputError(reply.text)
            what = check(at, reply.value) if reply.outcome == "answer" else reply.text
            if reply.outcome == "unprepared" or not what:
                found[at] = reply
                self._absent_since.pop(at, None)
            else:
                self._note(at, what)
                self._absent_since.setdefault(at, began)
        if len(found) < len(questions):
            self._give_up()
            pace = min(LONGEST_PACE, PACE * self.patience.give_up)
            self.channel.wait(max(0.0, began + pace - self.channel.now()))
        return found

    def _note(self, at: int, what: str) -> None:
        self.book.incidents += [Incident(self.book.asked, name, what) for name in self.cohorts[at]]

    def _give_up(self) -> None:
        """Remove who has been absent for too long, if enough are left."""
        assert self.patience is not None
        now, limit = self.channel.now(), self.patience.give_up
        gone = [at for at, since in self._absent_since.items() if now - since >= limit]
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
        raise Removed(names)
