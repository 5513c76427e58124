"""The clients of a fit as its server sees them: asked all at once, wherever they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Removed
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Design, Moments, Recession, Scaling
from fedsplit.regression.client.fit_questions import (
    Code,
    Coded,
    Coding,
    FitQuestion,
    Frame,
    Measure,
    Products,
    Settle,
    key_of,
)
from fedsplit.regression.client.measuring import Measured
from fedsplit.regression.client.plan import Plan
from fedsplit.remote.channel import Channel, LocalChannel, Reply, Request
from fedsplit.remote.clients import RemoteClients
from fedsplit.remote.members import Check, Members


def ask_everyone(members: Members, question: FitQuestion) -> dict[str, Any]:
    """By client, its answer to a question of the handshake; all of them answer."""
    requests = dict.fromkeys(members.cohorts, Request(question))
    replies = members.ask(requests, _check(members, question), insist=True)
    return dict(zip(members.names, _entries(replies), strict=True))


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
        return cls(Members(LocalChannel(cohort)), plan, strict)

    def measure(self, statistics: Mapping[str, Statistic]) -> list[Measured]:
        """Each client's part of statistics for functions such as ``poly(x, 2)``, by their text."""
        questions = {at: Measure(coding, statistics) for at, coding in self.codings.items()}
        requests = {at: Request(question) for at, question in questions.items()}
        check = _check(self.members, next(iter(questions.values())))
        return _entries(self.members.ask(requests, check, insist=True))

    def code(self) -> list[Coded]:
        """What each client answers about its coded rows."""
        requests = {at: Request(Code(coding)) for at, coding in self.codings.items()}
        check = _check(self.members, Code(next(iter(self.codings.values()))))
        return _entries(self.members.ask(requests, check, insist=True))

    def products(self, scaling: Scaling, directions: Array) -> Array:
        """Σ w y yᵀ over all clients of the combinations y = Dᵀa of the scaled columns a, (k, k)."""
        questions = {
            at: Products(coding, scaling, directions) for at, coding in self.codings.items()
        }
        requests = {at: Request(question) for at, question in questions.items()}
        check = _check(self.members, next(iter(questions.values())))
        parts = _entries(self.members.ask(requests, check, insist=True))
        return np.asarray(np.sum(parts, axis=0))

    def settle(self, frame: Frame) -> FitClients:
        """The clients of the rounds in these coordinates."""
        return FitClients(self, frame)


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

    def __init__(self, rows: FederatedRows, frame: Frame) -> None:
        codings = rows.codings.items()
        preparations = {at: Settle(coding, frame) for at, coding in codings}
        keys = {at: key_of(coding, frame) for at, coding in codings}
        super().__init__(rows.members, len(frame.ridge), dict(preparations), keys)
        self.prepare()

    def without(self, names: Sequence[str]) -> RemoteClients:
        """Not possible here: coding and coordinates were agreed by all, and must be agreed anew."""
        raise Removed(names)

    def entries(self, question: FitQuestion) -> list[Any]:
        """Each client's answer to a question about its rows."""
        requests = {at: Request(question, key) for at, key in self.keys.items()}
        return _entries(self.hear(requests, _check(self.members, question), insist=True))


def _entries(replies: dict[int, Reply]) -> list[Any]:
    return [entry for reply in replies.values() for entry in reply.value]


def _check(members: Members, question: FitQuestion) -> Check:
    """The check of a cohort's answer, which has one entry per client."""

    def check(at: int, value: Any) -> str:
        wrong = members.check_length(at, value)
        return wrong or next(filter(None, map(question.check, value)), "")

    return check
