"""The clients of a fit as its server sees them: asked all at once, wherever they are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.effects import Kind
from fedsplit.clients.oracle import Removed
from fedsplit.dialogue import Several
from fedsplit.fixed_point import LIMBS
from fedsplit.loop.trace import Row
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Design, Moments, Recession, Scaling
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.privacy.privacy import Privacy
from fedsplit.regression.client.questions.coding import Coding, Frame, key_of
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.questions.moments import Code, Coded, Products, Settle
from fedsplit.regression.client.questions.noisy import NoisySums
from fedsplit.regression.client.questions.survey import joined
from fedsplit.remote.channel import Channel, LocalChannel, Reply, Request
from fedsplit.remote.clients import RemoteClients
from fedsplit.remote.counting import numbers_in
from fedsplit.remote.members import Check, Members


class FitAsking:
    """Who answers the questions of a dialogue about rows: all clients that a question is for.

    Parameters
    ----------
    members : Members
    """

    def __init__(self, members: Members) -> None:
        self._members = members

    def ask(self, question: FitQuestion | Several) -> dict[str, Any]:
        """By client, its answer; of several questions the answers to each, by its name."""
        if isinstance(question, Several):
            return self._ask(question.questions)
        return self._ask({"": question})[""]

    def _ask(self, questions: Mapping[str, FitQuestion]) -> dict[str, dict[str, Any]]:
        """Ask each cohort what is for it, in one exchange."""
        requests: dict[int, Request] = {}
        own: dict[int, dict[str, FitQuestion]] = {}
        for at, names in self._members.cohorts.items():
            parts = {key: each.among(names) for key, each in questions.items()}
            own[at] = {key: each for key, each in parts.items() if each is not None}
            if own[at]:
                requests[at] = Request(joined(own[at]))
        replies = _heard(self._members, requests, _insisting(self._members))
        answers: dict[str, dict[str, Any]] = {key: {} for key in questions}
        for at, reply in replies.items():
            for key, part in own[at].items():
                entries = reply.value[key] if len(own[at]) > 1 else reply.value
                names = part.names or self._members.cohorts[at]
                answers[key] |= zip(names, entries, strict=True)
        return answers


class FederatedRows:
    """Rows at the clients, coded alike.

    Parameters
    ----------
    members : Members
        Whose rows.
    plan : Plan
        How they are coded.
    strict : bool
        Whether clients refuse answers that could disclose single rows.
    recessions : tuple of Recession
        Only rows that are at rest along these directions take part.

    Attributes
    ----------
    matrices : bool
        Whether every client tells a matrix in every round.
    directions : bool
        Whether every client tells what a direction does to its rows.
    """

    def __init__(
        self,
        members: Members,
        plan: Plan,
        strict: bool,
        recessions: tuple[Recession, ...] = (),
    ) -> None:
        self.members = members
        self.recessions = recessions
        self.matrices = True
        self.directions = True
        self._moments: dict[int, list[Moments]] = {}
        self.codings = {
            at: Coding(plan, strict, names, recessions) for at, names in members.cohorts.items()
        }

    @classmethod
    def here(
        cls, plan: Plan, strict: bool, rows: list[Design], moments: list[Moments]
    ) -> FederatedRows:
        """Rows in this process that are coded already."""
        coding = Coding(plan, strict, tuple(each.name for each in rows))
        cohort = DatasetCohort.of_rows(coding, rows, moments)
        found = cls(Members(LocalChannel(cohort)), plan, strict)
        found._moments = {0: moments}
        return found

    def code(self) -> list[Coded]:
        """What each client answers about its coded rows."""
        replies = self._ask(Code)
        self._moments = {
            at: [each.moments for each in reply.value] for at, reply in replies.items()
        }
        coded: list[Coded] = _entries(replies)
        self.matrices = all(each.matrices for each in coded)
        self.directions = all(each.directions for each in coded)
        return coded

    def products(self, scaling: Scaling, directions: Array) -> Array:
        """Σ w y yᵀ over all clients of the combinations y = Dᵀa of the scaled columns a, (k, k)."""
        parts = _entries(self._ask(lambda coding: Products(coding, scaling, directions)))
        return np.asarray(np.sum(parts, axis=0))

    def noisy_sums(self, privacy: Privacy, delta: float, number: int, x: Array) -> Array:
        """The sum over all clients of what they answer to ``NoisySums``, (k,)."""
        parts = _entries(self._ask(lambda coding: NoisySums(coding, privacy, delta, number, x)))
        return np.asarray(np.sum([each.high + each.low for each in parts], axis=0))

    def _ask(self, question: Callable[[Coding], FitQuestion]) -> dict[int, Reply]:
        """The replies to a question about coded rows, by cohort."""
        questions = {at: question(coding) for at, coding in self.codings.items()}
        requests = {at: Request(each) for at, each in questions.items()}
        return _heard(self.members, requests, _insisting(self.members))

    def settle(self, frame: Frame) -> FitClients:
        """The clients of the rounds in these coordinates, which travel with the first question."""
        return FitClients(self, frame, self._moments)


def rows_here(rows: FederatedRows) -> list[Design]:
    """The rows themselves, if they are in this process."""
    channel = rows.members.channel
    assert isinstance(channel, LocalChannel)
    assert isinstance(channel.cohort, DatasetCohort)
    return channel.cohort.rows


def release_rows(channel: Channel) -> None:
    """Let clients in this process let go of their rows, until they are asked again."""
    match channel:
        case LocalChannel(cohort=DatasetCohort() as cohort):
            cohort.release()


class FitClients(RemoteClients):
    """Clients whose costs are made of coded rows in the coordinates of a frame."""

    def __init__(
        self, rows: FederatedRows, frame: Frame, moments: Mapping[int, list[Moments]]
    ) -> None:
        codings = rows.codings.items()
        preparations = {at: Settle(coding, frame) for at, coding in codings}
        keys = {at: key_of(coding, frame) for at, coding in codings}
        super().__init__(rows.members, len(frame.ridge), dict(preparations), keys, moments)
        self.hessians = rows.matrices
        if rows.members.summed:
            self.stands_for = len(rows.members.summed)
            self.words = LIMBS

    def without(self, names: Sequence[str]) -> RemoteClients:
        """Not possible here: coding and coordinates were agreed by all, and must be agreed anew."""
        raise Removed(names)

    def entries(self, question: FitQuestion) -> list[Any]:
        """Each client's answer to a question about its rows."""
        requests = {at: Request(question, key) for at, key in self.keys.items()}
        return _entries(_heard(self.members, requests, self._insisting))

    def _insisting(self, requests: dict[int, Request], check: Check) -> dict[int, Reply]:
        return self.hear(requests, check, insist=True)

    def note_prepared(self, cohorts: Collection[int]) -> None:
        """The coordinates are no question of their own; what they hold is counted."""
        sizes = {at: len(self.members.cohorts[at]) for at in cohorts}
        if sizes:
            down = sum(size * numbers_in(self._preparations[at]) for at, size in sizes.items())
            down *= self.stands_for
            row = _row("setup", down, 0, sum(sizes.values()) * self.stands_for, 0.0)
            self.members.history.exchanges.append(row._replace(questions=0))


