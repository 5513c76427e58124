"""FedGD: local gradient steps, then the average (§2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import check_settings, choose_step
from fedsplit.theory import fedgd_step


class AverageState(NamedTuple):
    """The server's average x, (d,), and the step s."""

    x: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.x


@dataclass(frozen=True)
class FedGD:
    """FedGD(s, e): e gradient steps at every client from the average, then the average of those.

    With e > 1 it stops at a wrong point, where Σ_j Σ_i ∇f_j(G_j^{i-1}(x)) = 0 (Proposition 1)
    instead of Σ_j ∇f_j(x) = 0.

    Parameters
    ----------
    step : float, optional
        s. None is 2/(ℓ* + L*), or 1/L* if ℓ* = 0.
    local_steps : int
        e.
    """

    step: float | None = None
    local_steps: int = 1

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[AverageState]] = AverageState
    hazard: ClassVar[str] = "the step is above 2/L*: pass a smaller step"

    def __post_init__(self) -> None:
        check_settings("FedGD", step=self.step)
        count("FedGD: local_steps", self.local_steps)

    def start(self, clients: Clients, x0: Array) -> AverageState:
        return AverageState(x0, choose_step(self.step, fedgd_step, clients, x0))

    def update(self, clients: Clients, state: AverageState) -> AverageState:
        x, s = state
        x_half = clients.descend(x, s, self.local_steps).rows_or(x)
        return AverageState(array_namespace(x_half).mean(x_half, axis=0), s)
