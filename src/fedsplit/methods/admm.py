"""ADMM: the alternating direction method of multipliers on the clients' agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.arrays import Array, namespace
from fedsplit.clients.question import Answer
from fedsplit.dialogue import Dialogue
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.method import (
    StepMethod,
    average,
    choose_step,
    prox_question,
    subgradient_of_average,
)
from fedsplit.penalties.penalty import Penalty, prox_or_same
from fedsplit.theory import fedsplit_step


class ADMMState(NamedTuple):
    """The server's x, (d,), the scaled multipliers u_j as rows of u, (m, d), and the step s.

    At a fixed point u_j = -s∇f_j(x).
    """

    x: Array
    u: Array
    s: float


@dataclass(frozen=True)
class ADMM(StepMethod[ADMMState]):
    """Consensus ADMM (Boyd et al., 2011, §7.1), whose ρ is 1/s.

    Its fixed points minimise F for every s > 0. It is FedSplit with half the centring step:
    Douglas-Rachford instead of Peaceman-Rachford splitting. The multiplier of an absent client
    changes only by the change of x. A penalty's prox follows the average, as in FedSplit (§7.1.1).

    Parameters
    ----------
    step : float, optional
        s. None is 1/√(ℓ*L*), or 1/L* if ℓ* = 0.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    prox: ProxSolver | None = None
    penalty: Penalty | None = None

    device = "arrays"
    state_type = ADMMState
    hazard = "the local solver is too inexact: use ExactProx(), or more inner steps"

    def start(self, x0: Array, m: int) -> Dialogue[ADMMState]:
        s = yield from choose_step(self.step, fedsplit_step, x0)
        x = prox_or_same(self.penalty, x0, s / m)
        return ADMMState(x, namespace(x0).tile(x0 - x, (m, 1)), s)

    def update(self, state: ADMMState) -> Dialogue[ADMMState]:
        x, u, s = state
        answer: Answer = yield prox_question(self.prox, x - u, s, x, x + u)
        x_local = answer.rows_or(x)
        x = average(x_local + u, s, self.penalty)
        return ADMMState(x, u + x_local - x, s)

    def iterate(self, state: ADMMState) -> Array:
        return state.x + state.u

    def subgradient(self, state: ADMMState) -> Array:
        return subgradient_of_average(state.x, self.iterate(state), state.s)
