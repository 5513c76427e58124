"""GD: gradient descent on F, one gradient per client and round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.questions import Gradient
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import Method, check_settings
from fedsplit.methods.sums import Known, curvatures, evaluated, total
from fedsplit.penalties.penalty import Penalty, prox_or_same
from fedsplit.theory import fedgd_step


class GDState(NamedTuple):
    """The state of GD.

    Attributes
    ----------
    x, subgradient : (d,) arrays
        The server's x, and a subgradient of the penalty there (0 without one).
    s : float
        The step.
    known : Known or None
        F and its gradient at x, where the step is searched for.
    """

    x: Array
    subgradient: Array
    s: float
    known: Known | None = None


@dataclass(frozen=True)
class GD(Method[GDState]):
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
        check_settings("GD", step=self.step, penalty=self.penalty)

    def start(self, x0: Array, m: int) -> Dialogue[GDState]:
        s = self.step
        everywhere = True
        if s is None:
            rows, everywhere = yield from curvatures("GD", x0)
            ell, L = rows.sum(axis=0).tolist()
            s = fedgd_step(ell, L) if everywhere else 1.0 / L
        x = prox_or_same(self.penalty, x0, s)
        known = None if everywhere else (yield from evaluated("GD", x))
        return GDState(x, (x0 - x) / s, s, known)

    def update(self, state: GDState) -> Dialogue[GDState]:
        x, _, s, known = state
        g = total("GD", (yield Gradient(x))) if known is None else known.g
        v = x - s * g
        ahead = prox_or_same(self.penalty, v, s)
        slope = (v - ahead) / s  # by the optimality of ahead, a subgradient of the penalty there
        if known is None:
            return GDState(ahead, slope, s)
        after = yield from evaluated("GD", ahead)
        if known.bounds(after.F, ahead - x, s) and np.isfinite(after.g).all():
            return GDState(ahead, slope, self.growth * s, after)
        return state._replace(s=0.5 * s)

    def asked_about(self, state: GDState) -> Array:
        if state.known is None:
            return state.x
        return prox_or_same(self.penalty, state.x - state.s * state.known.g, state.s)

    def smooth_value(self, state: GDState) -> float:
        return math.nan if state.known is None else state.known.F

    def subgradient(self, state: GDState) -> Array:
        return state.subgradient

    def step_of(self, state: GDState) -> float:
        return state.s
