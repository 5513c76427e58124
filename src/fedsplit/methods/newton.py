"""Newton's method on F from the clients' Hessians, with a line search in one question."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import EPS, NUMERICAL_HAZARD
from fedsplit.methods.sums import total

TRIAL_STEPS = (*(2.0**k for k in range(4, -27, -1)), 0.0)
"""The candidate steps of a line search; the last is no step."""


class NewtonState(NamedTuple):
    """The state of Newton and GIANT.

    Attributes
    ----------
    x, g : (d,) array
        The server's x and the gradient of F there.
    p : (d,) array
        The direction; 0 until it is known. ``iterate`` is x + p, which stands still only if p is 0.
    s : float
        The last step along a direction.
    phase : {"gradient", "direction", "line"}
        Which question is next.
    """

    x: Array
    g: Array
    p: Array
    s: float
    phase: Literal["gradient", "direction", "line"]

    @property
    def iterate(self) -> Array:
        return self.x + self.p


@dataclass(frozen=True)
class Newton:
    """Newton's method: p = -(Σ_j ∇²f_j(x))⁻¹∇F(x), then x + tp with the best t of a line search.

    An iteration is three rounds: the gradient, the Hessians (d² floats per client), the line
    search. The first gradient is set-up. Every client must answer in every round.
    """

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[NewtonState]] = NewtonState
    hazard: ClassVar[str] = NUMERICAL_HAZARD

    def start(self, clients: Clients, x0: Array) -> NewtonState:
        nothing = array_namespace(x0).zeros_like(x0)
        return self.update(clients, NewtonState(x0, nothing, nothing, 1.0, "gradient"))

    def update(self, clients: Clients, state: NewtonState) -> NewtonState:
        return newton_update("Newton", clients, state, newton_direction)


def newton_direction(clients: Clients, x: Array, g: Array) -> Array:
    """-(Σ_j ∇²f_j(x))⁻¹ g, with a shift at the level of rounding in case the sum is singular."""
    xp = array_namespace(x)
    H = total("Newton", clients.information(x))
    top = float(xp.max(xp.linalg.diagonal(H)))
    shift = 1.0
    if top > 0:
        shift = 4.0 * clients.d * EPS * top
    p: Array = xp.linalg.solve(H + shift * xp.eye(clients.d), -g)
    return p


def newton_update(
    name: str,
    clients: Clients,
    state: NewtonState,
    direction: Callable[[Clients, Array, Array], Array],
) -> NewtonState:
    """One question: the gradient, what ``direction(clients, x, g)`` asks, or the line search."""
    x, g, p, s, phase = state
    xp = array_namespace(x)
    if phase == "gradient":
        return NewtonState(x, total(name, clients.gradient(x)), xp.zeros_like(x), s, "direction")
    if phase == "direction":
        return NewtonState(x, g, direction(clients, x, g), s, "line")
    t = _search(name, clients, x, p, s)
    if t > 0:
        return NewtonState(x + t * p, g, p, t, "gradient")
    # No step goes down: the next search goes on where this one ended.
    return NewtonState(x, g, TRIAL_STEPS[-2] * p, s, "line")


def _search(name: str, clients: Clients, x: Array, p: Array, usual: float) -> float:
    """The t of ``TRIAL_STEPS`` with the least F(x + tp), or 0 if that is not below F(x).

    Of those equal to rounding it is the one nearest to ``usual``.
    """
    xp = array_namespace(x)
    answer = clients.line(x, p, xp.asarray(TRIAL_STEPS, dtype=x.dtype))
    F = total(name, answer)
    F = xp.where(xp.isnan(F), xp.inf, F)
    best = int(xp.argmin(F))
    rounding = 16.0 * EPS * float(xp.sum(xp.abs(answer.rows[:, best])))
    equal = [
        t for t, value in zip(TRIAL_STEPS, F, strict=True) if t > 0 and value <= F[best] + rounding
    ]
    return min(equal, key=lambda t: abs(math.log(t / usual)), default=0.0)
