"""L-BFGS: a quasi-Newton method on F with a line search in one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.clients.protocol import Clients
from fedsplit.methods.gd import total
from fedsplit.methods.newton import EPS, RETRY, search


class LBFGSState(NamedTuple):
    """The server's x, the gradient g of F, the direction p, the last step s along it, and the memory.

    Rows of ``moves`` and ``changes`` are the latest changes of x and of g, the oldest first. ``moved`` says that x is
    ahead of g, which the next question asks for. ``iterate`` is x + p: it stands still only where p is 0.
    """

    x: Array
    g: Array
    p: Array
    s: float
    moves: Array
    changes: Array
    moved: bool

    @property
    def iterate(self) -> Array:
        return self.x + self.p


@dataclass(frozen=True)
class LBFGS:
    """L-BFGS (Liu and Nocedal, 1989): an iteration is two rounds, the line search and the gradient.

    The first gradient and search, along a gradient of no particular length, are set-up. Every client must answer
    in every round.

    Parameters
    ----------
    memory : int
        How many changes of x and of the gradient the server remembers.
    """

    memory: int = 10

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[LBFGSState]] = LBFGSState

    def __post_init__(self) -> None:
        count("LBFGS: memory", self.memory)

    @property
    def hazard(self) -> str:
        return "a cost is not convex, or its numbers are beyond float64: check the loss and the scale of the data"

    def start(self, clients: Clients, x0: Array) -> LBFGSState:
        xp = array_namespace(x0)
        g = total("LBFGS", clients.gradient(x0))
        nothing = xp.zeros((0, clients.d), dtype=x0.dtype)
        return self.update(clients, LBFGSState(x0, g, -g, 1.0, nothing, nothing, False))

    def update(self, clients: Clients, state: LBFGSState) -> LBFGSState:
        x, g, p, s, moves, changes, moved = state
        if not moved:
            t = search("LBFGS", clients, x, p, usual=1.0)
            return state._replace(x=x + t * p, s=t, moved=True) if t > 0 else state._replace(p=RETRY * p)
        xp = array_namespace(x)
        g_next = total("LBFGS", clients.gradient(x))
        move, change = s * p, g_next - g
        if xp.sum(move * change) > EPS * xp.sum(change * change) * s:  # else rounding, or flat along p
            moves = xp.concat([moves, move[None, :]])[-self.memory :]
            changes = xp.concat([changes, change[None, :]])[-self.memory :]
        return LBFGSState(x, g_next, -_inverse(moves, changes, g_next), s, moves, changes, False)


def _inverse(moves: Array, changes: Array, g: Array) -> Array:
    """B g with B ≈ (∇²F)⁻¹: a multiple of I, updated so that By = s for the remembered moves s and changes y."""
    xp = array_namespace(g)
    pairs = [(s, y, 1.0 / xp.sum(s * y)) for s, y in zip(moves, changes, strict=True)]
    q, weights = g, []
    for s, y, rho in reversed(pairs):
        weights.append(rho * xp.sum(s * q))
        q = q - weights[-1] * y
    if pairs:
        _, y, rho = pairs[-1]
        q = q / (rho * xp.sum(y * y))
    for (s, y, rho), weight in zip(pairs, reversed(weights), strict=True):
        q = q + (weight - rho * xp.sum(y * q)) * s
    return q
