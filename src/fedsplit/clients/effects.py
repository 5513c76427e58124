"""Questions about asking: what a dialogue wants of whoever asks the clients for it.

A question goes to clients. These go to the driver, which is a ``loop.conversation.Conversation``,
and are carried out by it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from fedsplit.arrays import Array, Mask
from fedsplit.clients.question import Answer, CostQuestion

Kind = Literal["handshake", "setup", "round", "certificate", "end"]
"""What an exchange was for. Handshake and end are those of a fit, before and after the rounds."""


class Arrival(NamedTuple):
    """Answers to a question that was posted earlier.

    Attributes
    ----------
    question : CostQuestion
        What they are about.
    answer : Answer
        ``present`` says whose answers they are.
    idle : (m,) mask
        Who has answered everything that was posted.
    """

    question: CostQuestion
    answer: Answer
    idle: Mask


class Account(NamedTuple):
    """What the driver knows about a run after some exchanges.

    Attributes
    ----------
    rounds : int
        All exchanges so far.
    error : float
        The largest proved error of an answer in the last exchange.
    margin : float
        The least margin of a classifier in the last exchange; nan if it has none.
    present, heard : (m,) masks
        Who answered the last question, and who has ever answered one.
    stop : bool
        Whether a callback wants the run to end.
    """

    rounds: int
    error: float
    margin: float
    present: Mask
    heard: Mask
    stop: bool = False


class Driver(Protocol):
    """What effects need of a driver; ``loop.conversation.Conversation`` is one."""

    def measure(self, x: Array) -> float | None: ...

    def repeated(self, x: Array) -> Any: ...

    def ask_pooled(self, question: CostQuestion) -> Answer: ...

    def record(
        self, kind: Kind, objective: float | None, residual: float, state: Any
    ) -> Account: ...

    def post(self, question: CostQuestion, to: Mask) -> Arrival: ...


class Effect(ABC):
    """Something that the driver does."""

    @abstractmethod
    def perform(self, driver: Driver) -> Any:
        """Have the driver do it."""


@dataclass(frozen=True)
class Measure(Effect):
    """Σ_j f_j(x), at no price; None where that would be a question between organisations."""

    x: Array

    def perform(self, driver: Driver) -> float | None:
        return driver.measure(self.x)


@dataclass(frozen=True)
class Repeat(Effect):
    """x as one row per client, wherever the clients' arrays are."""

    x: Array

    def perform(self, driver: Driver) -> Any:
        return driver.repeated(self.x)


@dataclass(frozen=True)
class Pooled(Effect):
    """A question to the one client that all are together, which clients on a device offer."""

    question: CostQuestion

    def perform(self, driver: Driver) -> Answer:
        return driver.ask_pooled(self.question)


@dataclass(frozen=True)
class Record(Effect):
    """Enter the exchanges since the last record into the trace; the answer is an ``Account``.

    Parameters
    ----------
    kind : Kind
        What they were for.
    objective : float or None
        F(x) after them; None if it has not changed.
    residual : float
        How far the method's own variable has moved.
    state : Any
        The method's state, which callbacks are called with after a round; None outside of one.
    """

    kind: Kind
    objective: float | None = None
    residual: float = math.nan
    state: Any = None

    def perform(self, driver: Driver) -> Account:
        return driver.record(self.kind, self.objective, self.residual, self.state)


@dataclass(frozen=True)
class Post(Effect):
    """Send a question to some clients without waiting for them; the answer is the next ``Arrival``.

    Each client has at most one question at a time, and answers about the x of when it was asked.

    Parameters
    ----------
    question : CostQuestion
    to : (m,) mask
        Who is asked; nobody, where all who could be are still busy.
    """

    question: CostQuestion
    to: Mask

    def perform(self, driver: Driver) -> Arrival:
        return driver.post(self.question, self.to)
