"""Clients with a meter: every question is counted in floats, both ways, whatever the method."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.protocol import Answer, Clients, Decrement
from fedsplit.prox.solver import ProxSolver


class Exchange(NamedTuple):
    """One question to every client, and the answers."""

    floats_down: int
    floats_up: int
    answered: int
    error: float
    seconds: float


class MeteredClients:
    """Passes every question on and keeps an Exchange of it: arrays and step sizes count, solver settings do not."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.m, self.d = clients.m, clients.d
        self._exchanges: list[Exchange] = []

    def take(self) -> list[Exchange]:
        """The exchanges since the last call."""
        exchanges, self._exchanges = self._exchanges, []
        return exchanges

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        down = (1 if start is v else 2) * self.d + np.size(s)
        return self._ask(lambda: self._clients.prox(v, s, start, solver), down, self.d + 1)

    def descend(self, x: Array, step: float, steps: int, shift: Array | None = None) -> Answer:
        down = (1 if shift is None else 2) * self.d + 1
        return self._ask(lambda: self._clients.descend(x, step, steps, shift), down, self.d)

    def gradient(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.gradient(x), self.d, self.d)

    def value(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.value(x), self.d, 1)

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

    def information(self, x: Array) -> Answer:
        return self._ask(lambda: self._clients.information(x), self.d, self.d * self.d)

    def _ask(self, question: Callable[[], Answer], down: int, up: int) -> Answer:
        began = time.perf_counter()
        answer = question()
        seconds = time.perf_counter() - began
        answered = int(answer.present.sum())
        worst = float(answer.error[answer.present].max(initial=0.0))
        self._exchanges.append(Exchange(self.m * down, answered * up, answered, worst, seconds))
        return answer
