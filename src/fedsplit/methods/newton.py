"""Newton's method on F from the clients' Hessians, one question per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.information import (
    FedSplitInformation,
    InformationState,
    check_size,
)
from fedsplit.methods.method import NUMERICAL_HAZARD
from fedsplit.methods.sums import complete


@dataclass(frozen=True)
class Newton:
    """Newton's method: x⁺ = x - (Σ_j ∇²f_j(x))⁻¹∇F(x), as DataSHIELD does it.

    It is ``FedSplitInformation`` with clients that stay at x: one question per step brings F, its
    gradient and its Hessian, and F on the way from the point before, for a line search if it has
    risen. Every client must answer in every round.
    """

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[InformationState]] = InformationState
    hazard: ClassVar[str] = NUMERICAL_HAZARD

    def start(self, clients: Clients, x0: Array) -> InformationState:
        check_size("Newton", clients)
        return FedSplitInformation().start(clients, x0)._replace(still=True)

    def update(self, clients: Clients, state: InformationState) -> InformationState:
        method = FedSplitInformation()
        answer = method.ask(clients, state)
        complete("Newton", answer)
        return method.after(state, answer)._replace(still=True)
