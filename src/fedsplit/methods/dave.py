"""Asynchronous gradient descent, with a step that does not depend on the delays (DAve-PG)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.effects import Arrival, Post
from fedsplit.clients.questions import Gradient
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import (
    StepMethod,
    average,
    choose_step,
    subgradient_of_average,
)
from fedsplit.penalties.penalty import Penalty
from fedsplit.theory import fedgd_step


class ArrivalState(NamedTuple):
    """What the server of an asynchronous method knows."""

    x: Array  # (d,)
    z: Array  # (m, d): what each client's last answer has made of its row
    s: float  # the step
    idle: Mask  # (m,): who has nothing to do


@dataclass(frozen=True)
class DAvePG(StepMethod[ArrivalState]):
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

    arrivals = True
    state_type = ArrivalState
    hazard = "the step is above 2/L*: pass a smaller step"

    def start(self, x0: Array, m: int) -> Dialogue[ArrivalState]:
        s = yield from choose_step(self.step, fedgd_step, x0)
        z = np.tile(x0, (m, 1))
        return ArrivalState(average(z, s, self.penalty), z, s, np.ones(m, dtype=bool))

    def update(self, state: ArrivalState) -> Dialogue[ArrivalState]:
        x, z, s, idle = state
        # who has nothing to do is asked about the x of now; the others still answer an older one
        arrival: Arrival = yield Post(Gradient(x), idle)
        answer = arrival.answer
        moved = cast(Gradient, arrival.question).x - s * answer.rows
        z = np.where(answer.present[:, None], moved, z)
        return ArrivalState(average(z, s, self.penalty), z, s, arrival.idle)

    def iterate(self, state: ArrivalState) -> Array:
        return state.z

    def subgradient(self, state: ArrivalState) -> Array:
        return subgradient_of_average(state.x, state.z, state.s)
