"""Partial participation: only some clients are asked each question."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import numpy as np

from fedsplit.arrays import Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion


def draws(m: int, k: int, seed: int) -> Iterator[Mask]:
    """Masks with k of m clients each, (m,), without end.

    They deal out one shuffled list of all clients after another, so that every client is drawn once
    before any is drawn again.
    """
    left: list[int] = []
    for shuffle in count():
        order = np.random.default_rng([seed, shuffle]).permutation(m).tolist()
        if left:
            # A draw that takes the end of one list and the start of the next has no client twice.
            ahead = [j for j in order if j not in left][: k - len(left)]
            order = ahead + [j for j in order if j not in ahead]
        queue = left + order
        whole = len(queue) // k * k
        for start in range(0, whole, k):
            drawn = np.zeros(m, dtype=bool)
            drawn[queue[start : start + k]] = True
            yield drawn
        left = queue[whole:]


def independent_draws(m: int, k: int, seed: int) -> Iterator[Mask]:
    """Masks with k of m clients each, (m,), without end, each drawn from all clients."""
    for number in count():
        yield np.random.default_rng([seed, number]).permutation(m) < k


class SampledClients(Clients):
    """Clients of which a random share is asked each question; the others do nothing.

    Parameters
    ----------
    clients : Clients
        All of them.
    participation : float
        The share, above 0 and at most 1; one client at least is drawn.
    seed : int
        Of the draw, which also depends on the number of the question.
    reshuffled : bool
        Whether every client is drawn once before any is drawn again. Otherwise draws are
        independent, and questions that need everyone are asked of all clients.
    earlier : int
        How many questions the run asked before.
    """

    def __init__(
        self,
        clients: Clients,
        participation: float,
        seed: int,
        reshuffled: bool = True,
        earlier: int = 0,
    ) -> None:
        self._clients = clients
        self.m = clients.m
        self.d = clients.d
        self.names = clients.names
        self.stands_for = clients.stands_for
        self.words = clients.words
        self._reshuffled = reshuffled
        draw = draws if reshuffled else independent_draws
        masks = draw(self.m, max(1, round(participation * self.m)), seed)
        self._draws = islice(masks, earlier, None)

    def ask(self, question: CostQuestion) -> Answer:
        return self.ask_some(question, np.ones(self.m, dtype=bool))

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        mask = next(self._draws)
        if self._reshuffled or not question.everyone:
            drawn = drawn & mask
        self.asked = int(drawn.sum())
        return self._clients.ask_some(question, drawn)
