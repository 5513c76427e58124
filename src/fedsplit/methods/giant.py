"""GIANT: approximate Newton steps from the clients' local Newton directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import EPS, NUMERICAL_HAZARD
from fedsplit.methods.sums import total

TRIAL_STEPS = (*(2.0**k for k in range(4, -27, -1)), 0.0)
"""The candidate steps of a line search; the last is no step."""


class GiantState(NamedTuple):
    """The state of GIANT.

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
class GIANT:
    """Globally improved approximate Newton (Wang et al., 2018).

    p = -(1/m) Σ_j (m∇²f_j(x))⁻¹∇F(x), then a line search. Each m f_j stands for F, so p is close to
    Newton's if the clients are alike and have many more observations than columns; otherwise it is
    only a descent direction. An iteration is three rounds of O(d) floats: the gradient, the local
    directions, the line search. The first gradient is set-up. Every client must answer in every
    round.
    """

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[GiantState]] = GiantState
    hazard: ClassVar[str] = NUMERICAL_HAZARD

    def start(self, clients: Clients, x0: Array) -> GiantState:
        nothing = array_namespace(x0).zeros_like(x0)
        return self.update(clients, GiantState(x0, nothing, nothing, 1.0, "gradient"))

    def update(self, clients: Clients, state: GiantState) -> GiantState:
        x, g, p, s, phase = state
        xp = array_namespace(x)
        if phase == "gradient":
            g = total("GIANT", clients.gradient(x))
            return GiantState(x, g, xp.zeros_like(x), s, "direction")
        if phase == "direction":
            p = -total("GIANT", clients.direction(x, g)) / clients.m**2
            return GiantState(x, g, p, s, "line")
        t = _search(clients, x, p, s)
        if t > 0:
            return GiantState(x + t * p, g, p, t, "gradient")
        # No step goes down: the next search goes on where this one ended.
        return GiantState(x, g, TRIAL_STEPS[-2] * p, s, "line")


def _search(clients: Clients, x: Array, p: Array, usual: float) -> float:
    """The t of ``TRIAL_STEPS`` with the least F(x + tp), or 0 if that is not below F(x).

    Of those equal to rounding it is the one nearest to ``usual``.
    """
    xp = array_namespace(x)
    answer = clients.line(x, p, xp.asarray(TRIAL_STEPS, dtype=x.dtype))
    F = total("GIANT", answer)
    F = xp.where(xp.isnan(F), xp.inf, F)
    best = int(xp.argmin(F))
    rounding = 16.0 * EPS * float(xp.sum(xp.abs(answer.rows[:, best])))
    equal = [
        t for t, value in zip(TRIAL_STEPS, F, strict=True) if t > 0 and value <= F[best] + rounding
    ]
    return min(equal, key=lambda t: abs(math.log(t / usual)), default=0.0)
