"""Counting: what every question of a run costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Arrival, Clients
from fedsplit.clients.question import Answer, CostQuestion


class Exchange(NamedTuple):
    """One question to every client, and the answers.

    Attributes
    ----------
    floats_down, floats_up : int
        Floats sent to the clients that were asked, and received from them.
    answered : int
        How many clients answered.
    error : float
        The largest proved error of an answer.
    seconds : float
        From the question to the last answer.
    margin : float
        The smallest margin of a classifier; nan where there is none.
    latency : mapping of str to float, or None
        By client, the seconds to its answer; None where clients are in this process.
    work : tuple of int
        Gradients, Hessians and factorisations that all clients computed.
    clock : float
        The simulated time of the last answer; nan where time is real.
    """

    floats_down: int
    floats_up: int
    answered: int
    error: float
    seconds: float
    margin: float = math.nan
    latency: Mapping[str, float] | None = None
    work: tuple[int, int, int] = (0, 0, 0)
    clock: float = math.nan


class Kept(NamedTuple):
    """An answer, and how to read what it cost: numbers on a device are read later."""

    answer: Answer
    read: Callable[[], Exchange]


class MeteredClients(Clients):
    """Passes every question on, and keeps an ``Exchange`` of it.

    Attributes
    ----------
    present : (m,) mask
        Who answered the last question.
    heard : (m,) mask
        Who has answered any.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.m = clients.m
        self.d = clients.d
        self.stands_for = clients.stands_for
        self.words = clients.words
        self._kept: list[Kept] = []
        self._everyone: Mask = np.ones(clients.m, dtype=bool)
        self.present: Mask = np.zeros(clients.m, dtype=bool)
        self.heard: Mask = np.zeros(clients.m, dtype=bool)

    @property
    def waiting(self) -> int:
        """How many exchanges have not been taken."""
        return len(self._kept)

    def release(self) -> list[Kept]:
        """The answers since the last call, with what they cost still to be read."""
        kept = self._kept
        self._kept = []
        return kept

    def take(self) -> list[Exchange]:
        """The exchanges since the last call."""
        return [each.read() for each in self.release()]

    def repeated(self, x: Array) -> Any:
        return self._clients.repeated(x)

    def pooled(self) -> Clients:
        """The one client that all are together, counted here."""
        if not self._clients.on_device:
            return self
        other = MeteredClients(self._clients.pooled())
        other._kept = self._kept
        return other

    def ask(self, question: CostQuestion) -> Answer:
        return self._ask(question, self._everyone, self.m)

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        return self._ask(question, drawn, int(drawn.sum()))

    def _ask(self, question: CostQuestion, drawn: Mask, to: int) -> Answer:
        """The answers of the clients drawn, of whom there are ``to``."""
        began = time.perf_counter()
        answer = self._clients.ask_some(question, drawn)
        asked = self._clients.asked
        if asked is None:
            asked = to
        self._keep(question, answer, asked, time.perf_counter() - began)
        return answer

    def post(self, question: CostQuestion, to: Mask) -> None:
        """Post a question, which is counted when it is answered."""
        self._clients.post(question, to)

    @property
    def idle(self) -> Mask:
        return self._clients.idle

    def collect(self) -> Arrival:
        began = time.perf_counter()
        question, answer = self._clients.collect()
        self._keep(question, answer, int(answer.present.sum()), time.perf_counter() - began)
        return Arrival(question, answer)

    def _keep(self, question: CostQuestion, answer: Answer, asked: int, seconds: float) -> None:
        """Keep the exchange of an answer to a question that went to so many clients."""
        self.present = answer.who
        if answer.complete:
            self.heard = self._everyone
        else:
            self.heard = self.heard | answer.who
        read = partial(self._exchange, question, answer, asked, seconds, self._clients.clock)
        self._kept.append(Kept(answer, read))

    def _exchange(
        self, question: CostQuestion, answer: Answer, asked: int, seconds: float, clock: float
    ) -> Exchange:
        summary = answer.summary()
        answered = summary.answered * self.stands_for
        gradients, hessians, factorisations = (self.stands_for * each for each in summary.work)
        latency = None
        if self._clients.names is not None:
            taken = zip(self._clients.names, answer.seconds, answer.present, strict=True)
            latency = {name: float(seconds) for name, seconds, present in taken if present}
        return Exchange(
            floats_down=asked * self.stands_for * question.floats_down(self.d),
            floats_up=answered * self.words * question.floats_up(self.d, answer),
            answered=answered,
            error=summary.error,
            seconds=seconds,
            margin=summary.margin,
            latency=latency,
            work=(gradients, hessians, factorisations),
            clock=clock,
        )
