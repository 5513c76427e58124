"""Clients that take their time: a simulated clock, by which answers arrive one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.checks import number, one_of
from fedsplit.clients.oracle import Arrival, Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.errors import InputError

Distribution = Literal["constant", "exponential", "pareto"]

TAIL = 1.5
"""The exponent of the Pareto distribution: its variance is infinite."""


@dataclass(frozen=True)
class Latency:
    """How long a client takes to answer, in simulated time.

    Parameters
    ----------
    distribution : {"constant", "exponential", "pareto"}
        Of the time from a question to its answer; the mean is 1. Pareto's has a heavy tail,
        P(t > u) ∝ u^-1.5.
    slow : mapping of int to float
        By client, how many times longer it takes than the others.
    """

    distribution: Distribution = "exponential"
    slow: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("Latency: distribution", self.distribution, ("constant", "exponential", "pareto"))
        for client, factor in self.slow.items():
            number(f"Latency: slow[{client!r}]", factor)

    def draw(self, seed: int, client: int, question: int) -> float:
        """The time that a client takes for its ``question``-th question."""
        rng = np.random.default_rng([seed, client, question])
        time = 1.0
        if self.distribution == "exponential":
            time = float(rng.exponential())
        elif self.distribution == "pareto":
            time = float(1.0 + rng.pareto(TAIL)) * (TAIL - 1.0) / TAIL
        return self.slow.get(client, 1.0) * time


class DelayedClients(Clients):
    """Clients whose answers arrive by a simulated clock; the same seed gives the same run.

    Each client answers its questions one after another. ``ask`` waits for all that are asked,
    ``post`` and ``collect`` for nobody but the next to answer.

    Parameters
    ----------
    clients : Clients
        Who computes the answers.
    latency : Latency
    seed : int

    Attributes
    ----------
    clock : float
        The simulated time.
    """

    def __init__(self, clients: Clients, latency: Latency, seed: int = 0) -> None:
        for client in latency.slow:
            if not 0 <= client < clients.m:
                raise InputError(
                    f"Latency: slow names client {client!r}, and there are 0 to {clients.m - 1}"
                )
        self._clients = clients
        self._latency = latency
        self._seed = seed
        self.m = clients.m
        self.d = clients.d
        self.names = clients.names
        self.free = clients.free
        self.recorded = clients.recorded
        self.hessians = clients.hessians
        self.clock = 0.0
        self._questions = np.zeros(self.m, dtype=int)  # asked so far
        self._busy = np.zeros(self.m)  # until when
        self._posted: dict[int, CostQuestion] = {}
        self._arrival: Array = np.full(self.m, np.inf)  # of what was posted

    def ask(self, question: CostQuestion) -> Answer:
        return self.ask_some(question, np.ones(self.m, dtype=bool))

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        answer = self._clients.ask_some(question, drawn)
        self.clock = max(self._take_up(j) for j in np.flatnonzero(drawn).tolist())
        return answer

    def post(self, question: CostQuestion, to: Mask) -> None:
        for j in np.flatnonzero(to).tolist():
            self._posted[j] = question
            self._arrival[j] = self._take_up(j)

    @property
    def idle(self) -> Mask:
        return np.isinf(self._arrival)

    def collect(self) -> Arrival:
        first = int(self._arrival.argmin())
        question = self._posted[first]
        self.clock = max(self.clock, float(self._arrival[first]))
        # Answers to one question that arrive at the same time arrive together.
        same = np.array([self._posted.get(j) is question for j in range(self.m)])
        arrived = same & (self._arrival <= self.clock)
        self._arrival[arrived] = np.inf
        return Arrival(question, self._clients.ask_some(question, arrived))

    def _take_up(self, client: int) -> float:
        """When a question that is sent now will be answered."""
        time = self._latency.draw(self._seed, client, int(self._questions[client]))
        self._questions[client] += 1
        self._busy[client] = max(self._busy[client], self.clock) + time
        return float(self._busy[client])
