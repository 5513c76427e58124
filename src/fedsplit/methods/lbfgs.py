"""L-BFGS: a quasi-Newton method on F, one value and gradient per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import EPS, Method
from fedsplit.methods.sums import evaluated


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


@dataclass(frozen=True)
class LBFGS(Method[LBFGSState]):
    """L-BFGS (Liu and Nocedal, 1989): one question per round, F and its gradient at a trial point.

    A trial point at which F does not fall enough is refused, and a quarter of the step is tried in
    the next round. Every client must answer in every round.

    Parameters
    ----------
    memory : int
        How many changes of x and of the gradient the server remembers: 2d numbers each, so that
        100 of them cost it little, and save rounds where F is ill-conditioned.
    sufficient : float
        A step is taken if F falls by at least this share of what its slope promises (Armijo).
    """

    memory: int = 100
    sufficient: float = 1e-4

    unanimous = True
    device = "sums"
    state_type = LBFGSState

    def __post_init__(self) -> None:
        count("LBFGS: memory", self.memory)

    def start(self, x0: Array, m: int) -> Dialogue[LBFGSState]:
        F, g = yield from evaluated("LBFGS", x0)
        nothing = np.zeros((0, len(x0)))
        # Before any curvature is known, the first move has length 1, whatever the units of F.
        s = 1.0 / (float(np.linalg.norm(g)) or 1.0)
        return LBFGSState(x0, F, g, -g, s, nothing, nothing)

    def update(self, state: LBFGSState) -> Dialogue[LBFGSState]:
        x, F, g, p, s, moves, changes = state
        move = s * p
        F_next, g_next = yield from evaluated("LBFGS", x + move)
        slope = float(g @ move)
        rounding = 16.0 * EPS * abs(F)
        falls = F_next <= F + self.sufficient * slope + rounding
        if not (falls and np.isfinite(g_next).all()):
            return state._replace(s=0.25 * s)
        change = g_next - g
        # A pair without curvature is rounding, or F is flat along p: it would spoil the inverse.
        if move @ change > EPS * (change @ change):
            moves = np.concatenate([moves, move[None, :]])[-self.memory :]
            changes = np.concatenate([changes, change[None, :]])[-self.memory :]
        if len(moves):
            s = 1.0  # with curvature known, the direction has the right length
        p_next = -_inverse(moves, changes, g_next)
        return LBFGSState(x + move, F_next, g_next, p_next, s, moves, changes)

    def asked_about(self, state: LBFGSState) -> Array:
        return state.x + state.s * state.p

    def iterate(self, state: LBFGSState) -> Array:
        return state.x + state.p

    def step_of(self, state: LBFGSState) -> float:
        return state.s


def _inverse(moves: Array, changes: Array, g: Array) -> Array:
    """B g with B ≈ (∇²F)⁻¹, by the two-loop recursion.

    B is a multiple of I, updated so that By = s for the remembered moves s and changes y.
    """
    pairs = [(s, y, 1.0 / (s @ y)) for s, y in zip(moves, changes, strict=True)]
    q = g
    weights = []
    for s, y, rho in reversed(pairs):
        weights.append(rho * (s @ q))
        q = q - weights[-1] * y
    if pairs:
        _, y, rho = pairs[-1]
        q = q / (rho * (y @ y))
    for (s, y, rho), weight in zip(pairs, reversed(weights), strict=True):
        q = q + (weight - rho * (y @ q)) * s
    return q
