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
from fedsplit.clients.effects import TraceEntry
from fedsplit.clients.local_models import ModifiedScore
from fedsplit.clients.oracle import Removed
from fedsplit.clients.questions import ProofScalars
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.loop.certificate import Certificate
from fedsplit.regression.server.federation import Reported
from fedsplit.regression.server.minimise import Minimum, Proof
from fedsplit.regression.server.problem import FitProblem, inverse

LAG = 0.1
"""The leverages of the last x serve at this one if they move the score by a smaller share."""

LONGEST = 5.0
"""A step that the objective refuses moves no predictor by more, when it is tried again."""

MEMORY = 10
"""How many moves, and changes of the penalty's gradient, correct the curvature."""

LEAST_CURVATURE = 0.1
"""Of that of F: along moves with less, the curvature of F is taken."""

MOST_CUTS = 40
"""How often a step is shortened before the search gives up."""

STANDSTILL = 20
"""So many steps that neither lower the objective nor halve the score: the rest is rounding."""

REASON = "the penalised likelihood need not be concave: a stationary point is all that is proved"


@dataclass(frozen=True)
class FirthPoint:
    """What all clients answered about x.

    Attributes
    ----------
    x : (d,) array
    V : (d, d) array
        What the leverages were computed with.
    hessians : (m, d(d + 1)/2) array
        ∇²f_j(x), the entries on and below the diagonal.
    parts : mapping of str to array
        The answers to ``ModifiedScore``, one row per client.
    """

    x: Array
    V: Array
    hessians: Array
    parts: Mapping[str, Array]

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


@dataclass(frozen=True)
class FirthMinimum(Minimum):
    """Where the rounds ended.

    Attributes
    ----------
    point : FirthPoint
        At x.
    """

    point: FirthPoint = field(kw_only=True)


def firth(problem: FitProblem, x: Array) -> Dialogue[FirthMinimum]:
    """Find a stationary point of the penalised likelihood, from x.

    Each question is about a new x, with the inverse of the last H for V. Where that moves the score
    by too much, it is asked again with the H that came back: so every point costs a client one
    matrix, and the last one a second, for the standard errors. A step at which the objective rises
    is shortened. Without more, convergence is linear, since H is not the Hessian of the objective:
    changes of the gradient of the penalty correct it as in BFGS.
    """
    search = _Search(problem.settings.tol, problem.settings.rounds)
    mean = problem.null_mean(0.0)
    # the columns are orthonormal over all clients
    V = np.eye(problem.d) / (problem.pool.weight * mean * (1.0 - mean))
    now: FirthPoint | None = None
    try:
        now = yield from search.ask(x, V, x)
        if np.isnan(now.inverse).any():
            raise InputError("no row says anything at the start: offsets are too large for firth")
        now = yield from search.consistent(now)
        pairs: list[tuple[Array, Array]] = []
        least = now.distance
        idle = 0
        while now.distance > search.tol and idle < STANDSTILL:
            after, pairs = yield from search.advance(now, pairs)
            if after is None:
                break
            # the move, and how the gradient of the penalty -½ log det H changed with it
            change = (now.parts["slope"] - after.parts["slope"]).sum(axis=0)
            pairs = [*pairs, (after.x - now.x, change)][-MEMORY:]
            idle += 1
            if after.objective < now.objective - now.rounding:
                idle = 0
            if after.distance <= 0.5 * least:
                least = after.distance
                idle = 0
            now = after
        if "augmented" not in now.parts:
            now = yield from search.ask_again(now, augmented=True)
    except Removed as gone:
        if now is not None:
            gone.reached = problem.by_name(now.x)
        raise
    certificate = Certificate(None, None, now.objective, REASON)
    proof = Proof(
        now.x, now.parts["gradient"], unpacked(now.hessians), _no_bounds(now), certificate
    )
    return FirthMinimum(
        proof, [(search.count, certificate)], search.count, now.distance <= search.tol, point=now
    )


def _no_bounds(now: FirthPoint) -> ProofScalars:
    """Scalars by which only the score is claimed to be small, not a distance."""
    nothing = np.zeros(len(now.hessians))
    unknown = nothing + np.inf
    return ProofScalars(
        value=now.parts["value"],
        q=unknown,
        mu=nothing,
        ell=nothing,
        norm=nothing,
        leverage=unknown,
        floor=now.parts["floor"],
        steady=nothing,
    )


@dataclass
class _Search:
    """The questions of one search.

    Attributes
    ----------
    tol : float
        Bound on the length of the modified score in the norm of H⁻¹.
    rounds : int
        The most questions.
    count : int
        Those so far.
    """

    tol: float
    rounds: int
    count: int = 0

    @property
    def spent(self) -> bool:
        """Whether only the question for the standard errors is left."""
        return self.count >= self.rounds - 1

    def ask(self, x: Array, V: Array, before: Array) -> Dialogue[FirthPoint]:
        """Ask about a new x."""
        answer = yield ModifiedScore(x, packed(V), before, hessian=True, augmented=False)
        point = FirthPoint(x, V, answer.parts["hessian"], answer.parts)
        return (yield from self._recorded(point, before))

    def ask_again(self, point: FirthPoint, augmented: bool) -> Dialogue[FirthPoint]:
        """Ask about the same x with H⁻¹ for V."""
        x, V = point.x, point.inverse
        answer = yield ModifiedScore(x, packed(V), x, hessian=False, augmented=augmented)
        return (yield from self._recorded(FirthPoint(x, V, point.hessians, answer.parts), x))

    def _recorded(self, point: FirthPoint, before: Array) -> Dialogue[FirthPoint]:
        """Record the last question, which is a round of its own."""
        moved = float(np.linalg.norm(point.x - before))
        account = yield TraceEntry("round", point.objective, moved)
        self.count = account.rounds
        finite = math.isfinite(point.objective)
        yield Reported(0.5 * point.score**2 if finite else math.nan)
        return point

    def consistent(self, point: FirthPoint) -> Dialogue[FirthPoint]:
        """The point with leverages that are close enough to those at x."""
        if point.lag <= LAG * max(point.score, self.tol) or self.spent:
            return point
        # if this is the end, the standard errors come with it
        return (yield from self.ask_again(point, augmented=point.score <= self.tol))

    def advance(
        self, now: FirthPoint, pairs: list[tuple[Array, Array]]
    ) -> Dialogue[tuple[FirthPoint | None, list[tuple[Array, Array]]]]:
        """The next x at which the objective does not rise, None if there is none, and its pairs."""
        step = -_inverse_curvature(now, pairs) @ now.gradient
        for _ in range(MOST_CUTS):
            if self.spent or not np.isfinite(step).all():
                break
            point = yield from self.ask(now.x + step, now.inverse, now.x)
            if point.objective <= now.objective + now.rounding:
                return (yield from self.consistent(point)), pairs
            # the curvature that was learnt elsewhere misleads here
            pairs = []
            step = step * min(0.5, LONGEST / max(point.parts["spread"].max(), LONGEST))
        return None, pairs


def _inverse_curvature(now: FirthPoint, pairs: list[tuple[Array, Array]]) -> Array:
    """H⁻¹, updated to take Hs and the change of the penalty's gradient to each move s."""
    B = now.inverse
    for s, change in pairs:
        y = now.hessian @ s + change
        if s @ y < LEAST_CURVATURE * (s @ now.hessian @ s):
            continue
        R = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        B = R.T @ B @ R + np.outer(s, s) / (s @ y)
    return B
