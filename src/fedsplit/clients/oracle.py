"""Clients: whoever answers questions about their own costs.

Clients of one's own have ``m`` and ``ask``, and nothing else. They remember nothing: a method's
whole state is at the server. The questions at the end are for whoever asks the clients, which is
``loop.conversation.Conversation``: what a dialogue wants of it, such as not to wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Value
from fedsplit.dialogue import NoAnswer
from fedsplit.errors import InputError, listed


class Oracle(Protocol):
    """What ``solve`` needs of clients."""

    @property
    def m(self) -> int:
        """The number of clients."""

    def ask(self, question: CostQuestion) -> Answer:
        """Every client's answer."""


class Incident(NamedTuple):
    """Something that went wrong with a client's answer.

    Attributes
    ----------
    question : int
        The number of the question.
    client : str
        The client's name.
    what : str
        What went wrong.
    """

    question: int
    client: str
    what: str


class Removed(NoAnswer):
    """Clients were absent for too long, and the run may go on without them.

    Attributes
    ----------
    names : tuple of str
        The clients.
    reached : mapping of str to float
        The coefficients by name that an interrupted fit had reached.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"removed: {listed(names)}")
        self.names = tuple(names)
        self.reached: Mapping[str, float] = {}


class Clients:
    """Clients with what a driver may know about them; the defaults are those of clients in memory.

    It asks an ``oracle``; subclasses answer themselves. There are m clients, and d coordinates of
    x; d is 0 if they do not say it.
    """

    m: int
    d: int
    stands_for: int = 1  # how many clients each of the m is the sum of
    words: int = 1  # numbers sent up for each float of an answer: several in secure sums
    names: Sequence[str] | None = None  # by name; None where they are in this process
    # whether questions cost nothing but arithmetic, so that one may be a mere measurement
    free: bool = True
    # whether questions are counted or kept by others, so that an extra one makes a difference
    recorded: bool = False
    hessians: bool = False  # whether every client has its Hessian by a formula
    incidents: Sequence[Incident] = ()  # what went wrong so far
    on_device: bool = False  # whether the clients' arrays are there
    # how many rounds there are to a measurement of F, where one costs as much as a round
    measured_every: int = 1
    rounded: str = ""  # what was done to the rows that a proof is about, in words

    def __init__(self, oracle: Oracle) -> None:
        self.m = oracle.m
        self.d = getattr(oracle, "d", 0)  # the one thing that clients of one's own may add
        self._oracle = oracle

    def ask(self, question: CostQuestion) -> Answer:
        """Every client's answer."""
        answer = self._oracle.ask(question)
        if not isinstance(answer, Answer):  # by clients of one's own
            raise InputError(
                f"clients: ask({type(question).__name__}(...)) returned {type(answer).__name__}: "
                "return an Answer, as by fs.Answer.of(gradient=...)"
            )
        return answer

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        """The answers of the clients drawn, (m,); the others count as absent.

        This one asks all clients. Those that can ask some of them alone override it.
        """
        answer = self.ask(question)
        # whoever can ask only everybody must not use what the others answered
        return answer if drawn.all() else answer.only(drawn)

    def objective(self, x: Array) -> float | None:
        """F(x), without a penalty; None unless every client answers."""
        answer = self.ask(Value(x))
        return float(answer.rows.sum()) if answer.complete else None

    def vector(self, x: Array) -> Array:
        """x, (d,), where the clients' arrays are."""
        return x

    def pooled(self) -> Clients:
        """The one client that all are together, where proofs are about that; else these."""
        return self

    def answering_to_host(self) -> Clients:
        """These clients, with their answers in NumPy arrays."""
        return self

    def insistent(self) -> Clients:
        """These clients, each asked again until it has answered."""
        return self

    def without(self, names: Sequence[str]) -> Clients:
        """The other clients."""
        raise InputError(
            f"clients in this process have no names: {listed(names)} cannot be removed"
        )

    def asynchronously(self) -> Posting:
        """These clients, asked one by one in real time."""
        raise InputError(
            "these clients are asked together, and cannot be asked asynchronously in real time: "
            "pass asynchronous=Latency(...) for simulated time"
        )


class Posting(Protocol):
    """Clients that are asked one by one: nobody waits for the others."""

    def post(self, question: CostQuestion, to: Mask) -> None:
        """Send a question to these clients, (m,), without waiting for their answers."""

    def collect(self) -> tuple[CostQuestion, Answer]:
        """Wait for the next answer, and those that arrive with it."""

    @property
    def idle(self) -> Mask:
        """Who has answered all that was posted, (m,)."""

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        """The answers of these clients, once they have answered what was posted."""


def clients_of(oracle: Oracle) -> Clients:
    """The clients of an oracle, with the defaults of what it does not say."""
    return oracle if isinstance(oracle, Clients) else Clients(oracle)


def everyone(m: int) -> Mask:
    """All of m clients, (m,)."""
    return np.ones(m, dtype=bool)


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
    """What the driver knows about a run after some exchanges."""

    rounds: int  # all exchanges so far
    error: float  # the largest proved error of an answer in the last exchange
    margin: float  # the least margin of a classifier in the last exchange; nan if it has none
    # (m,): who answered the last question, and who has ever answered one
    present: Mask
    heard: Mask
    # (d,): where a positive margin is about: the last question's point that all clients have in
    # common
    point: Array | None = None
    stop: bool = False  # whether a callback wants the run to end


class Measurement(NamedTuple):
    """Σ_j f_j(x), at no price; None where that would be a question between organisations."""

    x: Array  # (d,)
    # whether it is asked after every round, and may be left out where it takes as long as one
    sometimes: bool = False


class Pooled(NamedTuple):
    """A question to the one client that all are together, which clients on a device offer."""

    question: CostQuestion


class TraceEntry(NamedTuple):
    """Enter the exchanges since the last record into the trace; the answer is an ``Account``.

    Before the first exchange, the objective is that of the start.
    """

    kind: Kind  # what they were for
    objective: float | None = None  # F(x) after them; None if it has not changed
    residual: float = math.nan  # how far the method's own variable has moved
    # the method's state, which callbacks are called with after a round; None outside of one
    state: Any = None


class Post(NamedTuple):
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
