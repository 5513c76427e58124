"""GD: gradient descent on F, one gradient per client and round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.arrays import Array
from fedsplit.clients.questions import Gradient
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import Method, check_settings
from fedsplit.methods.sums import curvatures, total
from fedsplit.penalties.penalty import Penalty, prox_or_same
from fedsplit.theory import fedgd_step


class GDState(NamedTuple):
    """The server's x, a subgradient of the penalty there (0 without one), both (d,), and s."""

    x: Array
    subgradient: Array
    s: float


@dataclass(frozen=True)
class GD(Method[GDState]):
    """Gradient descent: x ← x - s Σ_j ∇f_j(x).

    With a penalty g it is proximal gradient descent, x ← prox_{sg}(x - s Σ_j ∇f_j(x)). Every client
    must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 2/(Σℓ_j + ΣL_j), or 1/ΣL_j if Σℓ_j = 0. If some L_j has no bound that holds for
        every x, the curvature at the start is used, and the step may be too large elsewhere.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    penalty: Penalty | None = None

    unanimous = True
    device = "sums"
    state_type = GDState
    hazard = "the step is above 2/L of the sum F: pass a smaller step"

    def __post_init__(self) -> None:
        check_settings("GD", step=self.step, penalty=self.penalty)

    def start(self, x0: Array, m: int) -> Dialogue[GDState]:
        s = self.step
        if s is None:
            ell, L = (yield from curvatures("GD", x0)).sum(axis=0).tolist()
            s = fedgd_step(ell, L)
        x = prox_or_same(self.penalty, x0, s)
        return GDState(x, (x0 - x) / s, s)

    def update(self, state: GDState) -> Dialogue[GDState]:
        x, _, s = state
        v = x - s * total("GD", (yield Gradient(x)))
        x = prox_or_same(self.penalty, v, s)
        return GDState(x, (v - x) / s, s)  # by its optimality, (v - x)/s is a subgradient of g

    def subgradient(self, state: GDState) -> Array:
        return state.subgradient

    def step_of(self, state: GDState) -> float:
        return state.s
