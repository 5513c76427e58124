"""What a method is: frozen settings, a small state, and the server's mathematics of one round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import instance, number
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Answer
from fedsplit.errors import InputError


class State(Protocol):
    """All that a method remembers: a NamedTuple of arrays and numbers, and what a checkpoint holds."""

    @property
    def x(self) -> Array:
        """The server's current answer, (d,)."""

    @property
    def s(self) -> float | Array:
        """The step in use."""

    @property
    def iterate(self) -> Array:
        """The variable whose fixed point the method seeks; its change is the residual."""


S = TypeVar("S", bound=State)


class Method(Protocol[S]):
    """Server-side mathematics over stacked arrays: ``start`` makes the state, ``update`` is one round.

    One that needs every client's answer in every round has ``unanimous = True``: clients elsewhere are then asked until
    all have given it.
    """

    @property
    def hazard(self) -> str:
        """What most likely went wrong when the method diverges, and what to do."""

    @property
    def settles(self) -> bool:
        """Whether a small residual means that the method is done; False where it ends by itself."""

    @property
    def state_type(self) -> type[S]:
        """The type of the method's states."""

    def start(self, clients: Clients, x0: Array) -> S:
        """The first state; questions asked here are set-up rounds."""

    def update(self, clients: Clients, state: S) -> S | None:
        """The next state, or None when the method has done all it promised."""


def choose_step(
    given: float | None, rule: Callable[[float, float], float], clients: Clients, x0: Array
) -> float:
    """The given step, or the rule's at ℓ* = min ℓ_j and L* = max L_j.

    Where some L_j is not known for every x, the rule takes the curvature at x0 instead.
    """
    if given is not None:
        return float(given)
    xp = array_namespace(x0)
    bounds = _told(clients.curvature())
    if not xp.all(xp.isfinite(bounds[:, 1])):
        bounds = _told(clients.curvature(x0))
    ell, L = float(xp.min(bounds[:, 0])), float(xp.max(bounds[:, 1]))
    step = rule(ell, L) if L > 0 else math.inf
    if not (math.isfinite(step) and step > 0):
        raise InputError(f"no step follows from the curvature ℓ* = {ell:g}, L* = {L:g}: pass step=")
    return step


def _told(answer: Answer) -> Array:
    """The rows of those who answered."""
    if not answer.present.any():
        raise InputError("no step follows from the curvature: no client answered, pass step=")
    return answer.rows[answer.present]


def check_step(name: str, step: float | None) -> None:
    """Refuse a step that is not a positive number."""
    if step is not None:
        number(f"{name}: step", step)


def check_prox(prox: object) -> None:
    """Refuse a local solver that is none."""
    if prox is not None:
        instance("prox", prox, "a ProxSolver", "solve")
