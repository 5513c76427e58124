"""Scaffnew: a random number of local gradient steps between communications (ProxSkip)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, column_means, zero_rows
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Descend
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.methods.method import StepMethod, extreme_curvature, step_from


class ScaffnewState(NamedTuple):
    """The state of Scaffnew."""

    x: Array  # (d,): the server's x
    h: Array  # (m, d): the control variates h_j as rows; h_j = ∇f_j(x) at a fixed point
    s: float  # the step
    p: float  # the probability of communication after a step
    round: int  # the number of rounds so far


@dataclass(frozen=True)
class Scaffnew(StepMethod[ScaffnewState]):
    """Scaffnew (Mishchenko et al., 2022): gradient steps with control variates.

    A round is what lies between two averages, which come with probability p after each step: a
    geometric number of steps x_j ← x_j - s(∇f_j(x_j) - h_j) from x_j = x, then x ← mean(x_j) and
    h_j ← h_j + (p/s)(x - x_j). The number depends on the seed and the round alone, and is at most
    10/p. Its fixed points minimise F. An absent client stays at x_j = x.

    Parameters
    ----------
    step : float, optional
        s. None is 1/L*.
    probability : float, optional
        p, in (0, 1]. None is 1/√κ with κ = L*/ℓ*, but at least 0.01.
    seed : int
        The random seed of the numbers of local steps.
    """

    step: float | None = None
    probability: float | None = None
    seed: int = 0

    device = "arrays"
    state_type = ScaffnewState
    may_be_zero = ("seed",)
    hazard = "the step is above 2/L*: pass a smaller step"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.probability is not None and self.probability > 1.0:
            raise InputError(f"Scaffnew: probability must be at most 1, not {self.probability!r}")

    def start(self, x0: Array, m: int) -> Dialogue[ScaffnewState]:
        s, p = self.step, self.probability
        if s is None or p is None:
            bounds = yield from extreme_curvature(x0)
            s = s or step_from(bounds, lambda _, L: 1.0 / L)
            p = p or max(0.01, math.sqrt(bounds.ell / bounds.L))  # at most 100 steps on average
        return ScaffnewState(x0, zero_rows(x0, m), s, p, 0)

    def update(self, state: ScaffnewState) -> Dialogue[ScaffnewState]:
        x, h, s, p, k = state
        # A generator per round, so that a run continued from a state draws the same numbers.
        drawn = int(np.random.default_rng([self.seed, k]).geometric(p))
        steps = min(drawn, math.ceil(10 / p))  # with a chance of e⁻¹⁰ it would be longer
        answer: Answer = yield Descend(x, s, steps, -h)
        x_local = answer.rows_or(x)
        x = column_means(x_local)
        return ScaffnewState(x, h + (p / s) * (x - x_local), s, p, k + 1)

    def iterate(self, state: ScaffnewState) -> Array:
        return state.x - state.s * state.h
