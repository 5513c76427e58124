"""Random seeds for questions that clients draw for: a function of (seed, question, client)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Arrival, Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.losses.batches import Streams


def streams_of(seed: int, question: int, m: int) -> Streams:
    """One random seed per client for a question, by its number, (m,).

    That of client j does not depend on how many clients there are.
    """
    return np.random.default_rng([seed, question]).integers(2**63, size=m)


class SeededClients(Clients):
    """Clients that get random seeds with every question that they draw for.

    So wherever they are, they draw the same.

    Parameters
    ----------
    clients : Clients
    seed : int
        Of the run. What a client draws also depends on the number of the question.
    earlier : int
        How many questions the run asked before.

    Attributes
    ----------
    number : int
        The number of the last question.
    """

    def __init__(self, clients: Clients, seed: int, earlier: int = 0) -> None:
        self._clients = clients
        self.m = clients.m
        self.d = clients.d
        self.names = clients.names
        self.stands_for = clients.stands_for
        self.words = clients.words
        self.on_device = clients.on_device
        self._seed = seed
        self.number = earlier

    def repeated(self, x: Array) -> Any:
        return self._clients.repeated(x)

    def pooled(self) -> Clients:
        return self._clients.pooled()

    def ask(self, question: CostQuestion) -> Answer:
        return self._clients.ask(self._seeded(question))

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        return self._clients.ask_some(self._seeded(question), drawn)

    def post(self, question: CostQuestion, to: Mask) -> None:
        self._clients.post(self._seeded(question), to)

    @property
    def idle(self) -> Mask:
        return self._clients.idle

    def collect(self) -> Arrival:
        return self._clients.collect()

    def _seeded(self, question: CostQuestion) -> CostQuestion:
        self.number += 1
        if not question.draws:
            return question
        return question.seeded(streams_of(self._seed, self.number, self.m))
