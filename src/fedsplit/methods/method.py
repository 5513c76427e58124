"""What a method is: frozen settings, a small state, and the server's mathematics of one round."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from array_api_compat import array_namespace

from fedsplit.arrays import Array, column_means
from fedsplit.checks import instance, number
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError
from fedsplit.penalties.penalty import Penalty, check_penalty, prox_or_same


class State(Protocol):
    """All that a method remembers between rounds: a NamedTuple of arrays and numbers.

    A method that takes a penalty has states with ``subgradient`` too, a subgradient of the penalty
    at x, (d,): certificates need it.
    """

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
    """Server-side mathematics over stacked arrays.

    A method that needs an answer from every client in every round has ``unanimous = True``: remote
    clients are then asked until all have answered. One that takes a penalty g, and so minimises
    F + g, has it as the setting ``penalty``, which is None without one.
    """

    @property
    def hazard(self) -> str:
        """What most likely went wrong when the method diverges, and what to do about it."""

    @property
    def settles(self) -> bool:
        """Whether a small residual means that it has converged; False if it ends by itself."""

    @property
    def state_type(self) -> type[S]:
        """The type of the method's states."""

    def start(self, clients: Clients, x0: Array) -> S:
        """The first state; questions asked here are set-up rounds."""

    def update(self, clients: Clients, state: S) -> S | None:
        """The state after one more round, or None if the method is done."""


EPS = sys.float_info.epsilon

NUMERICAL_HAZARD = (
    "a cost is not convex, or its numbers are beyond float64: "
    "check the loss and the scale of the data"
)
"""The hazard of methods that have no step to choose and solve nothing inexactly."""


def average(z: Array, s: float | Array, penalty: Penalty | None) -> Array:
    """argmin_x g(x) + Σ_j ‖x - z_j‖²/(2s) = prox_{(s/m)g}(mean z): the mean without a penalty."""
    return prox_or_same(penalty, column_means(z), s / z.shape[0])


def subgradient_of_average(x: Array, z: Array, s: float | Array) -> Array:
    """The subgradient of g at x = prox_{(s/m)g}(mean z), (d,): 0 to rounding without a penalty."""
    slope: Array = z.shape[0] * (column_means(z) - x) / s
    return slope


def choose_step(
    given: float | None,
    rule: Callable[[float, float], float],
    clients: Clients,
    x0: Array,
    batch: int | None = None,
) -> float:
    """The given step, or the rule's at ℓ* = min ℓ_j and L* = max L_j.

    If some L_j has no bound that holds for every x, the rule takes the curvature at x0 instead. L_j
    is the expected smoothness of minibatches where these are of ``batch`` rows.
    """
    if given is not None:
        return float(given)
    xp = array_namespace(x0)
    answer = clients.curvature(batch=batch)
    if not xp.all(xp.isfinite(answer.rows[answer.present][:, 1])):
        answer = clients.curvature(x0, batch)
    if not xp.any(answer.present):
        raise InputError("no step follows from the curvature: no client answered, pass step=")
    bounds = answer.rows[answer.present]
    ell = float(xp.min(bounds[:, 0]))
    L = float(xp.max(bounds[:, 1]))
    step = math.inf
    if L > 0:
        step = rule(ell, L)
    if not (math.isfinite(step) and step > 0):
        raise InputError(f"no step follows from the curvature ℓ* = {ell:g}, L* = {L:g}: pass step=")
    return step


def check_settings(
    name: str, step: object = None, prox: object = None, penalty: object = None
) -> None:
    """Raise InputError unless each setting of the method ``name`` is None or can be used."""
    if step is not None:
        number(f"{name}: step", step)
    if prox is not None:
        instance("prox", prox, "a ProxSolver", "solve")
    check_penalty(penalty)
