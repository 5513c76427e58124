"""AGD: Nesterov's accelerated gradient method on F, restarted when the momentum points uphill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Evaluate, Gradient
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import Method, check_settings
from fedsplit.methods.sums import Known, curvatures, evaluated, total
from fedsplit.penalties.penalty import Penalty, prox_or_same


class AGDState(NamedTuple):
    """The state of AGD.

    Attributes
    ----------
    x : (d,) array
        The server's x.
    y : (d,) array
        The extrapolated point at which gradients are asked.
    subgradient : (d,) array
        A subgradient of the penalty at x; 0 without one.
    theta : float
        Nesterov's θ ≥ 1.
    s : float
        The step.
    known : Known or None
        F and its gradient at y, where the step is searched for.
    """

    x: Array
    y: Array
    subgradient: Array
    theta: float
    s: float
    known: Known | None = None


@dataclass(frozen=True)
class AGD(Method[AGDState]):
    """Accelerated gradient descent with adaptive restart, gradient scheme.

    x⁺ = y - s∇F(y), then y⁺ = x⁺ + (θ - 1)/θ⁺ · (x⁺ - x); θ starts at 1 again if
    ⟨∇F(y), x⁺ - x⟩ > 0 (O'Donoghue and Candès, 2015). Strong convexity need not be known. With a
    penalty g it is FISTA: x⁺ = prox_{sg}(y - s∇F(y)), and (y - x⁺)/s takes the place of ∇F(y) in
    the test. Every client must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 1/ΣL_j. If some L_j has no bound that holds for every x, s is searched for, from
        1/ΣL_j at the start: a step with F(x⁺) > F(y) + ⟨∇F(y), x⁺ - y⟩ + ‖x⁺ - y‖²/(2s) is refused,
        s halved, and the momentum forgotten. F(x⁺) comes with the gradient at y⁺, so that each
        trial is one question.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    growth : float
        The factor of s after a step that was taken. It is close to 1, as Nesterov's argument wants
        steps that do not grow.
    """

    step: float | None = None
    penalty: Penalty | None = None
    growth: float = 1.05

    unanimous = True
    device = "sums"
    state_type = AGDState
    hazard = "the step is above 1/L of the sum F: pass a smaller step"

    def __post_init__(self) -> None:
        check_settings("AGD", step=self.step, penalty=self.penalty)

    def start(self, x0: Array, m: int) -> Dialogue[AGDState]:
        s = self.step
        everywhere = True
        if s is None:
            bounds, everywhere = yield from curvatures("AGD", x0)
            s = 1.0 / float(bounds[:, 1].sum())
        x = prox_or_same(self.penalty, x0, s)
        known = None if everywhere else (yield from evaluated("AGD", x))
        return AGDState(x, x, (x0 - x) / s, 1.0, s, known)

    def update(self, state: AGDState) -> Dialogue[AGDState]:
        known = state.known
        if known is None:
            return self._after(state, total("AGD", (yield Gradient(state.y))))
        after = self._after(state, known.g)
        answer: Answer = yield Evaluate(after.y, after.x, margin=True)
        F = float(total("AGD", answer))
        gradient = answer.parts["gradient"].sum(axis=0)
        falls = known.bounds(
            float(answer.parts["value_at_trial"].sum()), after.x - state.y, state.s
        )
        if falls and np.isfinite(F) and np.isfinite(gradient).all():
            return after._replace(s=self.growth * state.s, known=Known(F, gradient))
        return state._replace(s=0.5 * state.s, theta=1.0)

    def _after(self, state: AGDState, gradient: Array) -> AGDState:
        """The state after a step with this gradient at y."""
        x, y, _, theta, s, _ = state
        v = y - s * gradient
        x_next = prox_or_same(self.penalty, v, s)
        subgradient = (v - x_next) / s
        if (gradient + subgradient) @ (x_next - x) > 0:
            theta = 1.0
        theta_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * theta**2))
        y_next = x_next + (theta - 1.0) / theta_next * (x_next - x)
        return AGDState(x_next, y_next, subgradient, theta_next, s)

    def asked_about(self, state: AGDState) -> Array:
        return state.y if state.known is None else self._after(state, state.known.g).y

    def iterate(self, state: AGDState) -> Array:
        return state.y

    def subgradient(self, state: AGDState) -> Array:
        return state.subgradient

    def step_of(self, state: AGDState) -> float:
        return state.s
