"""Newton: Newton's method on F from the clients' whole Hessians, with a line search in one question."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.gd import total

STEPS = (*(2.0**k for k in range(4, -27, -1)), 0.0)
"""The candidate steps of a line search. The last is no step."""

RETRY = STEPS[-2]
"""Where no step goes down, the next search is along a direction this much shorter."""

EPS = sys.float_info.epsilon

GRADIENT, DIRECTION, LINE = range(3)


class NewtonState(NamedTuple):
    """The server's x, the gradient g of F, the direction p, the last step s along it, and which question is next.

    p is 0 while the next one is not known, and ``iterate`` is x + p: it stands still only where p is 0.
    """

    x: Array
    g: Array
    p: Array
    s: float
    phase: int

    @property
    def iterate(self) -> Array:
        return self.x + self.p


@dataclass(frozen=True)
class Newton:
    """Newton's method: p = -(Σ_j ∇²f_j(x))⁻¹∇F(x), then x + tp with the best t of a line search.

    An iteration is three rounds: the gradient, the Hessians (d² floats a client), the line search. The first gradient
    is set-up. Every client must answer in every round.
    """

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[NewtonState]] = NewtonState

    @property
    def hazard(self) -> str:
        return "a cost is not convex, or its numbers are beyond float64: check the loss and the scale of the data"

    def start(self, clients: Clients, x0: Array) -> NewtonState:
        return newton_start("Newton", clients, x0)

    def update(self, clients: Clients, state: NewtonState) -> NewtonState:
        return newton_update("Newton", clients, state, newton_direction)


def newton_direction(clients: Clients, x: Array, g: Array) -> Array:
    """-(Σ_j ∇²f_j(x))⁻¹ g, with a shift at the level of rounding that makes a singular sum regular."""
    xp = array_namespace(x)
    H = total("Newton", clients.information(x))
    top = float(xp.max(xp.linalg.diagonal(H)))
    shift = 4.0 * clients.d * EPS * top if top > 0 else 1.0
    p: Array = xp.linalg.solve(H + shift * xp.eye(clients.d), -g)
    return p


def newton_start(name: str, clients: Clients, x0: Array) -> NewtonState:
    """The state with the gradient at x0, before the first direction."""
    xp = array_namespace(x0)
    return NewtonState(x0, total(name, clients.gradient(x0)), xp.zeros_like(x0), 1.0, DIRECTION)


def newton_update(
    name: str,
    clients: Clients,
    state: NewtonState,
    direction: Callable[[Clients, Array, Array], Array],
) -> NewtonState:
    """One question: the gradient, what the direction needs, or the line search."""
    x, g, p, s, phase = state
    xp = array_namespace(x)
    if phase == GRADIENT:
        return NewtonState(x, total(name, clients.gradient(x)), xp.zeros_like(x), s, DIRECTION)
    if phase == DIRECTION:
        return NewtonState(x, g, direction(clients, x, g), s, LINE)
    t = search(name, clients, x, p, s)
    return (
        NewtonState(x + t * p, g, p, t, GRADIENT)
        if t > 0
        else NewtonState(x, g, RETRY * p, s, LINE)
    )


def search(name: str, clients: Clients, x: Array, p: Array, usual: float) -> float:
    """The t of ``STEPS`` with the least F(x + tp); the one nearest to ``usual`` of those equal to rounding."""
    xp = array_namespace(x)
    answer = clients.line(x, p, xp.asarray(STEPS, dtype=x.dtype))
    F = total(name, answer)
    F = xp.where(xp.isnan(F), xp.inf, F)
    best = int(xp.argmin(F))
    rounding = 16.0 * EPS * float(xp.sum(xp.abs(answer.rows[:, best])))
    equal = [t for t, value in zip(STEPS, F, strict=True) if value <= F[best] + rounding]
    return min(
        equal, key=lambda t: abs(math.log(t / usual)) if t > 0 else math.inf, default=0.0
    )  # none: not numbers
