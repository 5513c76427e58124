"""The minimiser of a fit, as a dialogue: rounds of a method of the core, which end with a proof.

The loop is that of ``solve``. What a fit adds is its stopping rule, the proved distance of every
coefficient in standard errors, and a look at whether there is a minimiser at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal, length, unpacked
from fedsplit.clients.effects import Account, Measurement, TraceEntry
from fedsplit.clients.oracle import Removed
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Decrement, Gradient, Information, ProofScalars
from fedsplit.dialogue import BudgetSpent, Dialogue, NoAnswer, advance
from fedsplit.loop import certificate as core
from fedsplit.loop.certificate import NOT_ASKED, Certificate, Facts
from fedsplit.loop.result import Diverged, Result, RunState, StoppedBy
from fedsplit.loop.run import Outcome, iterate
from fedsplit.loop.stopping import STANDSTILL, heard_since
from fedsplit.loop.trace import Trace
from fedsplit.methods.information import FedSplitInformation, Newton
from fedsplit.methods.method import Evidence, Method, estimated_gap
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.server.federation import Everyone, Reported
from fedsplit.regression.server.problem import FitProblem, inverse
from fedsplit.regression.server.separation import (
    Limit,
    LimitNewton,
    SeparationSearch,
    leading,
    regular,
)

PROOF = 3
"""The questions of a proof: gradients, information matrices, scalars."""


class Proof(NamedTuple):
    """What the clients answered at x, and what it proves.

    Attributes
    ----------
    x : (d,) array
    gradients : (m, d) array
    information : (m, d, d) array
        The Hessians, each with its share of the penalty's ridge.
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


