"""FedProx: local proxes, then the average (§2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from fedsplit.arrays import Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Prox
from fedsplit.dialogue import Dialogue
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.fedgd import AverageState
from fedsplit.methods.method import StepMethod, choose_step, with_papers_step
from fedsplit.theory import fedsplit_step


@dataclass(frozen=True)
class FedProx(StepMethod[AverageState]):
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

    device = "arrays"
    state_type = AverageState
    hazard = "the local solver is unstable: use ExactProx(), or a smaller inner step"

    def start(self, x0: Array, m: int) -> Dialogue[AverageState]:
        prox = yield from with_papers_step(self.prox, x0)
        s = yield from choose_step(self.step, fedsplit_step, x0)
        return AverageState(x0, s, prox)

    def update(self, state: AverageState) -> Dialogue[AverageState]:
        x, s, prox = state
        answer: Answer = yield Prox(x, s, None, prox or self.prox or ExactProx())
        return AverageState(answer.mean_or(x), s, prox)
