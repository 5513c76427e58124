"""GD: gradient descent on F, one gradient per client and round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import check_settings
from fedsplit.methods.sums import curvatures, total
from fedsplit.penalties.penalty import Penalty, prox_or_same
from fedsplit.theory import fedgd_step


class GDState(NamedTuple):
    """The server's x, a subgradient of the penalty there (0 without one), both (d,), and s."""

    x: Array
    subgradient: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.x


@dataclass(frozen=True)
class GD:
    """Gradient descent: x ← x - s Σ_j ∇f_j(x).

    With a penalty g it is proximal gradient descent, x ← prox_{sg}(x - s Σ_j ∇f_j(x)). Every client
    must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 2/(Σℓ_j + ΣL_j), or 1/ΣL_j if Σℓ_j = 0. If some L_j has no bound that holds for
        every x, the curvature at the start is used, and the step may be too large elsewhere.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    penalty: Penalty | None = None

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[GDState]] = GDState
    hazard: ClassVar[str] = "the step is above 2/L of the sum F: pass a smaller step"

    def __post_init__(self) -> None:
        check_settings("GD", step=self.step, penalty=self.penalty)

    def start(self, clients: Clients, x0: Array) -> GDState:
        s = self.step
        if s is None:
            ell, L = array_namespace(x0).sum(curvatures("GD", clients, x0), axis=0)
            s = fedgd_step(float(ell), float(L))
        x = prox_or_same(self.penalty, x0, s)
        return GDState(x, (x0 - x) / s, s)

    def update(self, clients: Clients, state: GDState) -> GDState:
        x, _, s = state
        v = x - s * total("GD", clients.gradient(x))
        x = prox_or_same(self.penalty, v, s)
        return GDState(x, (v - x) / s, s)  # by its optimality, (v - x)/s is a subgradient of g