def proof_of(
    x: Array,
    gradients: Array,
    information: Array,
    scalars: ProofScalars,
    penalty: FitPenalty | None = None,
    subgradient: Array | None = None,
    least: Array | None = None,
    kernel: Array | None = None,
) -> Proof:
    """What follows from answers at x.

    Parameters
    ----------
    x, gradients, information, scalars, kernel
        As in ``Proof``, without the penalty. Along a kernel F is constant, but for rounding, and
        the proof is about all other directions.
    subgradient : (d,) array or None
        One of the penalty at x.
    least : (d, d) array or None
        At most the Hessian of the sum; None where that is known.
    """
    H = information.sum(axis=0) if least is None else least.copy()
    if penalty is not None:
        information = add_diagonal(information.copy(), penalty.l2 / len(gradients))
        add_diagonal(H[None], penalty.l2)
    slope = gradients.sum(axis=0)
    if subgradient is not None:
        slope = slope + subgradient
    certificate = Facts(x, slope, scalars, penalty).certificate(regular(H, kernel))
    return Proof(x, gradients, information, scalars, certificate, kernel)


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
    state: Any = None
    limit: Limit | None = None

    @property
    def x(self) -> Array:
        return self.proof.x


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
    promises a proof, which is then asked for: what it lacks says how much closer the next one has
    to be.

    Parameters
    ----------
    rounds : int
        The budget.
    separation : SeparationSearch or None
        Looks for coefficients that grow without bound; None where there are none, whatever the
        data.
    kernel : (d, k) array or None
        As in ``Proof``, where the method is to find such a limit.
    helped : bool
        Whether Newton steps from a proof that falls short may end the search.
    patience : float
        The round after which another method is to take over.
    count : int
        All exchanges that are in the trace.
    proof : Proof or None
        The last one.
    proofs : list of (int, Certificate)
    sure : float
        Of the tolerance: a distance that is expected to be smaller is expected to be the last.
    caution : float
        Times the gap that a move promises: that of a slow method is some hundred times larger.
    """

    method: Method[Any]
    tol: float
    rounds: int
    judge: Judge
    separation: SeparationSearch | None
    kernel: Array | None = None
    helped: bool = False
    patience: float = math.inf
    count: int = 0
    proof: Proof | None = None
    proofs: list[tuple[int, Certificate]] = field(default_factory=list)
    sure: float = 0.1
    caution: float = 100.0

    def __post_init__(self) -> None:
        self.limit = max(1, self.rounds - PROOF)
        self.certificate = NOT_ASKED  # ``iterate`` need not know what is proved
        self.x: Array | None = None  # after the last round
        self.judged: Any = None  # the state that the last proof that was asked for is about
        # whether the last point may be asked about together with how well the model fits there
        quick = isinstance(self.method, FedSplitInformation) and self.method.penalty is None
        self._may_close = quick and self.kernel is None
        self._idle = 0
        self._heard: Mask = np.zeros(0, dtype=bool)
        self._smallest = math.inf  # the least estimated gap
        self._closest = math.inf  # the least proved radius
        # A proof is asked for at this gap, about ½ radius². Until there is one, a radius of 1
        # counts as one standard error.
        self._target = 0.5 * self.tol**2

    def begin(self, m: int) -> None:
        self._heard = np.zeros(m, dtype=bool)

    @property
    def left(self) -> int:
        """How many questions the budget leaves beside a last proof."""
        return self.rounds - self.count - PROOF

    @property
    def tired(self) -> bool:
        """Whether another method is to take over."""
        return self.count >= self.patience

    def look(
        self, before: Any, state: Any, residual: float, objective: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        method = self.method
        self.x = state.x
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
            yield from self.separation.look(state, self.count, self.left - 1)
            if self.separation.found:
                return "residual"
        return stopped_by

    def _judge(self, state: Any, evidence: Evidence) -> Dialogue[StoppedBy | None]:
        """Judge what the answers of the last round prove at their x, at no price.

        The information matrices are those of the clients' own points, which are x at the end.
        """
        x = state.x
        ahead = self.method.iterate(state)
        answers = evidence.gradients, unpacked(evidence.hessians), evidence.scalars
        least = evidence.least_hessian
        proof = proof_of(x, *answers, *self._penalised(state), least, self.kernel)
        yield from self._take(proof)
        radius = math.inf if proof.certificate.radius is None else proof.certificate.radius
        # far from the tolerance the distance in standard errors can wait: it may cost a question
        if radius <= 100.0 * self.tol and (yield from self.judge.distance(proof)) <= self.tol:
            if evidence.spread.max() > 2.0**-33:  # else the matrices are those of x
                answer = yield Everyone(Information(x))
                self.proof = proof._replace(information=answer.rows)
            return "certificate"
        size = length(x)
        curvature = np.diagonal(proof.information, axis1=1, axis2=2).sum(axis=0).max()
        if curvature > 0:  # near x = 0, as with a large penalty, a standard error is the measure
            size = max(size, 1.0 / math.sqrt(curvature))
        still = length(ahead - x) <= STANDSTILL * size
        in_vain = still or 0.5 * self._closest < radius < math.inf
        self._idle = self._idle + 1 if in_vain else 0
        # Steps of second order square the distance, up to a factor that the last two have shown.
        next_one = math.inf
        if radius < self._closest < math.inf:
            next_one = radius**3 / self._closest**2
        self._closest = min(radius, self._closest)
        if self._may_close and not in_vain and next_one <= self.sure * self.tol:
            return "certificate" if (yield from self._close(ahead, proof)) else None
        # one round that brings nothing may be an accident: rounding leaves no better bound
        return "residual" if self._idle >= 3 else None

    def _close(self, x: Array, before: Proof) -> Dialogue[bool]:
        """Ask about the next point as the last one; whether it is near enough."""
        self._may_close = False
        proof = yield from self.judge.closing(x, before)
        if proof is None:
            return False
        moved = length(x - before.x)
        self.count = (yield TraceEntry("round", proof.certificate.objective, moved)).rounds
        yield from self._take(proof)
        return (yield from self.judge.distance(proof)) <= self.tol

    def _guess(
        self, before: Any, state: Any, residual: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        """Guess from the last move whether a proof would be near enough, and ask for it."""
        method = self.method
        iterate = method.iterate(state)
        gap = estimated_gap(iterate - method.iterate(before), method.step_of(state))
        yield Reported(gap, proof=core.prove(state.x, *self._penalised(state)))
        still = residual <= STANDSTILL * length(iterate) and gap > 0.5 * self._smallest
        close = self.caution * gap <= self._target
        self._smallest = float(np.fmin(self._smallest, gap))
        self._heard = heard_since(still or close, self._heard, account.present)
        self._idle = self._idle + 1 if still else 0
        if self.tired or (self._heard.all() and (close or self._stands)):
            return (yield from self.prove(state))
        return None

    @property
    def _stands(self) -> bool:
        """Whether the method moves no more, wherever that is."""
        return self._idle >= 5  # where moves are all that is known, a few may be an accident

    def prove(self, state: Any) -> Dialogue[StoppedBy | None]:
        """Ask for a proof at x; None if it falls short, and the rounds are to go on.

        A proof that shows something, but not enough, gives a Newton step, which usually reaches the
        rounding of the gradient. Methods with a penalty, and baselines, have no such help.
        """
        self.judged = state
        penalty, subgradient = self._penalised(state)
        proof = yield from self._ask(state.x, penalty, subgradient)
        distance = yield from self.judge.distance(proof)
        while self.helped and self.tol < distance < math.inf and self.left >= 0:
            step = inverse(proof.hessian) @ proof.gradients.sum(axis=0)
            if np.isnan(step).any():
                break
            closer = yield from self._ask(proof.x - step, None, None)
            nearer = yield from self.judge.distance(closer)
            if not nearer < 0.5 * distance:
                break
            proof, distance = closer, nearer
        self.proof = proof
        if distance <= self.tol:
            return "certificate"
        # A singular information, as of fewer rows than columns, proves nothing at any x. A penalty
        # still has its minimiser: one small move may be an accident, four are not.
        hopeless = math.isinf(distance) and penalty is None
        if self.left <= 0 or self.tired:
            return "rounds"
        if len(self.proofs) >= 4 or self._stands or hopeless:
            return "residual"
        radius = proof.certificate.radius
        unit = distance / radius if radius and math.isfinite(distance) else 1.0
        self._target = 0.5 * 100.0 ** -len(self.proofs) * (self.tol / unit) ** 2
        return None

    def _ask(
        self, x: Array, penalty: FitPenalty | None, subgradient: Array | None
    ) -> Dialogue[Proof]:
        """Ask ``PROOF`` questions of every client, which are part of the run."""
        gradients = (yield Everyone(Gradient(x))).rows
        information = (yield Everyone(Information(x))).rows
        slope = gradients.sum(axis=0)
        if subgradient is not None:
            slope = slope + subgradient
        scalars = ProofScalars(**(yield Everyone(Decrement(x, slope))).parts)
        proof = proof_of(x, gradients, information, scalars, penalty, subgradient)
        self.count = (yield TraceEntry("certificate")).rounds
        yield from self._take(proof)
        return proof

    def _penalised(self, state: Any) -> tuple[Any, Array | None]:
        """The penalty, and its subgradient at the x of a state; None without a penalty."""
        penalty = self.method.penalty
        return penalty, None if penalty is None else self.method.subgradient(state)

    def _take(self, proof: Proof) -> Dialogue[None]:
        """Note a proof, and report it."""
        self.proof = proof
        self.proofs.append((self.count, proof.certificate))
        yield Reported(proved=proof.certificate.gap)

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
    patience: int = 60,
) -> Dialogue[Minimum]:
    """Rounds of a method until a proof, from x or from a state of the method.

    A run that has gone on for long is a hard one, or has no minimiser: Newton's method takes over,
    whose rounds are expensive but few, without a penalty and for methods with
    ``newton_may_finish``, if the clients allow it; other methods are to show where they stop. Where
    coefficients grow without bound, and that is reported, the result is the limit.

    Parameters
    ----------
    method : Method
        With the penalty, if there is one.
    x : (d,) array
    patience : int
        The rounds after which Newton's method takes over.

    Raises
    ------
    Unbounded
        If there is no minimiser, and the limit is not to be reported.
    Removed
        If clients have left: the others agree anew, and start from ``reached``.
    """
    settings = problem.settings
    method = method.suited(problem.m, len(x))
    separation = None
    if method.penalty is None and not problem.bounded:
        quick = isinstance(method, FedSplitInformation) and not isinstance(method, Newton)
        separation = SeparationSearch(problem, span=2 if quick else 5)
    x = x if state is None else state.x
    start = method.penalised((yield Measurement(x)), x)
    before = (yield TraceEntry("setup", start)).rounds  # those of earlier searches
    budget = before + settings.rounds
    rule = ProvedDistance(method, settings.tol, budget, judge, separation, count=before)
    rule.helped = method.newton_may_finish and method.penalty is None
    if rule.helped and problem.rows.matrices:
        rule.patience = before + patience
    limit: Limit | None = None
    try:
        while True:
            state, stopped_by = yield from _rounds(rule, problem.m, x, state, start)
            kernel = None
            if rule.tired and stopped_by != "certificate" and rule.left > 0 and rule.proof:
                x = rule.proof.x
                if separation is not None:
                    yield from separation.search(x, rule.left)
                    rule.count = (yield TraceEntry("certificate")).rounds
            elif separation is None or not separation.found:
                break
            if separation is not None and separation.found:
                limit = yield from separation.limit(state.x, rule.left)
                x, kernel = limit.x, limit.kernel
            else:
                separation = None  # there was none, after so many rounds
            method = Newton() if kernel is None else LimitNewton(kernel=kernel)
            rule = replace(
                rule, method=method, kernel=kernel, separation=separation, patience=math.inf
            )
            state, start = None, math.nan
    except Removed as gone:
        if rule.x is not None:
            gone.reached = problem.by_name(rule.x)
        raise
    proof = rule.proof
    assert proof is not None  # as every way out of the rounds has one
    converged = stopped_by == "certificate"
    weak = () if converged else undetermined(proof.hessian, problem.names, problem.basis)
    return Minimum(proof, rule.proofs, rule.count, converged, weak, state, limit)


def _rounds(
    rule: ProvedDistance, m: int, x: Array, state: Any, start: float
) -> Dialogue[tuple[Any, StoppedBy]]:
    """Rounds of the rule's method until it stops them, and why they ended.

    They leave of the budget what a last proof needs.
    """
    rounds = iterate(rule.method, x, m, rule, state=state, start=start)
    asked = 0  # in this round
    event: Any = None
    while True:
        try:
            question = advance(rounds, event)
        except StopIteration as end:
            outcome: Outcome = end.value
            break
        if isinstance(question, CostQuestion):  # of the method: those of the rule insist
            if rule.count + asked >= rule.limit:
                event = BudgetSpent()
                continue
            asked += 1
            if rule.method.unanimous:
                question = Everyone(question)
        try:
            event = yield question
        except NoAnswer as interruption:
            event = interruption
        if isinstance(event, Account):
            rule.count, asked = event.rounds, 0
    state, stopped_by = outcome.state, outcome.stopped_by
    separation = rule.separation
    if outcome.direction is not None and separation is not None:
        raise separation.error(outcome.direction, proved=True)
    if stopped_by == "diverged":
        raise _diverged(outcome, rule)
    found = separation is not None and separation.found
    if not found and rule.method.evidence(state) is None and rule.judged is not state:
        stopped_by = (yield from rule.prove(state)) or stopped_by
    return state, stopped_by


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
