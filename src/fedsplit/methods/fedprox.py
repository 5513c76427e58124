"""FedProx: local proxes, then the average (§2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.fedgd import AverageState
from fedsplit.methods.method import check_settings, choose_step
from fedsplit.theory import fedsplit_step


@dataclass(frozen=True)
class FedProx:
    """FedProx(s): every client's prox from the average, then the average of those.

    It stops at a wrong point, where Σ_j ∇M_{s f_j}(x) = 0 (Proposition 2): Moreau envelopes M take
    the place of f_j.

    Parameters
    ----------
    step : float, optional
        s. None is 1/√(ℓ*L*), or 1/L* if ℓ* = 0.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    """

    step: float | None = None
    prox: ProxSolver | None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[AverageState]] = AverageState
    hazard: ClassVar[str] = "the local solver is unstable: use ExactProx(), or a smaller inner step"

    def __post_init__(self) -> None:
        check_settings("FedProx", step=self.step, prox=self.prox)

    def start(self, clients: Clients, x0: Array) -> AverageState:
        return AverageState(x0, choose_step(self.step, fedsplit_step, clients, x0))

    def update(self, clients: Clients, state: AverageState) -> AverageState:
        x, s = state
        x_half = clients.prox(x, s, x, self.prox or ExactProx()).rows_or(x)
        return AverageState(array_namespace(x_half).mean(x_half, axis=0), s)
