"""Counting: what every question of a run costs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Answer, CostQuestion

SCALARS = 32
"""How many numbers beside its vectors a message of one round may hold."""


class Exchange(NamedTuple):
    """One question to every client, and the answers.

    Attributes
    ----------
    floats_down, floats_up : int
        Floats sent to all clients, and received from them.
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
    questions : int
        1, or 0 in the later rounds of a message that is counted as several.
    work : tuple of int
        Gradients, Hessians and factorisations that all clients computed.
    """

    floats_down: int
    floats_up: int
    answered: int
    error: float
    seconds: float
    margin: float = math.nan
    latency: Mapping[str, float] | None = None
    questions: int = 1
    work: tuple[int, int, int] = (0, 0, 0)

    def rounds(self, m: int, d: int) -> list[Exchange]:
        """The exchange as rounds.

        A round is a question of up to two d-vectors and an answer of one, with 32 scalars each; a
        bigger message counts as proportionally more.
        """
        up = self.floats_up / max(1, self.answered) - SCALARS
        down = self.floats_down / m - SCALARS
        n = max(1, math.ceil(up / d), math.ceil(down / (2 * d)))
        so_far = [(self.floats_down * i // n, self.floats_up * i // n) for i in range(n + 1)]
        rounds = [
            self._replace(
                floats_down=after[0] - before[0],
                floats_up=after[1] - before[1],
                seconds=self.seconds / n,
                questions=0,
                work=(0, 0, 0),
            )
            for before, after in pairwise(so_far)
        ]
        rounds[0] = rounds[0]._replace(questions=self.questions, work=self.work)
        return rounds


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
        self._exchanges: list[Exchange] = []
        self.present: Mask = np.zeros(clients.m, dtype=bool)
        self.heard: Mask = np.zeros(clients.m, dtype=bool)

    @property
    def waiting(self) -> int:
        """How many exchanges have not been taken."""
        return len(self._exchanges)

    def take(self) -> list[Exchange]:
        """The exchanges since the last call."""
        exchanges = self._exchanges
        self._exchanges = []
        return exchanges

    def ask(self, question: CostQuestion) -> Answer:
        began = time.perf_counter()
        answer = self._clients.ask(question)
        seconds = time.perf_counter() - began
        self.present = answer.present
        self.heard = self.heard | answer.present
        answered = int(answer.present.sum())
        latency = None
        if self._clients.names is not None:
            taken = zip(self._clients.names, answer.seconds, answer.present, strict=True)
            latency = {name: float(seconds) for name, seconds, present in taken if present}
        gradients, hessians, factorisations = answer.work[answer.present].sum(axis=0).astype(int)
        self._exchanges.append(
            Exchange(
                floats_down=self.m * question.floats_down(self.d),
                floats_up=answered * question.floats_up(self.d, answer),
                answered=answered,
                error=float(answer.error[answer.present].max(initial=0.0)),
                seconds=seconds,
                margin=float(np.min(answer.parts.get("margin", np.nan))),
                latency=latency,
                work=(int(gradients), int(hessians), int(factorisations)),
            )
        )
        return answer
