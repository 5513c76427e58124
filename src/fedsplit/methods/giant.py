"""GIANT: approximate Newton steps from the clients' local Newton directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.gd import total
from fedsplit.methods.newton import NewtonState, newton_start, newton_update


@dataclass(frozen=True)
class GIANT:
    """Globally improved approximate Newton (Wang et al., 2018): p = -(1/m) Σ_j (m∇²f_j(x))⁻¹∇F(x), then a line search.

    Each m f_j stands for F, so p is near Newton's where the clients are alike and have many more observations than
    columns; elsewhere it is only a direction of descent. An iteration is three rounds of O(d) floats: the gradient, the
    local directions, the line search. The first gradient is set-up. Every client must answer in every round.
    """

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[NewtonState]] = NewtonState

    @property
    def hazard(self) -> str:
        return "a cost is not convex, or its numbers are beyond float64: check the loss and the scale of the data"

    def start(self, clients: Clients, x0: Array) -> NewtonState:
        return newton_start("GIANT", clients, x0)

    def update(self, clients: Clients, state: NewtonState) -> NewtonState:
        return newton_update("GIANT", clients, state, giant_direction)


def giant_direction(clients: Clients, x: Array, g: Array) -> Array:
    """The mean over the clients of -(m∇²f_j(x))⁻¹ g."""
    return -total("GIANT", clients.direction(x, g)) / clients.m**2
