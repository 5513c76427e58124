"""L-BFGS: a quasi-Newton method on F, one value and gradient per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import EPS, NUMERICAL_HAZARD
from fedsplit.methods.sums import total

SUFFICIENT = 1e-4
"""A step is taken if F falls by at least this share of what its slope promises (Armijo)."""


class LBFGSState(NamedTuple):
    """The state of LBFGS.

    Attributes
    ----------
    x : (d,) array
        The server's x.
    F : float
        F(x).
    g : (d,) array
        ∇F(x).
    p : (d,) array
        The direction. ``iterate`` is x + p, which stands still only if p is 0.
    s : float
        The step to try along it.
    moves, changes : (k, d) array
        The latest changes of x and of g, oldest first.
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
    """L-BFGS (Liu and Nocedal, 1989): one question per round, F and its gradient at a trial point.

    A trial point at which F does not fall enough is refused, and a quarter of the step is tried in
    the next round. Every client must answer in every round.

    Parameters
    ----------
    memory : int
        How many changes of x and of the gradient the server remembers.
    """

    memory: int = 10

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[LBFGSState]] = LBFGSState
    hazard: ClassVar[str] = NUMERICAL_HAZARD

    def __post_init__(self) -> None:
        count("LBFGS: memory", self.memory)

    def start(self, clients: Clients, x0: Array) -> LBFGSState:
        xp = array_namespace(x0)
        F, g = _evaluate(clients, x0)
        nothing = xp.zeros((0, clients.d), dtype=x0.dtype)
        # Before any curvature is known, the first move has at most length 1.
        s = 1.0 / max(float(xp.linalg.vector_norm(g)), 1.0)
        return LBFGSState(x0, F, g, -g, s, nothing, nothing)

    def update(self, clients: Clients, state: LBFGSState) -> LBFGSState:
        x, F, g, p, s, moves, changes = state
        xp = array_namespace(x)
        move = s * p
        F_next, g_next = _evaluate(clients, x + move)
        slope = float(xp.sum(g * move))
        rounding = 16.0 * EPS * abs(F)
        falls = F_next <= F + SUFFICIENT * slope + rounding
        if not (falls and xp.all(xp.isfinite(g_next))):
            return state._replace(s=0.25 * s)
        change = g_next - g
        # A pair without curvature is rounding, or F is flat along p: it would spoil the inverse.
        if xp.sum(move * change) > EPS * xp.sum(change * change):
            moves = xp.concat([moves, move[None, :]])[-self.memory :]
            changes = xp.concat([changes, change[None, :]])[-self.memory :]
        if moves.shape[0] > 0:
            s = 1.0  # with curvature known, the direction has the right length
        p_next = -_inverse(moves, changes, g_next)
        return LBFGSState(x + move, F_next, g_next, p_next, s, moves, changes)


def _inverse(moves: Array, changes: Array, g: Array) -> Array:
    """B g with B ≈ (∇²F)⁻¹, by the two-loop recursion.

    B is a multiple of I, updated so that By = s for the remembered moves s and changes y.
    """
    xp = array_namespace(g)
    pairs = [(s, y, 1.0 / xp.sum(s * y)) for s, y in zip(moves, changes, strict=True)]
    q = g
    weights = []
    for s, y, rho in reversed(pairs):
        weights.append(rho * xp.sum(s * q))
        q = q - weights[-1] * y
    if pairs:
        _, y, rho = pairs[-1]
        q = q / (rho * xp.sum(y * y))
    for (s, y, rho), weight in zip(pairs, reversed(weights), strict=True):
        q = q + (weight - rho * xp.sum(y * q)) * s
    return q


def _evaluate(clients: Clients, x: Array) -> tuple[float, Array]:
    """F(x) and ∇F(x), from one question."""
    answer = clients.evaluate(x)
    F = float(total("LBFGS", answer))
    gradient: Array = array_namespace(x).sum(answer.parts["gradient"], axis=0)
    return F, gradient
