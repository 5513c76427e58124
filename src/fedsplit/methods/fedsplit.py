"""FedSplit as the paper has it: Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.method import average, choose_step, subgradient_of_average
from fedsplit.penalties.penalty import Penalty
from fedsplit.theory import fedsplit_step


class FedSplitState(NamedTuple):
    """The server's x, (d,); the clients' z_j as rows of z, (m, d); the step s."""

    x: Array
    z: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.z

    @property
    def subgradient(self) -> Array:
        return subgradient_of_average(self.x, self.z, self.s)


@dataclass(frozen=True)
class PlainFedSplit:
    """Peaceman-Rachford splitting between the clients' costs and their agreement.

    At a fixed point z_j = x - s∇f_j(x), and x minimises F + g, for every s > 0 (Proposition 3). The
    penalty g is 0 in the paper. The z_j of an absent client stays as it is.
    """

    step: float | None
    prox: ProxSolver
    penalty: Penalty | None = None

    state_type: ClassVar[type[FedSplitState]] = FedSplitState

    def start(self, clients: Clients, x0: Array) -> FedSplitState:
        s = choose_step(self.step, fedsplit_step, clients, x0)
        z = clients.repeated(x0)
        return FedSplitState(average(z, s, self.penalty), z, s)

    def update(self, clients: Clients, state: FedSplitState) -> FedSplitState:
        x, z, s = state
        v = -z + 2.0 * x  # 2x - z
        start = {"broadcast": x, "iterate": z, "argument": v}[self.prox.start]
        z_half = clients.prox(v, s, start, self.prox).rows_or(x)  # 1a. local prox step
        z = z + 2.0 * (z_half - x)  # 1b. local centring step
        x = average(z, s, self.penalty)  # 2. global average
        return FedSplitState(x, z, s)
