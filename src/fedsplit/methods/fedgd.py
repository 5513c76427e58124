"""FedGD: local gradient steps, then the average (§2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.arrays import Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Descend
from fedsplit.dialogue import Dialogue
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.method import StepMethod, choose_step
from fedsplit.theory import fedgd_step


class AverageState(NamedTuple):
    """The server's average x, (d,), the step s, and a local solver that depends on all clients."""

    x: Array
    s: float
    prox: ProxSolver | None = None


@dataclass(frozen=True)
class FedGD(StepMethod[AverageState]):
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

    device = "arrays"
    state_type = AverageState
    hazard = "the step is above 2/L*: pass a smaller step"

    def start(self, x0: Array, m: int) -> Dialogue[AverageState]:
        s = yield from choose_step(self.step, fedgd_step, x0)
        return AverageState(x0, s)

    def update(self, state: AverageState) -> Dialogue[AverageState]:
        x, s, _ = state
        answer: Answer = yield Descend(x, s, self.local_steps)
        return AverageState(answer.mean_or(x), s)
