"""The server's side of a fit: its clients, asked all at once, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Removed
from fedsplit.regression.client.dataset import ColumnRequest, Description, Plan
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Design, Moments
from fedsplit.regression.fit_questions import (
    Code,
    Coded,
    Coding,
    Columns,
    Describe,
    ExpectedInformation,
    FitQuestion,
    Fitted,
    Frame,
    GoodnessOfFit,
    Pearson,
    Settle,
    key_of,
)
from fedsplit.remote.channel import LocalChannel, Reply, Request
from fedsplit.remote.clients import RemoteClients
from fedsplit.remote.members import Check, Members


class Federation:
    """The clients of a fit. Every question goes to all of them, and all of them answer."""

    def __init__(self, members: Members) -> None:
        self.members = members

    @property
    def names(self) -> Sequence[str]:
        return self.members.names

    def columns(self) -> dict[str, dict[str, str]]:
        """By client, the types of its columns."""
        return self._by_name(Columns())

    def describe(self, request: ColumnRequest) -> dict[str, Description]:
        """By client, what is in its columns."""
        return self._by_name(Describe(request))

    def code(
        self, plan: Plan, strict: bool, names: Sequence[str]
    ) -> tuple[FederatedRows, list[Coded]]:
        """The coded rows of these clients, and what each answers about them."""
        rows = FederatedRows(self.members.only(names), plan, strict)
        return rows, rows.code()

    def _by_name(self, question: FitQuestion) -> dict[str, Any]:
        answers = _all(self.members, dict.fromkeys(self.members.cohorts, question))
        return dict(zip(self.names, answers, strict=True))


class FederatedRows:
    """Rows at the clients, coded alike."""

    def __init__(self, members: Members, plan: Plan, strict: bool) -> None:
        self.members = members
        self.codings = {at: Coding(plan, strict, names) for at, names in members.cohorts.items()}

    @classmethod
    def here(
        cls, plan: Plan, strict: bool, rows: list[Design], moments: list[Moments]
    ) -> FederatedRows:
        """Rows in this process that are coded already."""
        coding = Coding(plan, strict, tuple(each.name for each in rows))
        cohort = DatasetCohort.of_rows(coding, rows, moments)
        return cls(Members(LocalChannel(cohort)), plan, strict)

    @property
    def names(self) -> Sequence[str]:
        return self.members.names

    def code(self) -> list[Coded]:
        return _all(self.members, {at: Code(coding) for at, coding in self.codings.items()})

    def settle(self, frame: Frame) -> FitClients:
        """The clients of the rounds in these coordinates."""
        return FitClients(self.members, self.codings, frame)


def rows_here(rows: FederatedRows) -> list[Design]:
    """The rows themselves, if they are in this process."""
    channel = rows.members.channel
    assert isinstance(channel, LocalChannel)
    assert isinstance(channel.cohort, DatasetCohort)
    return channel.cohort.rows


class FitClients(RemoteClients):
    """Clients whose costs are made of coded rows in the coordinates of a frame."""

    def __init__(self, members: Members, codings: dict[int, Coding], frame: Frame) -> None:
        preparations = {at: Settle(coding, frame) for at, coding in codings.items()}
        keys = {at: key_of(coding, frame) for at, coding in codings.items()}
        super().__init__(members, len(frame.ridge), dict(preparations), keys)
        self.prepare()

    def without(self, names: Sequence[str]) -> RemoteClients:
        """Not possible here: coding and coordinates were agreed by all, and must be agreed anew."""
        raise Removed(names)

    def fitted(self, x: Array, dispersion: float) -> list[GoodnessOfFit]:
        """How well a model fits each client's rows."""
        return self._all(Fitted(x, dispersion))

    def pearson(self, x: Array) -> list[float]:
        """Each client's Pearson's X²."""
        return self._all(Pearson(x))

    def expected_information(self, x: Array) -> list[Array]:
        """Each client's expected information, (p, p)."""
        return self._all(ExpectedInformation(x))

    def _all(self, question: FitQuestion) -> list[Any]:
        requests = {at: Request(question, key) for at, key in self.keys.items()}
        replies = self.hear(requests, _check(self.members, question), insist=True)
        return _entries(replies)


def _all(members: Members, questions: dict[int, FitQuestion]) -> list[Any]:
    """Every client's answer, in their order."""
    check = _check(members, next(iter(questions.values())))
    requests = {at: Request(question) for at, question in questions.items()}
    return _entries(members.ask(requests, check, insist=True))


def _entries(replies: dict[int, Reply]) -> list[Any]:
    return [entry for reply in replies.values() for entry in reply.value]


def _check(members: Members, question: FitQuestion) -> Check:
    """The check of a cohort's answer, which has one entry per client."""

    def check(at: int, value: Any) -> str:
        wrong = members.check_length(at, value)
        return wrong or next(filter(None, map(question.check, value)), "")

    return check
