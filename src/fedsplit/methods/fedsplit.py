"""FedSplit: Peaceman-Rachford splitting between the clients' costs and their agreement (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.protocol import Answer, Clients
from fedsplit.errors import InputError
from fedsplit.methods.method import check_prox, check_step, choose_step
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.solver import ProxSolver
from fedsplit.rates import fedsplit_step


class FedSplitState(NamedTuple):
    """The server's x, the clients' z_j as rows of z, and the step s. At a fixed point z_j = x - s∇f_j(x)."""

    x: Array
    z: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.z


class AnswersProx(Protocol):
    """All that FedSplit asks of clients in a round."""

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer: ...


@dataclass(frozen=True)
class FedSplit:
    """FedSplit(s), the paper's Algorithm 1. Its fixed points minimise F for every s > 0 (Proposition 3).

    Parameters
    ----------
    step : float, optional
        s. None is Theorem 1's 1/√(ℓ*L*), or 1/L* where ℓ* = 0.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    accelerate, adapt : None
        Reserved: the paper's plain method with a fixed step.
    """

    step: float | None = None
    prox: ProxSolver | None = None
    accelerate: None = None
    adapt: None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[FedSplitState]] = FedSplitState

    def __post_init__(self) -> None:
        check_step("FedSplit", self.step)
        check_prox(self.prox)
        if self.accelerate is not None or self.adapt is not None:
            raise InputError("FedSplit: accelerate and adapt must be None, the plain method is the only one")

    @property
    def hazard(self) -> str:
        if self.prox is None or isinstance(self.prox, ExactProx):
            return "a cost is not convex, or its numbers are beyond float64: check the loss and the scale of the data"
        return (
            "the local solver is too inexact for this start: use ExactProx(), GradientProx(start='broadcast') "
            "with its default step, or more inner steps"
        )

    def start(self, clients: Clients, x0: Array) -> FedSplitState:
        xp = array_namespace(x0)
        s = choose_step(self.step, fedsplit_step, clients, x0)
        return FedSplitState(x0, xp.tile(x0, (clients.m, 1)), s)

    def update(self, clients: AnswersProx, state: FedSplitState) -> FedSplitState:
        x, z, s = state
        xp = array_namespace(z)
        solver = self.prox or ExactProx()
        v = 2.0 * x - z
        start = {"broadcast": x, "iterate": z, "argument": v}[solver.start]
        z_half = clients.prox(v, s, start, solver).rows_or(x)  # local prox step
        z = z + 2.0 * (z_half - x)  # local centring step
        return FedSplitState(xp.mean(z, axis=0), z, s)  # global average
