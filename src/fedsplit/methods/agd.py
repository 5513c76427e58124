"""AGD: Nesterov's accelerated gradient method on F, restarted when the momentum points uphill."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsplit.arrays import Array
from fedsplit.methods.gd import GD, GDState
from fedsplit.methods.method import CurvatureBounds


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

    def _first_step(self, bounds: CurvatureBounds) -> float:
        return 1.0 / bounds.L

    def _after(self, state: GDState, gradient: Array) -> GDState:
        after = super()._after(state, gradient)
        move = after.x - state.x
        theta = state.theta
        if (gradient + after.subgradient) @ move > 0:  # the momentum points uphill
            theta = 1.0
        theta_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * theta**2))
        return after._replace(y=after.x + (theta - 1.0) / theta_next * move, theta=theta_next)
