"""Clients as an oracle: the only seam between the server's mathematics and everything else.

An oracle has ``m`` clients, ``d`` coordinates, and ``ask``. It remembers nothing: a method's whole
state is at the server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import (
    Curvature,
    Decrement,
    Descend,
    Diagonal,
    Direction,
    Evaluate,
    Gradient,
    Information,
    Line,
    Margin,
    Prox,
    Value,
)
from fedsplit.clients.stochastic import BatchCurvature, StochasticDescend
from fedsplit.errors import InputError, listed
from fedsplit.local.solver import ProxSolver


class Oracle(Protocol):
    """What ``solve`` needs of clients."""

    m: int
    d: int

    def ask(self, question: CostQuestion) -> Answer: ...


class Arrival(NamedTuple):
    """The answers to a question that was posted earlier; ``present`` says whose they are."""

    question: CostQuestion
    answer: Answer


class Incident(NamedTuple):
    """Something that went wrong with a client's answer.

    Attributes
    ----------
    question : int
        The number of the question.
    client : str
        The client's name.
    what : str
        What went wrong.
    """

    question: int
    client: str
    what: str


class Removed(Exception):
    """Clients were absent for too long, and the run may go on without them.

    Attributes
    ----------
    names : tuple of str
        The clients.
    reached : mapping of str to float
        The coefficients by name that an interrupted fit had reached.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"removed: {listed(names)}")
        self.names = tuple(names)
        self.reached: Mapping[str, float] = {}


