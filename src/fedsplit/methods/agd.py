"""AGD: Nesterov's accelerated gradient method on F, restarted when the momentum points uphill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import check_settings
from fedsplit.methods.sums import curvatures, total
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
    """

    x: Array
    y: Array
    subgradient: Array
    theta: float
    s: float

    @property
    def iterate(self) -> Array:
        return self.y


@dataclass(frozen=True)
class AGD:
    """Accelerated gradient descent with adaptive restart, gradient scheme.

    x⁺ = y - s∇F(y), then y⁺ = x⁺ + (θ - 1)/θ⁺ · (x⁺ - x); θ starts at 1 again if
    ⟨∇F(y), x⁺ - x⟩ > 0 (O'Donoghue and Candès, 2015). Strong convexity need not be known. With a
    penalty g it is FISTA: x⁺ = prox_{sg}(y - s∇F(y)), and (y - x⁺)/s takes the place of ∇F(y) in
    the test. Every client must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 1/ΣL_j. If some L_j has no bound that holds for every x, the curvature at the
        start is used, and the step may be too large elsewhere.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    penalty: Penalty | None = None

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[AGDState]] = AGDState
    hazard: ClassVar[str] = "the step is above 1/L of the sum F: pass a smaller step"

    def __post_init__(self) -> None:
        check_settings("AGD", step=self.step, penalty=self.penalty)

    def start(self, clients: Clients, x0: Array) -> AGDState:
        s = self.step
        if s is None:
            _, L = array_namespace(x0).sum(curvatures("AGD", clients, x0), axis=0)
            s = 1.0 / float(L)
        x = prox_or_same(self.penalty, x0, s)
        return AGDState(x, x, (x0 - x) / s, 1.0, s)

    def update(self, clients: Clients, state: AGDState) -> AGDState:
        x, y, _, theta, s = state
        xp = array_namespace(x)
        gradient = total("AGD", clients.gradient(y))
        v = y - s * gradient
        x_next = prox_or_same(self.penalty, v, s)
        subgradient = (v - x_next) / s
        if xp.sum((gradient + subgradient) * (x_next - x)) > 0:
            theta = 1.0
        theta_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * theta**2))
        y_next = x_next + (theta - 1.0) / theta_next * (x_next - x)
        return AGDState(x_next, y_next, subgradient, theta_next, s)
