"""The minimiser of a fit, as a dialogue: rounds of a method of the core, which end with a proof.

The loop is that of ``solve``. What a fit adds is its stopping rule, the proved distance of every
coefficient in standard errors, and a look at whether there is a minimiser at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal, length, unpacked
from fedsplit.clients.effects import Account, Measurement, TraceEntry
from fedsplit.clients.oracle import Removed
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Decrement, Gradient, Information, ProofScalars
from fedsplit.dialogue import BudgetSpent, Dialogue, Interruption, advance
from fedsplit.loop.certificate import NOT_ASKED, Certificate, Facts
from fedsplit.loop.result import Diverged, Result, RunState, StoppedBy
from fedsplit.loop.run import Outcome, iterate
from fedsplit.loop.stopping import STANDSTILL, heard_since
from fedsplit.loop.trace import Trace
from fedsplit.methods.information import FedSplitInformation, Newton
from fedsplit.methods.method import Evidence, Method, estimated_gap
from fedsplit.methods.server_step import Expansions, server_step
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.server.federation import Everyone, Reported
from fedsplit.regression.server.problem import FitProblem, inverse
from fedsplit.regression.server.separation import Limit, SeparationSearch, leading
from fedsplit.statistic import Values

R = TypeVar("R")

PROOF = 3
"""The questions of a proof: gradients, information matrices, scalars."""

EXACT = 2.0**-33
"""Information matrices that can be off by no larger share, about 1e-10, are those of x."""

NEAR = 100.0
"""Times the tolerance: a radius within which the distance in standard errors is computed."""

CAUTION = 100.0
"""Times the gap that a move promises: that of a slow method is some hundred times larger."""

SURE = 0.1
"""Of the tolerance: a distance that is expected to be smaller is expected to be the last."""

IDLE = 3
"""Rounds in a row that halve no bound, or stand still, after which the search ends."""

PATIENCE = 60
"""After this many rounds Newton's method takes over."""


class Proof(NamedTuple):
    """What the clients answered at x, and what it proves.

    Attributes
    ----------
    x : (d,) array
    gradients : (m, d) array
    information : (m, d, d) array
        The Hessians, each with its share of the penalty's ridge.
    scalars : ProofScalars
    certificate : Certificate
    kernel : (d, k) array or None
        An orthonormal basis of the directions that nothing determines in the limit of a fit whose
        coefficients grow without bound; None where there are none.
    """

    x: Array
    gradients: Array
    information: Array
    scalars: ProofScalars
    certificate: Certificate
    kernel: Array | None = None

    @property
    def hessian(self) -> Array:
        """The information of all clients, (d, d), made regular along the kernel."""
        return regular(self.information.sum(axis=0), self.kernel)


def regular(H: Array, kernel: Array | None) -> Array:
    """H, made regular along its kernel: what is orthogonal to that does not depend on how."""
    if kernel is None:
        return H
    outside = np.eye(len(H)) - kernel @ kernel.T
    return outside @ H @ outside + float(np.diag(H).max()) * kernel @ kernel.T


@dataclass(frozen=True)
class LimitNewton(Newton):
    """Newton's method outside of a kernel: what rounding has left of H there is no curvature."""

    kernel: Array = field(kw_only=True)

    def minimiser(self, models: Expansions, x: Array) -> tuple[Array, Array]:
        g = models.gradient(x)
        outside = g - self.kernel @ (self.kernel.T @ g)
        return server_step(x, outside, regular(models.hessian(), self.kernel), None)


def prove(x: Array, penalty: FitPenalty | None, subgradient: Array | None) -> Dialogue[Proof]:
    """Ask ``PROOF`` questions of every client, and prove what follows.

    Parameters
    ----------
    x : (d,) array
    penalty : FitPenalty or None
    subgradient : (d,) array or None
        One of the penalty at x.
    """
    gradients = (yield Everyone(Gradient(x))).rows
    information = (yield Everyone(Information(x))).rows.copy()
    if penalty is not None:
        add_diagonal(information, penalty.l2 / len(gradients))
    slope = gradients.sum(axis=0)
    if subgradient is not None:
        slope = slope + subgradient
    scalars = ProofScalars(**(yield Everyone(Decrement(x, slope))).parts)
    certificate = Facts(x, slope, scalars, penalty).certificate(information.sum(axis=0))
    return Proof(x, gradients, information, scalars, certificate)


