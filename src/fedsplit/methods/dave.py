"""Asynchronous gradient descent, with a step that does not depend on the delays (DAve-PG)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Gradient
from fedsplit.methods.asynchronous import next_arrival, post_first
from fedsplit.methods.fedsplit import FedSplitState
from fedsplit.methods.method import average, check_settings, choose_step
from fedsplit.penalties.penalty import Penalty
from fedsplit.theory import fedgd_step


@dataclass(frozen=True)
class DAvePG:
    """DAve-PG (Mishchenko, Iutzeler, Malick and Amini, 2018): gradient steps of any age.

    Client j was last asked about x_j, and z_j = x_j - s∇f_j(x_j). The server's x is
    prox_{(s/m)g}(mean z). With s ≤ 2/(ℓ* + L*) each x_j ↦ z_j is a contraction by 1 - sℓ*, so
    that max_j ‖z_j - z_j*‖ falls by that factor each time that every client has answered a question
    asked after the last fall: the limit is the optimum for every delay, and the step the same.

    Parameters
    ----------
    step : float, optional
        s. None is 2/(ℓ* + L*), or 1/L* if ℓ* = 0.
    penalty : Penalty, optional
    """

    step: float | None = None
    penalty: Penalty | None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[FedSplitState]] = FedSplitState
    hazard: ClassVar[str] = "the step is above 2/L*: pass a smaller step"

    def __post_init__(self) -> None:
        check_settings("DAvePG", step=self.step, penalty=self.penalty)

    def start(self, clients: Clients, x0: Array) -> FedSplitState:
        s = choose_step(self.step, fedgd_step, clients, x0)
        z = np.tile(x0, (clients.m, 1))
        return post_first(self, clients, FedSplitState(average(z, s, self.penalty), z, s))

    def update(self, clients: Clients, state: FedSplitState) -> FedSplitState:
        return next_arrival(self, clients, state)

    def question(self, state: FedSplitState) -> CostQuestion:
        return Gradient(state.x)

    def useful(self, state: FedSplitState) -> Mask:
        everyone: Mask = np.ones(len(state.z), dtype=bool)
        return everyone

    def absorb(self, state: FedSplitState, question: Any, answer: Answer) -> FedSplitState:
        moved = question.x - state.s * answer.rows
        z = np.where(answer.present[:, None], moved, state.z)
        return FedSplitState(average(z, state.s, self.penalty), z, state.s)
