"""FedSplit for convex costs that are not strongly convex: Theorem 2's regularised problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, norms
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Curvature, Gradient
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.method import StepMethod, average, prox_question
from fedsplit.theory import theorem2


class RegularisedState(NamedTuple):
    """FedSplit's state on F_λ = F + (mλ/2)‖x - centre‖²."""

    x: Array  # (d,)
    z: Array  # (m, d)
    s: float  # as in ``FedSplitState``
    lam: float  # λ
    centre: Array  # (d,): the start
    remaining: int  # the rounds still to go


@dataclass(frozen=True)
class RegularisedFedSplit(StepMethod[RegularisedState]):
    """Theorem 2: F(x) - F* ≤ ε, proved, for smooth convex costs with exact proxes.

    Two set-up rounds (L_j, and the gradients at the start) fix λ, s and the number of rounds; the
    run then ends by itself.

    Parameters
    ----------
    eps : float
        ε, the gap to reach.
    radius : float
        D, a bound on the distance from the start to a minimiser; the proof holds only if it is one.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    """

    eps: float
    radius: float
    prox: ProxSolver | None = None

    settles = False
    unanimous = True
    state_type = RegularisedState

    @property
    def hazard(self) -> str:
        return FedSplit(prox=self.prox).hazard

    def start(self, x0: Array, m: int) -> Dialogue[RegularisedState]:
        curvature: Answer = yield Curvature()
        gradient: Answer = yield Gradient(x0)
        if not (curvature.present & gradient.present).all():
            raise InputError(
                "Theorem 2 needs an answer of every client: use FedSplit with participation below 1"
            )
        plan = theorem2(self.eps, self.radius, curvature.rows[:, 1], norms(gradient.rows))
        z = np.tile(x0, (m, 1))
        return RegularisedState(x0, z, plan.s, plan.lam, x0, plan.rounds)

    def update(self, state: RegularisedState) -> Dialogue[RegularisedState | None]:
        x, z, s, lam, centre, remaining = state
        if remaining == 0:
            return None
        v = 2.0 * x - z
        # Algorithm 1 on f_j + (λ/2)‖· - x¹‖², whose prox is one of f_j at other arguments:
        # prox_s(v) = prox_{s' f_j}((v + sλx¹)/(1 + sλ)) with s' = s/(1 + sλ).
        shrink = 1.0 / (1.0 + s * lam)
        question = prox_question(self.prox, shrink * (v + s * lam * centre), shrink * s, x, z)
        # a solver that starts at the argument starts at that of Algorithm 1
        start = v if question.start is None else question.start
        answer: Answer = yield replace(question, start=start)
        z = z + 2.0 * (answer.rows_or(x) - x)
        return RegularisedState(average(z, s, None), z, s, lam, centre, remaining - 1)

    def iterate(self, state: RegularisedState) -> Array:
        return state.z
