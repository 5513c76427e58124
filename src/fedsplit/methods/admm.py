"""ADMM: the alternating direction method of multipliers on the clients' agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.method import (
    average,
    check_settings,
    choose_step,
    subgradient_of_average,
)
from fedsplit.penalties.penalty import Penalty, prox_or_same
from fedsplit.theory import fedsplit_step


class ADMMState(NamedTuple):
    """The server's x, (d,), the scaled multipliers u_j as rows of u, (m, d), and the step s.

    At a fixed point u_j = -s∇f_j(x).
    """

    x: Array
    u: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.x + self.u

    @property
    def subgradient(self) -> Array:
        return subgradient_of_average(self.x, self.iterate, self.s)


@dataclass(frozen=True)
class ADMM:
    """Consensus ADMM (Boyd et al., 2011, §7.1), whose ρ is 1/s.

    Its fixed points minimise F for every s > 0. It is FedSplit with half the centring step:
    Douglas-Rachford instead of Peaceman-Rachford splitting. The multiplier of an absent client
    changes only by the change of x. A penalty's prox follows the average, as in FedSplit (§7.1.1).

    Parameters
    ----------
    step : float, optional
        s. None is 1/√(ℓ*L*), or 1/L* if ℓ* = 0.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    prox: ProxSolver | None = None
    penalty: Penalty | None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[ADMMState]] = ADMMState
    hazard: ClassVar[str] = "the local solver is too inexact: use ExactProx(), or more inner steps"

    def __post_init__(self) -> None:
        check_settings("ADMM", step=self.step, prox=self.prox, penalty=self.penalty)

    def start(self, clients: Clients, x0: Array) -> ADMMState:
        xp = array_namespace(x0)
        s = choose_step(self.step, fedsplit_step, clients, x0)
        x = prox_or_same(self.penalty, x0, s / clients.m)
        return ADMMState(x, xp.tile(x0 - x, (clients.m, 1)), s)

    def update(self, clients: Clients, state: ADMMState) -> ADMMState:
        x, u, s = state
        solver = self.prox or ExactProx()
        v = x - u
        start = {"broadcast": x, "iterate": x + u, "argument": v}[solver.start]
        x_local = clients.prox(v, s, start, solver).rows_or(x)
        x = average(x_local + u, s, self.penalty)
        return ADMMState(x, u + x_local - x, s)
