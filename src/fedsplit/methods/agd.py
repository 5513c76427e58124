"""AGD: Nesterov's accelerated gradient method on F, restarted when the momentum points uphill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.gd import pooled_curvature, total
from fedsplit.methods.method import check_step


class AGDState(NamedTuple):
    """The server's x, the extrapolated y at which gradients are asked, Nesterov's θ ≥ 1 and the step."""

    x: Array
    y: Array
    theta: float
    s: float

    @property
    def iterate(self) -> Array:
        return self.y


@dataclass(frozen=True)
class AGD:
    """Accelerated gradient descent with adaptive restart, gradient scheme (O'Donoghue and Candès, 2015).

    x⁺ = y - s∇F(y), then y⁺ = x⁺ + (θ - 1)/θ⁺ · (x⁺ - x); θ starts at 1 again where ⟨∇F(y), x⁺ - x⟩ > 0. Strong
    convexity need not be known. Every client must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 1/ΣL_j. Where some L_j is not known for every x, the curvature at the start stands in, and the
        step may be too large elsewhere.
    """

    step: float | None = None

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[AGDState]] = AGDState

    def __post_init__(self) -> None:
        check_step("AGD", self.step)

    @property
    def hazard(self) -> str:
        return "the step is above 1/L of the sum F: pass a smaller step"

    def start(self, clients: Clients, x0: Array) -> AGDState:
        s = 1.0 / pooled_curvature("AGD", clients, x0)[1] if self.step is None else self.step
        return AGDState(x0, x0, 1.0, s)

    def update(self, clients: Clients, state: AGDState) -> AGDState:
        x, y, theta, s = state
        xp = array_namespace(x)
        g = total("AGD", clients.gradient(y))
        x_next = y - s * g
        if xp.sum(g * (x_next - x)) > 0:
            theta = 1.0
        theta_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * theta**2))
        y_next = x_next + (theta - 1.0) / theta_next * (x_next - x)
        return AGDState(x_next, y_next, theta_next, s)