def _entries(replies: dict[int, Reply]) -> list[Any]:
    return [entry for reply in replies.values() for entry in reply.value]


Asking: TypeAlias = Callable[[dict[int, Request], Check], dict[int, Reply]]
"""How a question is asked."""


def _insisting(members: Members) -> Asking:
    """Ask until every client has answered."""
    return lambda requests, check: members.ask(requests, check, insist=True)


def _heard(members: Members, requests: dict[int, Request], ask: Asking) -> dict[int, Reply]:
    """The replies, by cohort, of an exchange that is counted."""
    questions: dict[int, Any] = {at: request.question for at, request in requests.items()}
    began = time.perf_counter()
    replies = ask(
        requests, lambda at, value: questions[at].check_answer(value, len(members.cohorts[at]))
    )
    seconds = time.perf_counter() - began
    sizes = {at: len(members.cohorts[at]) for at in requests}
    down = sum(size * numbers_in(requests[at].question) for at, size in sizes.items())
    up = sum(numbers_in(reply.value) for reply in replies.values())
    answered = sum(sizes.values())
    if members.summed:
        answered = len(members.summed)
        down *= answered
        up *= answered * LIMBS
    row = _row(next(iter(questions.values())).kind, down, up, answered, seconds)
    if members.patience is not None:
        latency = {
            name: reply.seconds for at, reply in replies.items() for name in members.cohorts[at]
        }
        row = row._replace(latency=latency)
    members.history.exchanges.append(row)
    return replies


def _row(kind: Kind, down: int, up: int, answered: int, seconds: float) -> Row:
    return Row(math.nan, math.nan, kind, 0.0, up, down, answered, seconds)