class Clients:
    """m clients that answer questions about their own f_j: the readable front over ``ask``.

    Parameters
    ----------
    oracle : Oracle
        Who answers. Subclasses answer themselves.

    Attributes
    ----------
    m, d : int
        The number of clients, and of coordinates of x.
    names : sequence of str or None
        The clients by name; None where they are in this process.
    free : bool
        Whether questions cost nothing but arithmetic, so that they may be asked for a measurement.
    recorded : bool
        Whether questions are counted or kept by others, so that an extra one makes a difference.
    hessians : bool
        Whether every client can tell its Hessian by a formula.
    incidents : sequence of Incident
        What went wrong so far.
    stands_for : int
        How many clients each of the m is the sum of.
    words : int
        How many numbers are sent up for each float of an answer: several in secure sums.
    asked : int or None
        How many clients were drawn for the last question; None where all are asked.
    clock : float
        The simulated time; nan where time is real.
    on_device : bool
        Whether the clients' arrays, x and answers are on a device, and only sums reach the host.
    rounded : str
        What was done to the rows that a proof is about, in words; empty if nothing.
    tells_values : bool
        Whether the answer to a prox or to local steps from x comes with F(x).
    """

    m: int
    d: int
    stands_for: int = 1
    words: int = 1
    names: Sequence[str] | None = None
    free: bool = True
    recorded: bool = False
    hessians: bool = False
    incidents: Sequence[Incident] = ()
    asked: int | None = None
    clock: float = math.nan
    on_device: bool = False
    rounded: str = ""
    tells_values: bool = False

    def __init__(self, oracle: Oracle) -> None:
        self.m = oracle.m
        self.d = oracle.d
        self._oracle = oracle

    def ask(self, question: CostQuestion) -> Answer:
        """Every client's answer."""
        return self._oracle.ask(question)

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        """The answers of the clients drawn, (m,); the others count as absent.

        This one asks all clients. Those that can ask some of them alone override it.
        """
        if drawn.all():
            return self.ask(question)
        return self.ask(question).only(drawn)

    def asynchronously(self) -> Clients:
        """The same clients, to be asked by ``post`` and ``collect``, in real time."""
        raise InputError(
            "these clients are asked together, and cannot be asked asynchronously in real time: "
            "pass asynchronous=Latency(...) for simulated time"
        )

    def post(self, question: CostQuestion, to: Mask) -> None:
        """Send a question to these clients, (m,), without waiting for their answers."""
        raise NotImplementedError("clients that are asked together")

    @property
    def idle(self) -> Mask:
        """Who has answered all that was posted, (m,)."""
        return np.ones(self.m, dtype=bool)

    def collect(self) -> Arrival:
        """Wait for the next answer to what was posted; those that arrive with it come too."""
        raise NotImplementedError("clients that are asked together")

    def vector(self, x: Array) -> Array:
        """x, (d,), where the clients' arrays are."""
        return x

    def repeated(self, x: Array) -> Any:
        """x, (d,), as one row per client: an array, (m, d), or a block vector."""
        return array_namespace(x).tile(x, (self.m, 1))

    def pooled(self) -> Clients:
        """The one client that all are together, where proofs are about that; else these."""
        return self

    def insistent(self) -> Clients:
        """The same clients, asked until every one of them has answered."""
        return self

    def without(self, names: Sequence[str]) -> Clients:
        """The other clients."""
        raise InputError(
            f"clients in this process have no names: {listed(names)} cannot be removed"
        )

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        """prox_{s f_j}(v_j), (m, d). v and start are (m, d), or (d,), the same for all clients."""
        elsewhere = None if start is v else start
        return self.ask(Prox(v, s, elsewhere, solver))

    def descend(self, x: Array, step: float, steps: int, shift: Array | None = None) -> Answer:
        """``steps`` gradient steps on f_j + ⟨shift_j, ·⟩ from x, (m, d)."""
        return self.ask(Descend(x, step, steps, shift))

    def gradient(self, x: Array) -> Answer:
        """∇f_j(x), (m, d)."""
        return self.ask(Gradient(x))

    def value(self, x: Array) -> Answer:
        """f_j(x), (m,)."""
        return self.ask(Value(x))

    def objective(self, x: Array) -> float | None:
        """F(x), without a penalty; None unless every client answers."""
        answer = self.value(x)
        if not answer.complete:
            return None
        return float(array_namespace(answer.rows).sum(answer.rows))

    def evaluate(self, x: Array) -> Answer:
        """f_j(x) and ∇f_j(x): the parts ``value``, (m,), and ``gradient``, (m, d)."""
        return self.ask(Evaluate(x))

    def stochastic_descend(
        self, x: Array, step: float, steps: int, batch: int, in_epochs: bool = False
    ) -> Answer:
        """``steps`` steps, or passes over the rows, with minibatches from x, (m, d)."""
        return self.ask(StochasticDescend(x, step, steps, batch, in_epochs))

    def curvature(self, x: Array | None = None, batch: int | None = None) -> Answer:
        """ℓ_j and L_j, (m, 2): those that hold everywhere, or those at x.

        With ``batch`` the expected smoothness of batches of so many rows is in the place of L_j.
        """
        if batch is not None:
            return self.ask(BatchCurvature(batch, x))
        return self.ask(Curvature(x))

    def diagonal(self, x: Array, origin: bool = False) -> Answer:
        """The diagonal of ∇²f_j(x), (m, d), and ``smallest``, ``largest`` and ``value``, (m,).

        With ``origin`` also the part ``value_at_0``, (m,).
        """
        return self.ask(Diagonal(x, origin))

    def decrement(self, x: Array, g: Array) -> Answer:
        """The ``ProofScalars`` at x, each a part, (m,)."""
        return self.ask(Decrement(x, g))

    def line(self, x: Array, direction: Array, t: Array) -> Answer:
        """f_j(x + t_i direction) for every t_i, (m, len(t))."""
        return self.ask(Line(x, direction, t))

    def direction(self, x: Array, g: Array) -> Answer:
        """∇²f_j(x)⁻¹ g, (m, d)."""
        return self.ask(Direction(x, g))

    def margin(self, x: Array) -> Answer:
        """min_i b_i a_iᵀx of a classifier, (m,)."""
        return self.ask(Margin(x))

    def information(self, x: Array) -> Answer:
        """∇²f_j(x), (m, d, d)."""
        return self.ask(Information(x))

    def local_model(
        self,
        x: Array,
        v: Array | None,
        metric: Array | None,
        reach: float,
        before: Array | None,
        both: bool,
    ) -> Answer:
        """The parts of a ``LocalModel`` of every client."""
        return self.ask(LocalModel(x, v, metric, reach, before, both))


def clients_of(oracle: Oracle) -> Clients:
    """The readable front of an oracle."""
    if isinstance(oracle, Clients):
        return oracle
    return Clients(oracle)
