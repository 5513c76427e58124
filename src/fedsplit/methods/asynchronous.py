"""Asynchronous methods: the server moves x on every arrival, and never waits for anybody."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.methods.method import Method, State

S = TypeVar("S", bound=State)
S_contra = TypeVar("S_contra", bound=State, contravariant=True)


class Asking(Protocol[S_contra]):
    """What decides about the next question."""

    def question(self, state: S_contra) -> CostQuestion:
        """What a client is asked next."""

    def useful(self, state: S_contra) -> Mask:
        """Whose answer to the next question would tell something new, (m,)."""


class AsynchronousMethod(Asking[S], Method[S], Protocol[S]):
    """A method whose round is one arrival.

    A client has one question at a time. Its answer is about the x of the time when it was asked,
    and is applied to what the server knows of this client alone.
    """

    def absorb(self, state: S, question: CostQuestion, answer: Answer) -> S:
        """The state after the arrival of answers to an earlier question."""


def post_first(method: Asking[S], clients: Clients, state: S) -> S:
    """Ask every client for the first time."""
    clients.post(method.question(state), np.ones(clients.m, dtype=bool))
    return state


def next_arrival(method: AsynchronousMethod[S], clients: Clients, state: S) -> S:
    """Take the next answers, and ask all clients of use that have nothing to do."""
    question, answer = clients.collect()
    after = method.absorb(state, question, answer)
    ask_idle(method, clients, after)
    return after


def ask_idle(method: Asking[S], clients: Clients, state: S) -> None:
    """Ask all clients of use that have nothing to do."""
    idle = clients.idle
    useful = idle & method.useful(state)
    if idle.all() and not useful.any():
        useful = idle  # the answers of all will show that nothing moves any more
    if useful.any():
        clients.post(method.question(state), useful)


def row_norms(X: Array) -> Array:
    """‖x_j‖ of every row, (m,)."""
    lengths: Array = np.sqrt(np.sum(np.square(X), axis=1))
    return lengths