def prove_by_evidence(
    evidence: Evidence,
    x: Array,
    penalty: FitPenalty | None,
    subgradient: Array | None,
    kernel: Array | None = None,
) -> Proof:
    """What the answers of one round of ``FedSplitInformation`` prove at its x, without a question.

    The information matrices are those of the clients' own points, which are x at the end. Along a
    kernel F is constant, and the proof is about all other directions.
    """
    information = unpacked(evidence.hessians)
    H = evidence.least_hessian
    slope = evidence.gradients.sum(axis=0)
    if penalty is not None:
        add_diagonal(information, penalty.l2 / len(evidence.spread))
        add_diagonal(H[None], penalty.l2)
    if subgradient is not None:
        slope = slope + subgradient
    if kernel is not None:
        slope = slope - kernel @ (kernel.T @ slope)
    certificate = Facts(x, slope, evidence.scalars, penalty).certificate(regular(H, kernel))
    return Proof(x, evidence.gradients, information, evidence.scalars, certificate, kernel)


@dataclass(frozen=True)
class Minimum:
    """Where the rounds ended, in their own coordinates.

    Attributes
    ----------
    proof : Proof
        At x.
    proofs : sequence of (int, Certificate)
        The round of each proof, and what it proved.
    rounds : int
        All exchanges about costs until then, those of earlier searches included.
    converged : bool
        Whether the proved distance is within the tolerance.
    undetermined : sequence of str
        If it is not, the columns of which there is hardly any information.
    still : float
        How far the last round moved the method's own variable, as a share of its length.
    state : Any
        The method's, to continue from.
    limit : Limit or None
        What grows without bound, if anything does.
    """

    proof: Proof
    proofs: Sequence[tuple[int, Certificate]]
    rounds: int
    converged: bool
    undetermined: Sequence[str] = ()
    still: float = math.inf
    state: Any = None
    limit: Limit | None = None

    @property
    def x(self) -> Array:
        return self.proof.x


def proof_of_costs(x: Array, costs: Sequence[Values], known: ProofScalars) -> Proof:
    """What costs, gradients and Hessians at x prove, with scalars that do not depend on x."""
    gradients = np.stack([each["slope"][:, 0] for each in costs])
    information = np.stack([each["curvature"] for each in costs])
    scalars = known._replace(
        value=np.array([each["value"][0, 0] for each in costs]),
        leverage=np.full(len(costs), np.inf),
        steady=np.zeros(len(costs)),
    )
    facts = Facts(x, gradients.sum(axis=0), scalars)
    certificate = facts.certificate(information.sum(axis=0))
    return Proof(x, gradients, information, scalars, certificate)


class Judge(Protocol):
    """What makes standard errors of proofs."""

    def distance(self, proof: Proof) -> Dialogue[float]:
        """How many standard errors a coefficient is off at most; inf if that is not known."""

    def closing(self, x: Array, before: Proof) -> Dialogue[Proof | None]:
        """A proof at a point that is probably the last, with all that is to be known there.

        None if that cannot be asked at once.
        """


