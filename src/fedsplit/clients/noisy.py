"""Gaussian noise on what clients answer to a prox, in simulations."""

from __future__ import annotations

import math

import numpy as np

from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Prox


class NoisyClients(Clients):
    """Clients whose proxes have noise n_j ~ N(0, (b²/d)I) added, independent in every answer.

    This is to study how noise acts on a method. Answers to other questions are as they are, and
    the noise follows from a seed: it protects nobody.

    Parameters
    ----------
    clients : Clients
    noise : float
        b, the root of E‖n_j‖².
    seed : int
    """

    def __init__(self, clients: Clients, noise: float, seed: int) -> None:
        self._clients = clients
        self.m = clients.m
        self.d = clients.d
        self._scale = noise / math.sqrt(clients.d)
        self._rng = np.random.default_rng(seed)

    def ask(self, question: CostQuestion) -> Answer:
        answer = self._clients.ask(question)
        if not isinstance(question, Prox):
            return answer
        noise = self._scale * self._rng.standard_normal((self.m, self.d))
        return answer._replace(parts=answer.parts | {"point": answer.parts["point"] + noise})
