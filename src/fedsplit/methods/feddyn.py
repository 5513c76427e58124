"""FedDyn: local minimisation with a regulariser that moves towards agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.clients.oracle import Clients
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.method import check_settings, choose_step
from fedsplit.theory import fedsplit_step


class FedDynState(NamedTuple):
    """The server's x, (d,), the clients' gradients g_j as rows of g, (m, d), and s = 1/α.

    At a fixed point g_j = ∇f_j(x).
    """

    x: Array
    g: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.x + self.s * self.g


@dataclass(frozen=True)
class FedDyn:
    """Federated learning with dynamic regularisation (Acar et al., 2021).

    θ_j = argmin f_j(θ) - ⟨g_j, θ⟩ + (α/2)‖θ - x‖² = prox_{s f_j}(x + s g_j), then
    g_j ← g_j - α(θ_j - x) = ∇f_j(θ_j) and x ← mean(θ_j) - s mean(g_j): the paper's h is mean(g_j).
    Its fixed points minimise F. An absent client does not move.

    Parameters
    ----------
    alpha : float, optional
        α. None is √(ℓ*L*), or L* if ℓ* = 0.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    """

    alpha: float | None = None
    prox: ProxSolver | None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[FedDynState]] = FedDynState
    hazard: ClassVar[str] = (
        "alpha is too small, or the local solver too inexact: pass a larger alpha, use ExactProx()"
    )

    def __post_init__(self) -> None:
        if self.alpha is not None:
            number("FedDyn: alpha", self.alpha)
        check_settings("FedDyn", prox=self.prox)

    def start(self, clients: Clients, x0: Array) -> FedDynState:
        xp = array_namespace(x0)
        s = None
        if self.alpha is not None:
            s = 1.0 / self.alpha
        s = choose_step(s, fedsplit_step, clients, x0)
        return FedDynState(x0, xp.zeros((clients.m, clients.d), dtype=x0.dtype), s)

    def update(self, clients: Clients, state: FedDynState) -> FedDynState:
        x, g, s = state
        xp = array_namespace(g)
        solver = self.prox or ExactProx()
        v = x + s * g
        # FedDyn has no z_j: a solver that would start at the iterate starts at x.
        start = {"broadcast": x, "iterate": x, "argument": v}[solver.start]
        theta = clients.prox(v, s, start, solver).rows_or(x)
        g = g - (theta - x) / s
        return FedDynState(xp.mean(theta - s * g, axis=0), g, s)
