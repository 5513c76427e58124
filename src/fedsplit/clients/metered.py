"""What every question of a run passes through: a meter that counts floats both ways, and the sampling of clients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Answer, Clients, Decrement
from fedsplit.prox.solver import ProxSolver
from fedsplit.remote.clients import RemoteClients

SCALARS = 32
"""How many numbers beside its vectors a message of one round may hold."""


class Exchange(NamedTuple):
    """One question to every client, and the answers."""

    floats_down: int
    floats_up: int
    answered: int
    error: float
    seconds: float
    margin: float = math.nan
    latency: Mapping[str, float] | None = None

    def rounds(self, m: int, d: int) -> list[Exchange]:
        """The exchange as rounds: a question of up to two d-vectors and an answer of one, with 32 scalars each, is one.

        A bigger message counts as proportionally more.
        """
        up, down = self.floats_up / max(1, self.answered) - SCALARS, self.floats_down / m - SCALARS
        n = max(1, math.ceil(up / d), math.ceil(down / (2 * d)))
        shares = [(self.floats_down * i // n, self.floats_up * i // n) for i in range(n + 1)]
        return [
            self._replace(
                floats_down=after[0] - before[0],
                floats_up=after[1] - before[1],
                seconds=self.seconds / n,
            )
            for before, after in pairwise(shares)
        ]


class MeteredClients:
    """Passes every question on and keeps an Exchange of it: arrays and step sizes count, solver settings do not.

    With a ``participation`` below 1 only that share of the clients answers each question, drawn by ``seed`` and the
    question's number. ``present`` says who answered the last one, ``heard`` who has answered any.
    """

    def __init__(self, clients: Clients, participation: float = 1.0, seed: int = 0) -> None:
        self._clients = clients
        self.m, self.d = clients.m, clients.d
        self._exchanges: list[Exchange] = []
        self._turnout, self._seed, self._asked = max(1, round(participation * clients.m)), seed, 0
        self.present: Mask = np.zeros(clients.m, dtype=bool)
        self.heard: Mask = np.zeros(clients.m, dtype=bool)

    @property
    def waiting(self) -> int:
        """How many exchanges have not been taken."""
        return len(self._exchanges)

    def take(self) -> list[Exchange]:
        """The exchanges since the last call."""
        exchanges, self._exchanges = self._exchanges, []
        return exchanges

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        down = (1 if start is v else 2) * self.d + np.size(s)
        answer = self._ask(lambda: self._clients.prox(v, s, start, solver), down, self.d + 1)
        if answer.margin is not None and not np.isnan(margin := float(np.min(answer.margin))):
            last = self._exchanges[-1]
            self._exchanges[-1] = last._replace(
                floats_up=last.floats_up + last.answered, margin=margin
            )
        return answer

    def descend(self, x: Array, step: float, steps: int, shift: Array | None = None) -> Answer:
        down = (1 if shift is None else 2) * self.d + 1
        return self._ask(lambda: self._clients.descend(x, step, steps, shift), down, self.d)

    def gradient(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.gradient(x), self.d, self.d)

    def value(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.value(x), self.d, 1)

    def evaluate(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.evaluate(x), self.d, 1 + self.d)

    def curvature(self, x: Array | None = None) -> Answer:
        return self._ask(lambda: self._clients.curvature(x), 0 if x is None else self.d, 2)

    def diagonal(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.diagonal(x), self.d, self.d + 2)

    def decrement(self, x: Array, g: Array) -> Answer:
        return self._ask(lambda: self._clients.decrement(x, g), 2 * self.d, len(Decrement._fields))

    def line(self, x: Array, direction: Array, t: Array) -> Answer:
        return self._ask(lambda: self._clients.line(x, direction, t), 2 * self.d + len(t), len(t))

    def direction(self, x: Array, g: Array) -> Answer:
        return self._ask(lambda: self._clients.direction(x, g), 2 * self.d, self.d)

    def margin(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.margin(x), self.d, 1)

    def information(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.information(x), self.d, self.d * self.d)

    def _ask(self, question: Callable[[], Answer], down: int, up: int) -> Answer:
        began = time.perf_counter()
        answer = self._sample(question())
        seconds = time.perf_counter() - began
        self.present, self.heard = answer.present, self.heard | answer.present
        answered = int(answer.present.sum())
        worst = float(answer.error[answer.present].max(initial=0.0))
        exchange = Exchange(
            self.m * down, answered * up, answered, worst, seconds, latency=self._latency(answer)
        )
        self._exchanges.append(exchange)
        return answer

    def _latency(self, answer: Answer) -> dict[str, float] | None:
        names = self._clients.names if isinstance(self._clients, RemoteClients) else None
        if names is None:
            return None
        return {
            name: float(seconds)
            for name, seconds, present in zip(names, answer.seconds, answer.present, strict=True)
            if present
        }

    def _sample(self, answer: Answer) -> Answer:
        """The answer with the rows of those who were not drawn taken out."""
        self._asked += 1
        if self._turnout == self.m:
            return answer
        drawn = np.random.default_rng([self._seed, self._asked]).permutation(self.m) < self._turnout
        present = answer.present & drawn
        rows, error = np.array(answer.rows), np.where(present, answer.error, 0.0)
        rows[~present] = np.nan
        margin = None if answer.margin is None else np.where(present, answer.margin, np.nan)
        return Answer(rows, present, error, answer.seconds, margin)
