"""Asynchronous FedSplit: Algorithm 1 on every arrival, relaxed (ARock)."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

import fedsplit as fs


def arock_relaxation(m: int, delay: int) -> float:
    """The relaxation η of an asynchronous fixed-point iteration over m blocks, 1/(1 + 2τ/√m).

    ARock (Peng, Xu, Yan and Yin, 2016, Theorem 3) converges below it if the map is nonexpansive, no
    answer is older than ``delay`` = τ arrivals, and the blocks are drawn uniformly.
    """
    return 1.0 / (1.0 + 2.0 * delay / math.sqrt(m))


class RelaxedState(NamedTuple):
    """FedSplit's x, z, s and notes, and who has no question to answer, (m,)."""

    x: NDArray[Any]
    z: NDArray[Any]
    s: float
    notes: tuple[str, ...]
    idle: NDArray[np.bool_]


@dataclass(frozen=True)
class RelaxedFedSplit(fs.Method[RelaxedState]):
    """z_j ← z_j + 2η(prox_{s f_j}(2x' - z_j) - x') on each arrival, with x' of when j was asked.

    η = 1 is Algorithm 1, for which no theory promises convergence when answers arrive one by one.
    ARock converges for η < 1/(1 + 2τ/√m) if no answer is older than τ arrivals, and who answers
    next does not depend on how old its answer is. With a client that takes 100 times as long as the
    others, τ is above the 2m of the default.

    Parameters
    ----------
    step, prox, penalty
        As in ``FedSplit``.
    relaxation : float, optional
        η, in (0, 1]. None is ARock's for τ = 2m.
    """

    step: float | None = None
    prox: fs.local.ProxSolver | None = None
    relaxation: float | None = None
    penalty: fs.Penalty | None = None

    arrivals = True
    state_type = RelaxedState
    hazard = "answers are too old for this relaxation: pass a smaller one"

    def start(self, x0: NDArray[Any], m: int) -> Generator[Any, Any, RelaxedState]:
        waiting = fs.FedSplit(self.step, self.prox, self.penalty)
        begun = yield from waiting.start(x0, m)
        return RelaxedState(begun.x, begun.z, begun.s, begun.notes, np.ones(m, dtype=bool))

    def update(self, state: RelaxedState) -> Generator[Any, Any, RelaxedState]:
        x, z, s, notes, idle = state
        m = len(z)
        eta = arock_relaxation(m, 2 * m) if self.relaxation is None else self.relaxation
        question = fs.questions.Prox(2.0 * x - z, s, x, self.prox or fs.ExactProx())
        arrival: fs.Arrival = yield fs.Post(question, idle)
        asked = cast(fs.questions.Prox, arrival.question)  # perhaps in an earlier round
        moved = z + 2.0 * eta * (arrival.answer.rows - cast(Any, asked.start))
        z = np.where(arrival.answer.present[:, None], moved, z)
        x = z.mean(axis=0)
        if self.penalty is not None:
            x = self.penalty.prox(x, s / m)
        return RelaxedState(x, z, s, notes, arrival.idle)

    def described(self) -> str:
        return "FedSplit, relaxed, on every arrival"

    def iterate(self, state: RelaxedState) -> NDArray[Any]:
        return state.z

    def step_of(self, state: RelaxedState) -> float:
        return state.s

    def subgradient(self, state: RelaxedState) -> NDArray[Any]:
        slope: NDArray[Any] = len(state.z) * (state.z.mean(axis=0) - state.x) / state.s
        return slope

    def notes(self, state: RelaxedState) -> tuple[str, ...]:
        return state.notes
