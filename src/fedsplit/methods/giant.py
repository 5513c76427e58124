"""GIANT: approximate Newton steps from the clients' local Newton directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import NUMERICAL_HAZARD
from fedsplit.methods.newton import NewtonState, newton_update
from fedsplit.methods.sums import total


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
    state_type: ClassVar[type[NewtonState]] = NewtonState
    hazard: ClassVar[str] = NUMERICAL_HAZARD

    def start(self, clients: Clients, x0: Array) -> NewtonState:
        nothing = array_namespace(x0).zeros_like(x0)
        return self.update(clients, NewtonState(x0, nothing, nothing, 1.0, "gradient"))

    def update(self, clients: Clients, state: NewtonState) -> NewtonState:
        return newton_update("GIANT", clients, state, giant_direction)


def giant_direction(clients: Clients, x: Array, g: Array) -> Array:
    """The mean over the clients of -(m∇²f_j(x))⁻¹ g."""
    return -total("GIANT", clients.direction(x, g)) / clients.m**2
