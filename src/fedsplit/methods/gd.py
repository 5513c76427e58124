"""GD: gradient descent on F, one gradient per client and round; AGD, with momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Evaluate, Gradient
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import (
    FirstOrder,
    StepMethod,
    evaluated,
    total,
    total_curvature,
)
from fedsplit.penalties.penalty import Penalty, prox_or_same
from fedsplit.theory import fedgd_step


class GDState(NamedTuple):
    """The state of GD, and of AGD."""

    # (d,): the server's x, and a subgradient of the penalty there (0 without one)
    x: Array
    subgradient: Array
    y: Array  # (d,): where gradients are asked for: x, from which AGD extrapolates
    s: float  # the step
    known: FirstOrder | None = None  # F and its gradient at y, where the step is searched for
    theta: float = 1.0  # Nesterov's θ ≥ 1, in AGD


@dataclass(frozen=True)
class GD(StepMethod[GDState]):
    """Gradient descent: x ← x - s Σ_j ∇f_j(x).

    With a penalty g it is proximal gradient descent, x ← prox_{sg}(x - s Σ_j ∇f_j(x)). Every client
    must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 2/(Σℓ_j + ΣL_j), or 1/ΣL_j if Σℓ_j = 0. If some L_j has no bound that holds for
        every x, s is searched for, from 1/ΣL_j at the start: a step with
        F(x⁺) > F(x) + ⟨∇F(x), x⁺ - x⟩ + ‖x⁺ - x‖²/(2s) is refused, and s halved. Each trial is one
        question.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    growth : float
        The factor of s after a step that was taken: F may be less curved farther on. At 1.25 about
        one trial in four is refused.
    """

    step: float | None = None
    penalty: Penalty | None = None
    growth: float = 1.25

    unanimous = True
    device = "sums"
    state_type = GDState
    hazard = "the step is above 2/L of the sum F: pass a smaller step"

    def __post_init__(self) -> None:
        super().__post_init__()
        number(f"{self._name}: growth", self.growth, least=1.0, strict=False)

    def start(self, x0: Array, m: int) -> Dialogue[GDState]:
        s, everywhere = self.step, True
        if s is None:
            bounds = yield from total_curvature(self._name, x0)
            everywhere = bounds.everywhere
            s = self._first_step(bounds.ell, bounds.L) if everywhere else 1.0 / bounds.L
        x = prox_or_same(self.penalty, x0, s)
        known = None if everywhere else (yield from evaluated(self._name, x))
        return GDState(x, (x0 - x) / s, x, s, known)

    def update(self, state: GDState) -> Dialogue[GDState]:
        known = state.known
        if known is None:
            return self._after(state, total(self._name, (yield Gradient(state.y))))
        after = self._after(state, known.g)
        # F(x⁺) comes with the gradient for the step after it, so that each trial is one question
        apart = after.y is not after.x
        answer: Answer = yield Evaluate(after.y, after.x if apart else None, margin=True)
        ahead = FirstOrder(float(total(self._name, answer)), answer.parts["gradient"].sum(axis=0))
        F = float(answer.parts["value_at_trial"].sum()) if apart else ahead.F
        finite = np.isfinite(ahead.F) and np.isfinite(ahead.g).all()
        if finite and known.bounds(F, after.x - state.y, state.s):
            return after._replace(s=self.growth * state.s, known=ahead)
        return state._replace(s=0.5 * state.s, theta=1.0)

    _first_step = staticmethod(fedgd_step)  # s, by ℓ and L of F that hold everywhere

    def _after(self, state: GDState, gradient: Array) -> GDState:
        """The state after a step with this gradient at y."""
        v = state.y - state.s * gradient
        x = prox_or_same(self.penalty, v, state.s)
        # by the optimality of x, (v - x)/s is a subgradient of the penalty there
        return GDState(x, (v - x) / state.s, x, state.s)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def iterate(self, state: GDState) -> Array:
        return state.y

    def smooth_value(self, state: GDState) -> float:
        return math.nan if state.known is None else state.known.F

    def subgradient(self, state: GDState) -> Array:
        return state.subgradient


@dataclass(frozen=True)
class AGD(GD):
    """Accelerated gradient descent with adaptive restart, gradient scheme.

    x⁺ = y - s∇F(y), then y⁺ = x⁺ + (θ - 1)/θ⁺ · (x⁺ - x); θ starts at 1 again if
    ⟨∇F(y), x⁺ - x⟩ > 0 (O'Donoghue and Candès, 2015). Strong convexity need not be known. With a
    penalty g it is FISTA: x⁺ = prox_{sg}(y - s∇F(y)), and (y - x⁺)/s takes the place of ∇F(y) in
    the test. Every client must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 1/ΣL_j. If some L_j has no bound that holds for every x, s is searched for as in
        ``GD``, and the momentum is forgotten where a step is refused.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    growth : float
        The factor of s after a step that was taken. It is close to 1, as Nesterov's argument wants
        steps that do not grow.
    """

    growth: float = 1.05

    hazard = "the step is above 1/L of the sum F: pass a smaller step"

    _first_step = staticmethod(lambda ell, L: 1.0 / L)

    def _after(self, state: GDState, gradient: Array) -> GDState:
        after = super()._after(state, gradient)
        move = after.x - state.x
        uphill = (gradient + after.subgradient) @ move > 0
        theta = 1.0 if uphill else state.theta
        theta_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * theta**2))
        return after._replace(y=after.x + (theta - 1.0) / theta_next * move, theta=theta_next)
