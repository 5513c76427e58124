"""Partial participation: only some clients answer each question."""

from __future__ import annotations

import numpy as np

from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion


class SampledClients(Clients):
    """Clients of which a random share answers each question.

    Parameters
    ----------
    clients : Clients
        All of them.
    participation : float
        The share, above 0 and at most 1; one client at least is drawn.
    seed : int
        Of the draw, which also depends on the number of the question.
    """

    def __init__(self, clients: Clients, participation: float, seed: int) -> None:
        self._clients = clients
        self.m = clients.m
        self.d = clients.d
        self.names = clients.names
        self.stands_for = clients.stands_for
        self._drawn = max(1, round(participation * clients.m))
        self._seed = seed
        self._asked = 0

    def ask(self, question: CostQuestion) -> Answer:
        answer = self._clients.ask(question)
        self._asked += 1
        if self._drawn == self.m:
            return answer
        order = np.random.default_rng([self._seed, self._asked]).permutation(self.m)
        present = answer.present & (order < self._drawn)
        parts = {name: np.array(array) for name, array in answer.parts.items()}
        for array in parts.values():
            array[~present] = np.nan
        if "error" in parts:
            parts["error"][~present] = 0.0
        return answer._replace(parts=parts, present=present)