@dataclass
class ProvedDistance:
    """Stop when every coefficient is proved to be within ``tol`` standard errors of the pooled one.

    A method that brings evidence has a proof in every round. Others stop where the last move
    promises a proof, which is then asked for.

    Parameters
    ----------
    method : Method
    tol : float
    rounds : int
        The budget.
    judge : Judge
    separation : SeparationSearch or None
        Looks for coefficients that grow without bound; None where there are none, whatever the
        data.
    helped : bool
        Whether Newton steps may end the search.
    patience : float
        The round after which another method is to take over.

    Attributes
    ----------
    proof : Proof
        The last one.
    proofs : list of (int, Certificate)
    count, asked : int
        All exchanges that are in the trace, and those of this round that are not.
    x : (d,) array or None
        After the last round.
    still : float
        As in ``Minimum``.
    """

    method: Method[Any]
    tol: float
    rounds: int
    judge: Judge
    separation: SeparationSearch | None
    helped: bool = False
    patience: float = math.inf
    proofs: list[tuple[int, Certificate]] = field(default_factory=list)

    certificate = NOT_ASKED  # ``iterate`` need not know what is proved

    def __post_init__(self) -> None:
        self.limit = max(1, self.rounds - PROOF)
        self.proof: Proof | None = None
        self.x: Array | None = None
        self.still = math.inf
        self.count = 0
        self.asked = 0
        self.promised = False  # the next point is expected to be the last
        self._may_close = self.method.penalty is None and isinstance(
            self.method, FedSplitInformation
        )
        self.stands = False  # the method moves no more, wherever that is
        self._idle = 0  # rounds in a row that stood still, or halved no bound
        self._kernel: Array | None = None  # as in ``Proof``
        self._heard: Mask = np.zeros(0, dtype=bool)
        self._smallest = math.inf  # estimated gap
        self._closest = math.inf  # the least proved radius
        # A proof is asked for at an estimated gap of _target, a share of the gap that would do:
        # about ½ radius². Until there is a proof, a radius of 1 counts as one standard error.
        self._share = 1.0
        self._target = 0.5 * self.tol**2

    def begin(self, m: int) -> None:
        self._heard = np.zeros(m, dtype=bool)

    @property
    def left(self) -> int:
        """How many questions the budget leaves beside a last proof."""
        return self.rounds - self.count - PROOF

    def take_over(self, kernel: Array | None = None) -> None:
        """Go on with Newton's method, which needs no other help, perhaps in a limit."""
        self._kernel = kernel
        self.method = Newton() if kernel is None else LimitNewton(kernel=kernel)
        self.patience = math.inf
        self._may_close = False
        self._idle = 0
        self._closest = math.inf

    def close(self, state: Any) -> Dialogue[bool]:
        """Ask about the next point as the last one; whether it is near enough."""
        self._may_close = False
        x = self.method.iterate(state)
        assert self.proof is not None
        proof = yield from self.judge.closing(x, self.proof)
        if proof is None:
            return False
        moved = length(x - state.x)
        account = yield TraceEntry("round", proof.certificate.objective, moved)
        self.count = account.rounds
        yield from self.take(proof)
        return (yield from self.judge.distance(proof)) <= self.tol

    def closer(self, unit: float) -> None:
        """Ask for the next proof at a hundredth of the gap; a radius of 1 is ``unit`` errors."""
        self._share *= 0.01
        self._target = 0.5 * self._share * (self.tol / (1.0 if math.isinf(unit) else unit)) ** 2

    def subgradient(self, state: Any) -> Array | None:
        """The penalty's at the x of a state, (d,); None without a penalty."""
        return None if self.method.penalty is None else self.method.subgradient(state)

    def take(self, proof: Proof) -> Dialogue[None]:
        """Note a proof, and report it."""
        self.proof = proof
        self.proofs.append((self.count, proof.certificate))
        yield Reported(proved=proof.certificate.gap)

    def look(
        self, before: Any, state: Any, residual: float, objective: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        method = self.method
        iterate = method.iterate(state)
        self.x = state.x
        self.count = account.rounds
        self.still = residual / max(length(iterate), 1e-300)
        evidence = method.evidence(state)
        if evidence is not None:
            if evidence is method.evidence(before):
                return None  # a step was refused: this has been judged
            stopped_by = yield from self._judge(state, evidence)
        elif residual == 0.0 and not np.array_equal(method.step_of(before), method.step_of(state)):
            return None  # a step was refused: a shorter one is to come
        else:
            stopped_by = yield from self._guess(before, state, residual, account)
        if stopped_by is None and self.separation is not None:
            yield from self.separation.look(state, account.rounds, self.left - 1)
            if self.separation.found:
                return "residual"
        return stopped_by

    def _judge(self, state: Any, evidence: Evidence) -> Dialogue[StoppedBy | None]:
        """Judge what the answers of the last round prove at their x, at no price."""
        x = state.x
        penalty: Any = self.method.penalty
        proof = prove_by_evidence(evidence, x, penalty, self.subgradient(state), self._kernel)
        yield from self.take(proof)
        radius = math.inf if proof.certificate.radius is None else proof.certificate.radius
        # the distance in standard errors may need another question
        if radius <= NEAR * self.tol and (yield from self.judge.distance(proof)) <= self.tol:
            if evidence.spread.max() > EXACT:
                answer = yield Everyone(Information(x))
                self.proof = proof._replace(information=answer.rows)
            return "certificate"
        size = length(x)
        curvature = np.diagonal(proof.information, axis1=1, axis2=2).sum(axis=0).max()
        if curvature > 0:  # near x = 0, as with a large penalty, a standard error is the measure
            size = max(size, 1.0 / math.sqrt(curvature))
        still = length(self.method.iterate(state) - x) <= STANDSTILL * size
        self._idle += 1
        if not (still or 0.5 * self._closest < radius < math.inf):
            self._idle = 0
        # Steps of second order square the distance, up to a factor that the last two have shown.
        ahead = radius**3 / self._closest**2 if radius < self._closest < math.inf else math.inf
        self.promised = not self._idle and ahead <= SURE * self.tol
        self._closest = min(radius, self._closest)
        if self._idle >= IDLE or (self.promised and self._may_close):
            return "residual"  # rounding leaves no better bound, or the next one will do
        return None

    def _guess(
        self, before: Any, state: Any, residual: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        """Guess from the last move whether a proof would be near enough."""
        method = self.method
        iterate = method.iterate(state)
        gap = estimated_gap(iterate - method.iterate(before), method.step_of(state))
        yield Reported(gap, proof=self._measured(state))
        still = residual <= STANDSTILL * length(iterate) and gap > 0.5 * self._smallest
        close = CAUTION * gap <= self._target
        self._smallest = float(np.fmin(self._smallest, gap))
        self._heard = heard_since(still or close, self._heard, account.present)
        everyone = bool(self._heard.all())
        self._idle = self._idle + 1 if still else 0
        # one such round may be an accident, and so may a few
        self.stands = self._idle >= 5 and everyone
        done = self.stands or (close and everyone) or account.rounds >= self.patience
        return "residual" if done else None

    def _measured(self, state: Any) -> Dialogue[Certificate]:
        """What a proof at x would show, for whoever watches."""
        penalty: Any = self.method.penalty
        proving = prove(state.x, penalty, self.subgradient(state))
        event: Any = None
        while True:
            try:
                event = yield advance(proving, event).question
            except StopIteration as end:
                proof: Proof = end.value
                return proof.certificate

    def finish(self, state: Any, account: Account) -> Dialogue[None]:
        """Nothing: the last proof is asked for after the rounds."""
        yield from ()

    def conclude(self, state: Any, stopped_by: StoppedBy) -> tuple[Certificate, bool]:
        return NOT_ASKED, stopped_by == "certificate"


def minimise(
    problem: FitProblem,
    method: Method[Any],
    judge: Judge,
    x: Array,
    state: Any = None,
) -> Dialogue[Minimum]:
    """Rounds of a method until a proof, from x or from a state of the method.

    A proof that shows something, but not enough, gives a Newton step, which usually reaches the
    rounding of the gradient. A run that has gone on for long is a hard one, or has no minimiser:
    Newton's method takes over, whose rounds are expensive but few. Both happen only without a
    penalty, and only for methods with ``newton_may_finish``; other methods are to show where they
    stop. Where coefficients grow without bound, and that is reported, the result is the limit.

    Parameters
    ----------
    problem : FitProblem
    method : Method
        With the penalty, if there is one.
    judge : Judge
    x : (d,) array
    state : Any

    Raises
    ------
    Unbounded
        If there is no minimiser, and the limit is not to be reported.
    Removed
        If clients have left: the others agree anew, and start from ``reached``.
    """
    settings = problem.settings
    method = method.suited(problem.m, len(x))
    helped = method.newton_may_finish and method.penalty is None
    separation = None
    if method.penalty is None and not problem.bounded:
        separation = SeparationSearch(problem, quick=_is_quick(method))
    x = x if state is None else state.x
    objective = method.penalised((yield Measurement(x)), x)
    before = (yield TraceEntry("setup", objective)).rounds  # those of earlier searches
    budget = before + settings.rounds
    patience = before + PATIENCE if helped else math.inf
    rule = ProvedDistance(method, settings.tol, budget, judge, separation, helped, patience)
    rule.count = before
    limit: Limit | None = None
    try:
        state, stopped_by = yield from _rounds(rule, problem.m, x, state, objective)
        tired = rule.count >= rule.patience and stopped_by != "certificate"
        if tired and rule.left > 0 and rule.proof is not None:
            x = rule.proof.x
            if separation is not None:
                yield from separation.search(x, rule.left)
                rule.count = (yield TraceEntry("certificate")).rounds
            if separation is None or not separation.found:
                rule.separation = separation = None
                rule.take_over()
                state, stopped_by = yield from _rounds(rule, problem.m, x, None, math.nan)
        while separation is not None and separation.found:
            limit = yield from separation.limit(state.x, rule.left)
            rule.take_over(limit.kernel)
            state, stopped_by = yield from _rounds(rule, problem.m, limit.x, None, math.nan)
    except Removed as gone:
        if rule.x is not None:
            gone.reached = problem.by_name(rule.x)
        raise
    proof = rule.proof
    assert proof is not None  # as every way out of the rounds has one
    converged = stopped_by == "certificate"
    weak = () if converged else undetermined(proof.hessian, problem.names, problem.basis)
    return Minimum(proof, rule.proofs, rule.count, converged, weak, rule.still, state, limit)


def _is_quick(method: Method[Any]) -> bool:
    """Whether a method's steps are as long as Newton's."""
    return isinstance(method, FedSplitInformation) and not isinstance(method, Newton)


def _rounds(
    rule: ProvedDistance, m: int, x: Array, state: Any, objective: float
) -> Dialogue[tuple[Any, StoppedBy]]:
    """Rounds of the rule's method, and proofs where they bring none, until that is of no use."""
    while True:
        rounds = iterate(rule.method, x, m, rule, state=state, start=objective)
        outcome: Outcome = yield from _within(rounds, rule)
        state = outcome.state
        if outcome.direction is not None and rule.separation is not None:
            raise rule.separation.error(outcome.direction, proved=True)
        if outcome.stopped_by == "diverged":
            raise _diverged(outcome, rule)
        separated = rule.separation is not None and rule.separation.found
        if rule.promised and not separated and outcome.stopped_by == "residual":
            if (yield from rule.close(state)):
                return state, "certificate"
            continue
        if separated or rule.method.evidence(state) is not None:
            return state, outcome.stopped_by
        stopped_by = yield from _prove_end(rule, state)
        if stopped_by is not None:
            return state, stopped_by
        objective = math.nan


def _within(rounds: Dialogue[R], rule: ProvedDistance) -> Dialogue[R]:
    """The rounds, which leave of the budget what a last proof needs."""
    event: Any = None
    while True:
        try:
            question = advance(rounds, event)
        except StopIteration as end:
            result: R = end.value
            return result
        if isinstance(question, CostQuestion):  # of the method: those of the rule insist
            if rule.count + rule.asked >= rule.limit:
                event = BudgetSpent()
                continue
            rule.asked += 1
            if rule.method.unanimous:
                question = Everyone(question)
        try:
            event = yield question
        except Interruption as interruption:
            event = interruption
        if isinstance(event, Account):
            rule.count, rule.asked = event.rounds, 0


def _prove_end(rule: ProvedDistance, state: Any) -> Dialogue[StoppedBy | None]:
    """Ask for a proof where the rounds have ended without one; None if they are to go on."""
    penalty: Any = rule.method.penalty
    proof = yield from _proved(rule, state.x, penalty, rule.subgradient(state))
    distance = yield from rule.judge.distance(proof)
    while rule.helped and rule.tol < distance < math.inf and rule.left >= 0:
        step = inverse(proof.hessian) @ proof.gradients.sum(axis=0)
        if np.isnan(step).any():
            break
        closer = yield from _proved(rule, proof.x - step, None, None)
        nearer = yield from rule.judge.distance(closer)
        if not nearer < 0.5 * distance:
            break
        proof, distance = closer, nearer
    rule.proof = proof
    if distance <= rule.tol:
        return "certificate"
    radius = proof.certificate.radius
    unit = distance / radius if radius else math.inf
    # A singular information, as of fewer rows than columns, proves nothing at any x. A penalty
    # still has its minimiser: one small move may be an accident, four are not.
    hopeless = math.isinf(unit) and penalty is None
    if rule.left <= 0 or rule.count >= rule.patience:
        return "rounds"
    if len(rule.proofs) >= 4 or rule.stands or hopeless:
        return "residual"
    rule.closer(unit)
    return None


def _proved(
    rule: ProvedDistance, x: Array, penalty: FitPenalty | None, subgradient: Array | None
) -> Dialogue[Proof]:
    """A proof at x, which is part of the run."""
    proof = yield from prove(x, penalty, subgradient)
    rule.count = (yield TraceEntry("certificate")).rounds
    yield from rule.take(proof)
    return proof


def _diverged(outcome: Outcome, rule: ProvedDistance) -> Diverged:
    """The error of rounds that went astray; the driver adds their trace."""
    method = rule.method
    state = outcome.state
    result = Result(
        x=state.x,
        rounds=rule.count,
        converged=False,
        stopped_by="diverged",
        state=RunState(state, None, rule.count),
        trace=Trace(math.nan),
        method=method.described(),
        step=method.step_of(state),
        certificate=NOT_ASKED,
    )
    return Diverged(outcome.sign, method.hazard, result)


def undetermined(H: Array, columns: Sequence[str], basis: Array) -> list[str]:
    """The columns along which the information H, (d, d), is nearly zero."""
    if not np.isfinite(H).all():
        return []
    spectrum, Q = np.linalg.eigh(H)
    if spectrum[0] <= 1e-6 * spectrum[-1]:
        return leading(basis @ Q[:, 0], columns)
    return []
