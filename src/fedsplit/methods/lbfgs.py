"""L-BFGS: a quasi-Newton method on F, one value and gradient per round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import EPS, Array
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import StepMethod, evaluated
from fedsplit.methods.server_step import proximal_gradient
from fedsplit.penalties.penalty import Penalty, inside


class Pairs(NamedTuple):
    """Changes of x and of ∇F, oldest first, from which L-BFGS makes its matrices."""

    # (k, d)
    moves: Array
    changes: Array

    @classmethod
    def none(cls, d: int) -> Pairs:
        """No pairs yet."""
        return cls(np.zeros((0, d)), np.zeros((0, d)))

    def added(self, move: Array, change: Array, memory: int) -> Pairs:
        """With one more pair, if it has curvature, and without the oldest beyond ``memory``.

        A pair without curvature is rounding, or F is flat along it: it would spoil the inverse.
        """
        if not move @ change > EPS * (change @ change):
            return self
        return Pairs(
            np.concatenate([self.moves, move[None, :]])[-memory:],
            np.concatenate([self.changes, change[None, :]])[-memory:],
        )

    def solve(self, g: Array) -> Array:
        """B⁻¹g with B ≈ ∇²F, by the two-loop recursion.

        B⁻¹ is a multiple of I, updated so that B⁻¹y = s for the remembered moves s and changes y.
        """
        pairs = [(s, y, 1.0 / (s @ y)) for s, y in zip(self.moves, self.changes, strict=True)]
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


class Compact:
    """The matrix B of L-BFGS, γI - WᵀK⁻¹W, known by its products (Byrd, Nocedal, Schnabel, 1994).

    ``largest`` is its largest eigenvalue.
    """

    def __init__(self, pairs: Pairs) -> None:
        S, Y = pairs
        products = S @ Y.T
        self._gamma = float(Y[-1] @ Y[-1]) / float(products[-1, -1])
        self._W = np.concatenate([self._gamma * S, Y])
        lower = np.tril(products, -1)
        K = np.block([[self._gamma * S @ S.T, lower], [lower.T, -np.diag(np.diag(products))]])
        self._inner = np.linalg.pinv(K, hermitian=True)  # moves may depend on each other
        R: Array = np.linalg.qr(self._W.T)[1]
        self.largest = self._gamma + max(0.0, float(np.linalg.eigvalsh(-R @ self._inner @ R.T)[-1]))

    def __matmul__(self, v: Array) -> Array:
        result: Array = self._gamma * v - (self._inner @ (self._W @ v)) @ self._W
        return result


class LBFGSState(NamedTuple):
    """The state of LBFGS."""

    x: Array  # (d,): the server's x
    F: float  # F(x), without the penalty
    g: Array  # (d,): ∇F(x)
    p: Array  # (d,): the direction. ``iterate`` is x + p, which stands still only if p is 0
    s: float  # the step to try along it
    pairs: Pairs
    # (d,): subgradients of the penalty at x and at x + p; None where none is known
    slope: Array | None
    ahead: Array | None


@dataclass(frozen=True)
class LBFGS(StepMethod[LBFGSState]):
    """L-BFGS (Liu and Nocedal, 1989): one question per round, F and its gradient at a trial point.

    A trial point at which F does not fall enough is refused, and a quarter of the step is tried in
    the next round. Every client must answer in every round. With a penalty the direction goes to
    the minimiser of the quadratic model and the penalty (Lee, Sun and Saunders, 2014).

    Parameters
    ----------
    memory : int
        How many changes of x and of the gradient the server remembers: 2d numbers each, so that
        100 of them cost it little, and save rounds where F is ill-conditioned.
    sufficient : float
        A step is taken if F falls by at least this share of what its slope promises (Armijo).
    wait : bool
        Whether a question is asked again until every client has answered it, where only some are
        asked at a time.
    precision : float
        How far the residual of the server's own problem with a penalty is reduced.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    memory: int = 100
    sufficient: float = 1e-4
    wait: bool = False
    precision: float = 1e-8
    penalty: Penalty | None = None

    unanimous = True
    device = "sums"
    state_type = LBFGSState

    def described(self) -> str:
        return f"L-BFGS with a memory of {self.memory}: clients send values and gradients"

    def start(self, x0: Array, m: int) -> Dialogue[LBFGSState]:
        x = inside(self.penalty, x0)
        F, g = yield from evaluated("LBFGS", x, self.wait)
        return self._ahead(x, F, g, Pairs.none(len(x)))

    def update(self, state: LBFGSState) -> Dialogue[LBFGSState]:
        x, F, g, p, s, pairs, _, ahead = state
        move = s * p
        F_next, g_next = yield from evaluated("LBFGS", x + move, self.wait)
        promised, risen = float(g @ move), F_next - F
        if self.penalty is not None:
            change = self.penalty.value(x + move) - self.penalty.value(x)
            promised, risen = min(0.0, promised + change), risen + change
        falls = risen <= self.sufficient * promised + 16.0 * EPS * abs(F)
        if not (falls and np.isfinite(g_next).all()):
            return state._replace(s=0.25 * s)
        pairs = pairs.added(move, g_next - g, self.memory)
        return self._ahead(x + move, F_next, g_next, pairs, ahead if s == 1.0 else None)

    def resume(self, state: LBFGSState) -> LBFGSState:
        """The state to continue from under this method's penalty; no client is asked."""
        return self._ahead(state.x, state.F, state.g, state.pairs)

    def _ahead(
        self, x: Array, F: float, g: Array, pairs: Pairs, slope: Array | None = None
    ) -> LBFGSState:
        """The state at x, with the direction from there; ``slope`` is None if it is not known."""
        known = len(pairs.moves) > 0
        # Before any curvature is known, the first move has length 1, whatever the units of F.
        s = 1.0 if known else 1.0 / (float(np.linalg.norm(g)) or 1.0)
        if self.penalty is None:
            # with curvature known, the direction has the right length
            return LBFGSState(x, F, g, -pairs.solve(g), s, pairs, None, None)
        if known:
            B = Compact(pairs)
            step = 1.0 / B.largest
            to, ahead = proximal_gradient(B, B @ x - g, self.penalty, x, step, self.precision)
        else:
            centre = x - s * g
            to = self.penalty.prox(centre, s)
            ahead = (centre - to) / s
        return LBFGSState(x, F, g, to - x, 1.0, pairs, slope, ahead)

    def iterate(self, state: LBFGSState) -> Array:
        return state.x + state.p

    def smooth_value(self, state: LBFGSState) -> float:
        return state.F

    def expected_gap(self, before: LBFGSState, after: LBFGSState) -> float:
        """What the model promises from x: half of the slope along a quasi-Newton step.

        Without curvature nothing is promised.
        """
        if not len(after.pairs.moves):
            return math.inf
        promised = -float(after.g @ after.p)
        if self.penalty is not None:
            x = after.x
            promised += self.penalty.value(x) - self.penalty.value(x + after.p)
        return 0.5 * abs(promised)

    def subgradient(self, state: LBFGSState) -> Array | None:
        return state.slope
