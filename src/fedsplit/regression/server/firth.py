"""Firth's logistic regression, as a dialogue: modified scores with the leverages of all rows.

The objective is F(x) - ½ log det H(x) with H = ∇²F, which need not be convex: what is proved is
that x is a stationary point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedsplit.arrays import EPS, Array, packed, unpacked
from fedsplit.clients.local_models import ModifiedScore
from fedsplit.clients.oracle import Removed, TraceEntry
from fedsplit.clients.questions import ProofScalars
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.loop.certificate import Certificate
from fedsplit.regression.server.federation import Reported
from fedsplit.regression.server.inference import Point
from fedsplit.regression.server.minimise import Minimum
from fedsplit.regression.server.problem import FitProblem, inverse


@dataclass(frozen=True)
class FirthPoint:
    """What all clients answered about x."""

    x: Array  # (d,)
    V: Array  # (d, d): what the leverages were computed with
    hessians: Array  # (m, d(d + 1)/2): ∇²f_j(x), the entries on and below the diagonal
    parts: Mapping[str, Array]  # the answers to ``ModifiedScore``, one row per client

    @cached_property
    def hessian(self) -> Array:
        """Σ_j ∇²f_j(x), (d, d)."""
        return unpacked(self.hessians.sum(axis=0))

    @cached_property
    def inverse(self) -> Array:
        """H⁻¹, (d, d); nan throughout if H is nearly singular."""
        return inverse(self.hessian)

    @property
    def augmented(self) -> Array:
        """Σ_i (w_i + h_i) φ''_i a_i a_iᵀ over all clients, (d, d)."""
        return unpacked(self.parts["augmented"].sum(axis=0))

    @property
    def gradient(self) -> Array:
        """Minus the modified score, (d,)."""
        return np.asarray(self.parts["gradient"].sum(axis=0))

    @cached_property
    def objective(self) -> float:
        """F(x) - ½ log det H(x); inf where H is nearly singular."""
        if np.isnan(self.inverse).any():
            return math.inf
        return float(self.parts["value"].sum() - 0.5 * np.linalg.slogdet(self.hessian)[1])

    @property
    def rounding(self) -> float:
        """About how much of the objective is rounding: of the sum, and of H in log det H."""
        sizes = np.abs(self.parts["value"]).sum() + np.abs(self.inverse * self.hessian).sum()
        return float(16.0 * EPS * sizes)

    @cached_property
    def score(self) -> float:
        """The length of the modified score in the norm of H⁻¹."""
        return math.sqrt(max(0.0, float(self.gradient @ self.inverse @ self.gradient)))

    @cached_property
    def lag(self) -> float:
        """How far, in the norm of H⁻¹, the score is at most from that with V = H⁻¹."""
        L = np.linalg.cholesky(self.hessian)
        shares = np.linalg.eigvalsh(L.T @ self.V @ L)
        if not shares[0] > 0:
            return math.inf
        delta = float(np.max(np.abs(1.0 / shares - 1.0)))
        return delta * math.sqrt(float(self.parts["bend"].sum()))

    @property
    def distance(self) -> float:
        """A bound on the length of the modified score in the norm of H⁻¹."""
        return self.score + self.lag


def firth(problem: FitProblem, x: Array) -> Dialogue[tuple[Minimum, FirthPoint]]:
    """Find a stationary point of the penalised likelihood, from x."""
    search = FirthSearch(problem.settings.tol, problem.settings.rounds)
    mean = problem.null_mean(0.0)
    # the columns are orthonormal over all clients
    V = np.eye(problem.d) / (problem.pool.weight * mean * (1.0 - mean))
    try:
        now = yield from search.run(x, V)
    except Removed as gone:
        if search.now is not None:
            gone.reached = problem.by_name(search.now.x)
        raise
    why = "the penalised likelihood need not be concave: a stationary point is all that is proved"
    certificate = Certificate(None, None, now.objective, why)
    value, floor, gradients = (now.parts[name] for name in ("value", "floor", "gradient"))
    # only the score is claimed to be small, not a distance
    scalars = ProofScalars.of({"value": value, "floor": floor, "norm": np.zeros(problem.m)})
    answers = gradients, unpacked(now.hessians), scalars
    point = Point(problem, now.x, *answers, certificate)
    proofs = [(search.count, certificate)]
    return Minimum(point, proofs, search.count, now.distance <= search.tol), now


@dataclass
class FirthSearch:
    """A search for a point whose modified score is shorter than ``tol`` in the norm of H⁻¹.

    Each question is about a new x, with the inverse of the last H for V. Where that moves the score
    by too much, it is asked again with the H that came back: so every point costs a client one
    matrix, and the last one a second, for the standard errors. A step at which the objective rises
    is shortened. Without more, convergence is linear, since H is not the Hessian of the objective:
    changes of the gradient of the penalty correct it as in BFGS.
    """

    tol: float
    rounds: int
    count: int = 0  # the questions so far, of at most ``rounds``
    now: FirthPoint | None = None  # the last point that was not refused
    # the last moves, and how the gradient of the penalty -½ log det H changed with them
    pairs: list[tuple[Array, Array]] = field(default_factory=list)

    @property
    def spent(self) -> bool:
        """Whether only the question for the standard errors is left."""
        return self.count >= self.rounds - 1

    def run(self, x: Array, V: Array) -> Dialogue[FirthPoint]:
        """The last point of a search from x, where V is about H⁻¹."""
        self.now = now = yield from self.ask(x, V, x)
        if np.isnan(now.inverse).any():
            raise InputError("no row says anything at the start: offsets are too large for firth")
        self.now = now = yield from self.consistent(now)
        least = now.distance
        idle = 0
        # steps in a row that neither lower the objective nor halve the score are rounding
        while now.distance > self.tol and idle < 20:
            after = yield from self.step(now)
            if after is None:
                break
            change = (now.parts["slope"] - after.parts["slope"]).sum(axis=0)
            self.pairs = [*self.pairs, (after.x - now.x, change)][-10:]
            lower = after.objective < now.objective - now.rounding
            nearer = after.distance <= 0.5 * least
            idle = 0 if lower or nearer else idle + 1
            least = after.distance if nearer else least
            self.now = now = after
        if "augmented" not in now.parts:
            now = yield from self.ask_again(now, augmented=True)
        return now

    def step(self, now: FirthPoint) -> Dialogue[FirthPoint | None]:
        """The next x, at which the objective does not rise; None if there is none."""
        step = -_inverse_curvature(now, self.pairs) @ now.gradient
        for _ in range(40):
            if self.spent or not np.isfinite(step).all():
                return None
            point = yield from self.ask(now.x + step, now.inverse, now.x)
            if point.objective <= now.objective + now.rounding:
                return (yield from self.consistent(point))
            # the curvature that was learnt elsewhere misleads here
            self.pairs = []
            # nor is any predictor to move by more than 5
            step = step * min(0.5, 5.0 / max(point.parts["spread"].max(), 5.0))
        return None

    def consistent(self, point: FirthPoint) -> Dialogue[FirthPoint]:
        """The point with leverages that are close enough to those at x."""
        if point.lag <= 0.1 * max(point.score, self.tol) or self.spent:
            return point
        # if this is the end, the standard errors come with it
        return (yield from self.ask_again(point, augmented=point.score <= self.tol))

    def ask(self, x: Array, V: Array, before: Array) -> Dialogue[FirthPoint]:
        """Ask about a new x."""
        parts = (yield ModifiedScore(x, packed(V), before, hessian=True, augmented=False)).parts
        return (yield from self._recorded(FirthPoint(x, V, parts["hessian"], parts), before))

    def ask_again(self, point: FirthPoint, augmented: bool) -> Dialogue[FirthPoint]:
        """Ask about the same x with H⁻¹ for V."""
        x, V = point.x, point.inverse
        parts = (yield ModifiedScore(x, packed(V), x, hessian=False, augmented=augmented)).parts
        return (yield from self._recorded(FirthPoint(x, V, point.hessians, parts), x))

    def _recorded(self, point: FirthPoint, before: Array) -> Dialogue[FirthPoint]:
        """Record the last question, which is a round of its own."""
        moved = float(np.linalg.norm(point.x - before))
        self.count = (yield TraceEntry("round", point.objective, moved)).rounds
        finite = math.isfinite(point.objective)
        yield Reported(0.5 * point.score**2 if finite else math.nan)
        return point


def _inverse_curvature(now: FirthPoint, pairs: list[tuple[Array, Array]]) -> Array:
    """H⁻¹, updated to take Hs and the change of the penalty's gradient to each move s."""
    B = now.inverse
    for s, change in pairs:
        y = now.hessian @ s + change
        if s @ y < 0.1 * (s @ now.hessian @ s):
            continue  # along moves with hardly any curvature, that of F is taken
        R = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        B = R.T @ B @ R + np.outer(s, s) / (s @ y)
    return B
