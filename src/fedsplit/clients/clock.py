"""A simulated clock, by which answers arrive one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.checks import number, one_of
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.errors import InputError


@dataclass(frozen=True)
class Latency:
    """How long a client takes to answer, in simulated time.

    Parameters
    ----------
    distribution : {"constant", "exponential", "pareto"}
        That of the time from a question to its answer; its mean is 1. Pareto's has a heavy tail,
        P(t > u) ∝ u^-tail.
    slow : mapping of int to float
        By client, how many times longer it takes than the others.
    tail : float
        The exponent of Pareto's tail, above 1 so that there is a mean. At 1.5 the variance is
        infinite: now and then an answer is very late.
    """

    distribution: Literal["constant", "exponential", "pareto"] = "exponential"
    slow: Mapping[int, float] = field(default_factory=dict)
    tail: float = 1.5

    def __post_init__(self) -> None:
        one_of("Latency: distribution", self.distribution, ("constant", "exponential", "pareto"))
        for client, factor in self.slow.items():
            number(f"Latency: slow[{client!r}]", factor)
        if not number("Latency: tail", self.tail) > 1.0:
            raise InputError(f"Latency: tail must be above 1, not {self.tail!r}")

    def draw(self, seed: int, client: int, question: int) -> float:
        """The time that a client takes for its ``question``-th question."""
        # by client and question, so that no time depends on who else is asked
        rng = np.random.default_rng([seed, client, question])
        time = 1.0
        if self.distribution == "exponential":
            time = float(rng.exponential())
        elif self.distribution == "pareto":
            # NumPy's begins at 0, Pareto's own at 1, where its mean is tail/(tail - 1)
            time = float(1.0 + rng.pareto(self.tail)) * (self.tail - 1.0) / self.tail
        return self.slow.get(client, 1.0) * time


class Clock:
    """Clients that take their time, in simulated time; the same seed gives the same times.

    A client answers its questions one after another. It is a ``Posting``.
    """

    def __init__(self, clients: Clients, latency: Latency, seed: int) -> None:
        m = clients.m
        for client in latency.slow:
            if not 0 <= client < m:
                raise InputError(
                    f"Latency: slow names client {client!r}, and there are 0 to {m - 1}"
                )
        self.now = 0.0
        self._clients = clients
        self._latency = latency
        self._seed = seed
        self._questions = np.zeros(m, dtype=int)  # asked so far
        self._busy = np.zeros(m)  # until when
        self._posted: dict[int, CostQuestion] = {}
        self._arrival: Array = np.full(m, np.inf)  # of what was posted

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        """Wait until everyone that is asked now has answered."""
        self.now = max(self._take_up(j) for j in np.flatnonzero(drawn).tolist())
        return self._clients.ask_some(question, drawn)

    def post(self, question: CostQuestion, to: Mask) -> None:
        """Let these clients begin with a question."""
        for j in np.flatnonzero(to).tolist():
            self._posted[j] = question
            self._arrival[j] = self._take_up(j)

    @property
    def idle(self) -> Mask:
        """Who has answered everything, (m,)."""
        return np.isinf(self._arrival)

    def collect(self) -> tuple[CostQuestion, Answer]:
        """Wait for the next answer, and those to the same question that arrive with it."""
        first = int(self._arrival.argmin())
        question = self._posted[first]
        self.now = max(self.now, float(self._arrival[first]))
        same = np.array([self._posted.get(j) is question for j in range(len(self._arrival))])
        arrived = same & (self._arrival <= self.now)
        self._arrival[arrived] = np.inf  # idle again
        return question, self._clients.ask_some(question, arrived)

    def _take_up(self, client: int) -> float:
        """When a question that is sent now will be answered."""
        time = self._latency.draw(self._seed, client, int(self._questions[client]))
        self._questions[client] += 1
        # what was asked before is answered first
        self._busy[client] = max(self._busy[client], self.now) + time
        return float(self._busy[client])
