"""FedDyn: local minimisation with a regulariser that moves towards agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.arrays import Array, column_means, zero_rows
from fedsplit.clients.question import Answer
from fedsplit.dialogue import Dialogue
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.method import StepMethod, choose_step, prox_question
from fedsplit.theory import fedsplit_step


class FedDynState(NamedTuple):
    """The server's x, (d,), the clients' gradients g_j as rows of g, (m, d), and s = 1/α.

    At a fixed point g_j = ∇f_j(x).
    """

    x: Array
    g: Array
    s: float


@dataclass(frozen=True)
class FedDyn(StepMethod[FedDynState]):
    """Federated learning with dynamic regularisation (Acar et al., 2021).

    θ_j = argmin f_j(θ) - ⟨g_j, θ⟩ + (α/2)‖θ - x‖² = prox_{s f_j}(x + s g_j), then
    g_j ← g_j - α(θ_j - x) = ∇f_j(θ_j) and x ← mean(θ_j) - s mean(g_j): the paper's h is mean(g_j).
    Its fixed points minimise F. An absent client does not move.

    Parameters
    ----------
    alpha : float, optional
        α. None is √(ℓ*L*), or L* if ℓ* = 0.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    """

    alpha: float | None = None
    prox: ProxSolver | None = None

    device = "arrays"
    state_type = FedDynState
    hazard = (
        "alpha is too small, or the local solver too inexact: pass a larger alpha, use ExactProx()"
    )

    def start(self, x0: Array, m: int) -> Dialogue[FedDynState]:
        given = None if self.alpha is None else 1.0 / self.alpha
        s = yield from choose_step(given, fedsplit_step, x0)
        return FedDynState(x0, zero_rows(x0, m), s)

    def update(self, state: FedDynState) -> Dialogue[FedDynState]:
        x, g, s = state
        # FedDyn has no z_j: a solver that would start at the iterate starts at x.
        answer: Answer = yield prox_question(self.prox, x + s * g, s, x, x)
        theta = answer.rows_or(x)
        g = g - (theta - x) / s
        return FedDynState(column_means(theta - s * g), g, s)

    def iterate(self, state: FedDynState) -> Array:
        return state.x + state.s * state.g
