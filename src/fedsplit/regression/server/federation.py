"""The server's side of a fit: its clients, asked all at once, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.regression import validation
from fedsplit.regression.client.cohort import Coded, Coding, Fitted, Frame, SiloCohort, key_of
from fedsplit.regression.client.dataset import Description, Plan, Request
from fedsplit.regression.client.design import Design, Moments
from fedsplit.remote.channel import LocalChannel, Question
from fedsplit.remote.clients import RemoteClients
from fedsplit.remote.members import NOT_FINITE, Check, Removed, Roll


class Federation:
    """The clients of a fit. Every question goes to all of them, and all of them answer."""

    def __init__(self, roll: Roll) -> None:
        self.roll = roll

    @property
    def names(self) -> Sequence[str]:
        return self.roll.names

    def columns(self) -> dict[str, dict[str, str]]:
        """The kinds of each client's columns."""
        return self._by_name(Question("columns"), _anything)

    def describe(self, request: Request) -> dict[str, Description]:
        """What each client has."""
        return self._by_name(Question("describe", (request,)), validation.description(request))

    def code(self, plan: Plan, strict: bool, names: Sequence[str]) -> tuple[Rows, list[Coded]]:
        """The coded rows of these clients, and what each tells of them."""
        rows = Rows(self.roll.only(names), plan, strict)
        return rows, rows.code()

    def _by_name(self, question: Question, wrong: Callable[[Any], str]) -> dict[str, Any]:
        told = _all(self.roll, dict.fromkeys(self.roll.cohorts, question), wrong)
        return dict(zip(self.names, told, strict=True))


class Rows:
    """Rows that clients have coded alike."""

    def __init__(self, roll: Roll, plan: Plan, strict: bool) -> None:
        self.roll = roll
        self.codings = {at: Coding(plan, strict, members) for at, members in roll.cohorts.items()}

    @classmethod
    def here(cls, plan: Plan, strict: bool, rows: list[Design], moments: list[Moments]) -> Rows:
        """Rows in this process that are coded already."""
        coding = Coding(plan, strict, tuple(each.name for each in rows))
        return cls(Roll(LocalChannel(SiloCohort.of_rows(coding, rows, moments))), plan, strict)

    @property
    def names(self) -> Sequence[str]:
        return self.roll.names

    def code(self) -> list[Coded]:
        questions = {at: Question("code", (coding,)) for at, coding in self.codings.items()}
        return _all(self.roll, questions, validation.coded(next(iter(self.codings.values()))))

    def settle(self, frame: Frame) -> Settled:
        """The clients of the rounds in these coordinates."""
        return Settled(self.roll, self.codings, frame)


def rows_here(rows: Rows) -> list[Design]:
    """The rows themselves, which are in this process."""
    channel = rows.roll.channel
    assert isinstance(channel, LocalChannel)
    assert isinstance(channel.cohort, SiloCohort)
    return channel.cohort.rows


class Settled(RemoteClients):
    """Clients whose costs are made of coded rows in the coordinates of a frame."""

    def __init__(self, roll: Roll, codings: dict[int, Coding], frame: Frame) -> None:
        settle = {at: Question("settle", (coding, frame)) for at, coding in codings.items()}
        keys = {at: key_of(coding, frame) for at, coding in codings.items()}
        super().__init__(roll, len(frame.ridge), settle, keys)
        self.settle()

    def without(self, names: Sequence[str]) -> RemoteClients:
        """Not here: coding and coordinates are those of all who agreed on them, and the others have to agree anew."""
        raise Removed(names)

    def fitted(self, x: Array, dispersion: float) -> list[Fitted]:
        """How well a model fits each client's rows."""
        return self._tell("fitted", x, dispersion)

    def pearson(self, x: Array) -> list[float]:
        """Each client's Pearson's X²."""
        return self._tell("pearson", x)

    def _tell(self, name: str, *args: Any) -> list[Any]:
        questions = {at: Question(name, (key, *args)) for at, key in self._keys.items()}
        check = _each(self.roll, validation.fitted if name == "fitted" else _not_a_number)
        replies = self.heard(questions, check, insist=True)
        return [value for reply in replies.values() for value in reply.value]


def _all(roll: Roll, questions: dict[int, Question], wrong: Callable[[Any], str]) -> list[Any]:
    """Every client's answer, in their order, none of which is ``wrong``."""
    replies = roll.ask(questions, _each(roll, wrong), insist=True)
    return [value for reply in replies.values() for value in reply.value]


def _each(roll: Roll, wrong: Callable[[Any], str]) -> Check:
    """What is wrong with the answers of a cohort, one for each of its clients."""

    def check(at: int, value: Any) -> str:
        return roll.one_each(at, value) or next(filter(None, map(wrong, value)), "")

    return check


def _anything(value: Any) -> str:
    return ""


def _not_a_number(value: float) -> str:
    return NOT_FINITE if np.isnan(value) else ""
