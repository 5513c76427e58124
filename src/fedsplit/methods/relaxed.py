"""Asynchronous FedSplit: Algorithm 1 on every arrival, relaxed (ARock)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.checks import number
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Prox
from fedsplit.errors import InputError
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.asynchronous import next_arrival, post_first
from fedsplit.methods.fedsplit import FedSplitState
from fedsplit.methods.method import average, check_settings, choose_step
from fedsplit.penalties.penalty import Penalty
from fedsplit.theory import arock_relaxation, fedsplit_step


@dataclass(frozen=True)
class RelaxedFedSplit:
    """z_j ← z_j + 2η(prox_{s f_j}(2x' - z_j) - x') on each arrival, with x' of when j was asked.

    η = 1 is Algorithm 1, for which no theory promises convergence when answers arrive one by one.
    ARock (Peng, Xu, Yan and Yin, 2016) converges for η < 1/(1 + 2τ/√m) if no answer is older than
    τ arrivals, and who answers next does not depend on how old its answer is. With a client that
    takes 100 times as long as the others, τ is above the 2m of the default.

    Parameters
    ----------
    step : float, optional
        s, as in ``FedSplit.plain``.
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

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[FedSplitState]] = FedSplitState
    hazard: ClassVar[str] = "answers are too old for this relaxation: pass a smaller one"

    def __post_init__(self) -> None:
        check_settings("RelaxedFedSplit", self.step, self.prox, self.penalty)
        if self.relaxation is not None and number("relaxation", self.relaxation) > 1.0:
            raise InputError(f"relaxation must be at most 1, not {self.relaxation!r}")

    def start(self, clients: Clients, x0: Array) -> FedSplitState:
        s = choose_step(self.step, fedsplit_step, clients, x0)
        z = np.tile(x0, (clients.m, 1))
        return post_first(self, clients, FedSplitState(average(z, s, self.penalty), z, s))

    def update(self, clients: Clients, state: FedSplitState) -> FedSplitState:
        return next_arrival(self, clients, state)

    def question(self, state: FedSplitState) -> CostQuestion:
        x, z, s = state
        return Prox(2.0 * x - z, s, x, self.prox or ExactProx())

    def useful(self, state: FedSplitState) -> Mask:
        everyone: Mask = np.ones(len(state.z), dtype=bool)
        return everyone

    def absorb(self, state: FedSplitState, question: Any, answer: Answer) -> FedSplitState:
        z = state.z
        eta = self.relaxation
        if eta is None:
            eta = arock_relaxation(len(z), 2 * len(z))
        moved = z + 2.0 * eta * (answer.rows - question.start)
        z = np.where(answer.present[:, None], moved, z)
        return FedSplitState(average(z, state.s, self.penalty), z, state.s)
