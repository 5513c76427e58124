"""FedSplit for costs that are convex but not strongly so: a regularised problem, solved for just long enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedsplit.arrays import Array, norms
from fedsplit.checks import number
from fedsplit.clients.oracle import Clients
from fedsplit.clients.regularised import RegularisedProx
from fedsplit.errors import InputError
from fedsplit.methods.fedsplit import FedSplit, FedSplitState
from fedsplit.methods.method import check_prox
from fedsplit.prox.solver import ProxSolver
from fedsplit.theory import theorem2


class RegularisedState(NamedTuple):
    """FedSplit's state on F_λ = F + (mλ/2)‖x - centre‖², and the rounds still to go."""

    x: Array
    z: Array
    s: float
    lam: float
    centre: Array
    remaining: int

    @property
    def iterate(self) -> Array:
        return self.z


@dataclass(frozen=True)
class RegularisedFedSplit:
    """Theorem 2: F(x) - F* ≤ ε, proved, for smooth convex costs with exact proxes.

    Two set-up rounds (L_j, and the gradients at the start) fix λ, s and the number of rounds; the run then ends by
    itself.

    Parameters
    ----------
    eps : float
        ε, the gap to reach.
    radius : float
        D, a bound on the distance from the start to a minimiser. The result is proved only if it is one.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    """

    eps: float
    radius: float
    prox: ProxSolver | None = None

    settles: ClassVar[bool] = False
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[RegularisedState]] = RegularisedState

    def __post_init__(self) -> None:
        number("RegularisedFedSplit: eps", self.eps)
        number("RegularisedFedSplit: radius", self.radius)
        check_prox(self.prox)

    @property
    def hazard(self) -> str:
        return FedSplit.plain(prox=self.prox).hazard

    def start(self, clients: Clients, x0: Array) -> RegularisedState:
        curvature, gradient = clients.curvature(), clients.gradient(x0)
        if not (curvature.present & gradient.present).all():
            raise InputError(
                "Theorem 2 needs an answer of every client: use FedSplit with participation below 1"
            )
        plan = theorem2(self.eps, self.radius, curvature.rows[:, 1], norms(gradient.rows))
        inner = FedSplit.plain(plan.s).start(clients, x0)
        return RegularisedState(inner.x, inner.z, plan.s, plan.lam, x0, plan.rounds)

    def update(self, clients: Clients, state: RegularisedState) -> RegularisedState | None:
        x, z, s, lam, centre, remaining = state
        if remaining == 0:
            return None
        regularised = RegularisedProx(clients, lam, centre)
        inner = FedSplit.plain(s, self.prox).update(regularised, FedSplitState(x, z, s))
        return RegularisedState(inner.x, inner.z, s, lam, centre, remaining - 1)
