"""L-BFGS: a quasi-Newton method on F, one value and gradient a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.clients.oracle import Clients
from fedsplit.methods.gd import total
from fedsplit.methods.newton import EPS

ENOUGH = 1e-4
"""A step is taken where F falls by at least this share of what its slope promises."""

SHORTER, FIRST = 0.25, 1.0
"""What a refused step is multiplied by, and the length of the first move, before any curvature is known."""


class LBFGSState(NamedTuple):
    """The server's x with F and its gradient g there, the direction p, the step s to try along it, and the memory.

    Rows of ``moves`` and ``changes`` are the latest changes of x and of g, the oldest first. ``iterate`` is x + p: it
    stands still only where p is 0.
    """

    x: Array
    F: float
    g: Array
    p: Array
    s: float
    moves: Array
    changes: Array

    @property
    def iterate(self) -> Array:
        return self.x + self.p


@dataclass(frozen=True)
class LBFGS:
    """L-BFGS (Liu and Nocedal, 1989): one question a round, F and its gradient at the point to try.

    A point at which F does not fall enough is refused, and a quarter of the step is tried in the next round. Every
    client must answer in every round.

    Parameters
    ----------
    memory : int
        How many changes of x and of the gradient the server remembers.
    """

    memory: int = 10

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[LBFGSState]] = LBFGSState

    def __post_init__(self) -> None:
        count("LBFGS: memory", self.memory)

    @property
    def hazard(self) -> str:
        return "a cost is not convex, or its numbers are beyond float64: check the loss and the scale of the data"

    def start(self, clients: Clients, x0: Array) -> LBFGSState:
        xp = array_namespace(x0)
        F, g = _evaluate(clients, x0)
        nothing = xp.zeros((0, clients.d), dtype=x0.dtype)
        length = float(xp.linalg.vector_norm(g))
        return LBFGSState(x0, F, g, -g, FIRST / max(length, FIRST), nothing, nothing)

    def update(self, clients: Clients, state: LBFGSState) -> LBFGSState:
        x, F, g, p, s, moves, changes = state
        xp = array_namespace(x)
        move = s * p
        F_next, g_next = _evaluate(clients, x + move)
        slope, rounding = float(xp.sum(g * move)), 16.0 * EPS * abs(F)
        if not (F_next <= F + ENOUGH * slope + rounding and bool(xp.all(xp.isfinite(g_next)))):
            return state._replace(s=SHORTER * s)
        change = g_next - g
        if xp.sum(move * change) > EPS * xp.sum(change * change):  # else rounding, or flat along p
            moves = xp.concat([moves, move[None, :]])[-self.memory :]
            changes = xp.concat([changes, change[None, :]])[-self.memory :]
        p_next = -_inverse(moves, changes, g_next)
        return LBFGSState(
            x + move, F_next, g_next, p_next, 1.0 if moves.shape[0] else s, moves, changes
        )


def _evaluate(clients: Clients, x: Array) -> tuple[float, Array]:
    """F(x) and ∇F(x)."""
    sums = total("LBFGS", clients.evaluate(x))
    return float(sums[0]), sums[1:]


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
