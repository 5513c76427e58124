"""ADMM: the alternating direction method of multipliers on the clients' agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import check_prox, check_step, choose_step
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.solver import ProxSolver
from fedsplit.theory import fedsplit_step


class ADMMState(NamedTuple):
    """The server's x, the scaled multipliers u_j as rows of u, and the step. At a fixed point u_j = -s∇f_j(x)."""

    x: Array
    u: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.x + self.u


@dataclass(frozen=True)
class ADMM:
    """Consensus ADMM (Boyd et al., 2011, §7.1), with penalty 1/s. Its fixed points minimise F for every s > 0.

    It is FedSplit with half the centring step: Douglas-Rachford in the place of Peaceman-Rachford splitting. The
    multiplier of a client that does not answer changes only by that of x.

    Parameters
    ----------
    step : float, optional
        s. None is 1/√(ℓ*L*), or 1/L* where ℓ* = 0.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    """

    step: float | None = None
    prox: ProxSolver | None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[ADMMState]] = ADMMState

    def __post_init__(self) -> None:
        check_step("ADMM", self.step)
        check_prox(self.prox)

    @property
    def hazard(self) -> str:
        return "the local solver is too inexact: use ExactProx(), or more inner steps"

    def start(self, clients: Clients, x0: Array) -> ADMMState:
        xp = array_namespace(x0)
        s = choose_step(self.step, fedsplit_step, clients, x0)
        return ADMMState(x0, xp.zeros((clients.m, clients.d), dtype=x0.dtype), s)

    def update(self, clients: Clients, state: ADMMState) -> ADMMState:
        x, u, s = state
        xp = array_namespace(u)
        solver = self.prox or ExactProx()
        v = x - u
        start = {"broadcast": x, "iterate": x + u, "argument": v}[solver.start]
        x_local = clients.prox(v, s, start, solver).rows_or(x)
        x = xp.mean(x_local + u, axis=0)
        return ADMMState(x, u + x_local - x, s)
