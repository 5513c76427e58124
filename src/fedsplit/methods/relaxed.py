"""Asynchronous FedSplit: Algorithm 1 on every arrival, relaxed (ARock)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.clients.effects import Arrival, Post
from fedsplit.clients.questions import Prox
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.dave import ArrivalState
from fedsplit.methods.method import (
    Method,
    average,
    check_settings,
    choose_step,
    subgradient_of_average,
)
from fedsplit.penalties.penalty import Penalty
from fedsplit.theory import arock_relaxation, fedsplit_step


@dataclass(frozen=True)
class RelaxedFedSplit(Method[ArrivalState]):
    """z_j ← z_j + 2η(prox_{s f_j}(2x' - z_j) - x') on each arrival, with x' of when j was asked.

    η = 1 is Algorithm 1, for which no theory promises convergence when answers arrive one by one.
    ARock (Peng, Xu, Yan and Yin, 2016) converges for η < 1/(1 + 2τ/√m) if no answer is older than
    τ arrivals, and who answers next does not depend on how old its answer is. With a client that
    takes 100 times as long as the others, τ is above the 2m of the default.

    Parameters
    ----------
    step : float, optional
        s, as in ``FedSplit``.
    prox : ProxSolver, optional
        None is ``ExactProx()``.
    relaxation : float, optional
        η, in (0, 1]. None is ARock's for τ = 2m.
    penalty : Penalty, optional
    """

    step: float | None = None
    prox: ProxSolver | None = None
    relaxation: float | None = None
    penalty: Penalty | None = None

    arrivals = True
    state_type = ArrivalState
    hazard = "answers are too old for this relaxation: pass a smaller one"

    def __post_init__(self) -> None:
        check_settings("RelaxedFedSplit", self.step, self.prox, self.penalty)
        if self.relaxation is not None and number("relaxation", self.relaxation) > 1.0:
            raise InputError(f"relaxation must be at most 1, not {self.relaxation!r}")

    def start(self, x0: Array, m: int) -> Dialogue[ArrivalState]:
        s = yield from choose_step(self.step, fedsplit_step, x0)
        z = np.tile(x0, (m, 1))
        return ArrivalState(average(z, s, self.penalty), z, s, np.ones(m, dtype=bool))

    def update(self, state: ArrivalState) -> Dialogue[ArrivalState]:
        x, z, s, idle = state
        m = len(z)
        eta = arock_relaxation(m, 2 * m) if self.relaxation is None else self.relaxation
        question = Prox(2.0 * x - z, s, x, self.prox or ExactProx())
        arrival: Arrival = yield Post(question, idle)
        asked = cast(Prox, arrival.question)
        moved = z + 2.0 * eta * (arrival.answer.rows - cast(Array, asked.start))
        z = np.where(arrival.answer.present[:, None], moved, z)
        return ArrivalState(average(z, s, self.penalty), z, s, arrival.idle)

    def iterate(self, state: ArrivalState) -> Array:
        return state.z

    def step_of(self, state: ArrivalState) -> float:
        return state.s

    def subgradient(self, state: ArrivalState) -> Array:
        return subgradient_of_average(state.x, state.z, state.s)
