"""Firth's logistic regression: the rounds, by modified scores with the leverages of all rows.

The objective is F(x) - ½ log det H(x) with H = ∇²F, which need not be convex: what is proved is
that x is a stationary point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsplit.arrays import Array, packed, unpacked
from fedsplit.clients.local_models import ModifiedScore
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import ProofScalars
from fedsplit.errors import InputError
from fedsplit.loop.certificate import Certificate
from fedsplit.loop.conversation import Conversation
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.server.inference import inverse
from fedsplit.regression.server.proof import Proof
from fedsplit.regression.server.search import Estimate, Progress

EPS = float(np.finfo(np.float64).eps)

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
class Look:
    """What all clients told about x.

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
    parts: dict[str, Array]

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

    @property
    def s(self) -> float:
        """The step: as a state of a method, a look is at x, and has no other variable."""
        return 1.0

    @property
    def iterate(self) -> Array:
        return self.x


@dataclass(frozen=True)
class FirthEstimate(Estimate):
    """Where the rounds ended.

    Attributes
    ----------
    look : Look
        At x.
    """

    look: Look


@dataclass
class FirthSearch:
    """Steps H⁻¹U* from x, with the modified score U*.

    Each question is about a new x, with the inverse of the last H for V. Where that moves the score
    by too much, it is asked again with the H that came back: so every point costs a client one
    matrix, and the last one a second, for the standard errors. A step at which the objective rises
    is shortened. Without more, convergence is linear, since H is not the Hessian of the objective:
    changes of the gradient of the penalty correct it as in BFGS.

    Parameters
    ----------
    clients : Clients
    tol : float
        Bound on the length of the modified score in the norm of H⁻¹.
    rounds : int
        The most questions.
    report : callable or None
        Called with a ``Progress`` after every question.
    """

    clients: Clients
    tol: float
    rounds: int
    report: Callable[[Progress], object] | None = None

    def __post_init__(self) -> None:
        self.x: Array | None = None  # the best so far
        self._meter = Conversation(self.clients.insistent())
        self._rows: list[Row] = []
        self._start = math.nan
        self._pairs: list[tuple[Array, Array]] = []

    def run(self, x: Array, V: Array) -> FirthEstimate:
        """Run from x, with V a guess of H⁻¹ there."""
        now = self._look(x, V, x)
        if np.isnan(now.inverse).any():
            raise InputError("no row says anything at the start: offsets are too large for firth")
        now = self._consistent(now)
        least = now.distance
        idle = 0
        while now.distance > self.tol and idle < STANDSTILL:
            self.x = now.x
            following = self._advance(now)
            if following is None:
                break
            self._remember(now, following)
            idle += 1
            if following.objective < now.objective - now.rounding:
                idle = 0
            if following.distance <= 0.5 * least:
                least = following.distance
                idle = 0
            now = following
        if "augmented" not in now.parts:
            now = self._again(now, augmented=True)
        return self._estimate(now)

    @property
    def _spent(self) -> bool:
        """Whether only the question for the standard errors is left."""
        return len(self._rows) >= self.rounds - 1

    def _look(self, x: Array, V: Array, before: Array) -> Look:
        """Ask about a new x."""
        parts = self._ask(ModifiedScore(x, packed(V), before, hessian=True, augmented=False))
        return self._seen(Look(x, V, parts["hessian"], parts), before)

    def _again(self, look: Look, augmented: bool) -> Look:
        """Ask about the same x with H⁻¹ for V."""
        V = look.inverse
        parts = self._ask(ModifiedScore(look.x, packed(V), look.x, False, augmented))
        return self._seen(Look(look.x, V, look.hessians, parts), look.x)

    def _ask(self, question: ModifiedScore) -> dict[str, Array]:
        parts: dict[str, Array] = self._meter.ask(question).parts
        return parts

    def _seen(self, look: Look, before: Array) -> Look:
        """Record the last question, which is a round of its own."""
        [exchange] = self._meter.take()
        if not self._rows:
            self._start = look.objective
        moved = float(np.linalg.norm(look.x - before))
        self._rows.append(exchange._replace(objective=look.objective, residual=moved))
        if self.report is not None:
            gap = math.nan
            if math.isfinite(look.objective):
                gap = 0.5 * look.score**2
            m = self.clients.m * self.clients.stands_for
            self.report(Progress(len(self._rows), gap, m, m, self._floats))
        return look

    @property
    def _floats(self) -> int:
        return sum(row.floats_up + row.floats_down for row in self._rows)

    def _consistent(self, look: Look) -> Look:
        """The same with leverages that are close enough to those at x."""
        if look.lag <= LAG * max(look.score, self.tol) or self._spent:
            return look
        # if this is the end, the standard errors come with it
        return self._again(look, augmented=look.score <= self.tol)

    def _advance(self, now: Look) -> Look | None:
        """The next x at which the objective does not rise; None if there is none."""
        step = -self._inverse_curvature(now) @ now.gradient
        for _ in range(MOST_CUTS):
            if self._spent or not np.isfinite(step).all():
                return None
            look = self._look(now.x + step, now.inverse, now.x)
            if look.objective <= now.objective + now.rounding:
                return self._consistent(look)
            # the curvature that was learnt elsewhere misleads here
            self._pairs = []
            step = step * min(0.5, LONGEST / max(look.parts["spread"].max(), LONGEST))
        return None

    def _remember(self, before: Look, now: Look) -> None:
        """Keep the move, and how the gradient of the penalty -½ log det H changed with it."""
        change = (before.parts["slope"] - now.parts["slope"]).sum(axis=0)
        self._pairs = [*self._pairs, (now.x - before.x, change)][-MEMORY:]

    def _inverse_curvature(self, now: Look) -> Array:
        """H⁻¹, updated to take Hs and the change of the penalty's gradient to each move s."""
        B = now.inverse
        for s, change in self._pairs:
            y = now.hessian @ s + change
            if s @ y < LEAST_CURVATURE * (s @ now.hessian @ s):
                continue
            R = np.eye(len(s)) - np.outer(y, s) / (s @ y)
            B = R.T @ B @ R + np.outer(s, s) / (s @ y)
        return B

    def _estimate(self, now: Look) -> FirthEstimate:
        parts = now.parts
        nothing = np.zeros(self.clients.m)
        unknown = np.full(self.clients.m, np.inf)
        scalars = ProofScalars(
            value=parts["value"],
            q=unknown,
            mu=nothing,
            ell=nothing,
            norm=nothing,  # only the score is claimed to be small, not a distance
            leverage=unknown,
            floor=parts["floor"],
            steady=nothing,
        )
        certificate = Certificate(None, None, now.objective, REASON)
        proof = Proof(now.x, parts["gradient"], unpacked(now.hessians), scalars, certificate)
        return FirthEstimate(
            x=now.x,
            proof=proof,
            trace=Trace(self._start, self._rows),
            proofs=[(len(self._rows), certificate)],
            floats=self._floats,
            converged=now.distance <= self.tol,
            undetermined=(),
            state=now,
            size=float(np.linalg.norm(now.x)),
            look=now,
        )
