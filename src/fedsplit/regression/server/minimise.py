"""The minimiser of a fit, as a dialogue: rounds of a method of the core, which end with a proof.

The loop is that of ``solve``. What a fit adds is its stopping rule, the proved distance of every
coefficient in standard errors, and a look at whether there is a minimiser at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask, length, unpacked
from fedsplit.clients.oracle import Account, Measurement, Removed, TraceEntry
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Decrement, Gradient, Information, ProofScalars
from fedsplit.dialogue import BudgetSpent, Dialogue, NoAnswer, advance
from fedsplit.loop import certificate as core
from fedsplit.loop.certificate import NOT_ASKED, Certificate
from fedsplit.loop.result import Diverged, Result, RunState, StoppedBy
from fedsplit.loop.run import Outcome, iterate
from fedsplit.loop.stopping import STANDSTILL, heard_since
from fedsplit.loop.trace import Trace
from fedsplit.methods.information import FedSplitInformation, Newton
from fedsplit.methods.method import Evidence, Method, estimated_gap
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.server.federation import Everyone, Reported
from fedsplit.regression.server.inference import Point, ask_closing, ask_fit
from fedsplit.regression.server.problem import FitProblem, inverse
from fedsplit.regression.server.separation import (
    Limit,
    LimitNewton,
    SeparationSearch,
    leading,
)

PROOF = 3
"""The questions of a proof: gradients, information matrices, scalars."""


@dataclass(frozen=True)
class Minimum:
    """Where the rounds ended, in their own coordinates."""

    point: Point
    proofs: Sequence[tuple[int, Certificate]]  # the round of each proof, and what it proved
    rounds: int  # all exchanges about costs until then, those of earlier searches included
    converged: bool
    # without convergence to the tolerance, the columns of which there is hardly any information
    undetermined: Sequence[str] = ()
    state: Any = None  # the method's, to continue from
    limit: Limit | None = None  # what grows without bound, if anything does


@dataclass
class ProvedDistance:
    """Stop when every coefficient is proved to be within ``tol`` standard errors of the pooled one.

    A method that brings evidence has a proof in every round. Others stop where the last move
    promises a proof, which is then asked for: what it lacks says how much closer the next one has
    to be. Newton steps from a proof that falls short may end the search if it is ``helped``.
    """

    problem: FitProblem
    method: Method[Any]
    rounds: int  # the budget
    # looks for coefficients that grow without bound; None where there are none
    separation: SeparationSearch | None
    patience: float = math.inf  # the round after which another method is to take over
    count: int = 0  # all exchanges that are in the trace
    point: Point | None = None  # that of the last proof
    proofs: list[tuple[int, Certificate]] = field(default_factory=list)  # with their rounds
    # of the tolerance: a distance that is expected to be smaller is expected to be the last
    sure: float = 0.1
    # times the gap that a move promises: that of a slow method is some hundred times larger
    caution: float = 100.0

    def __post_init__(self) -> None:
        self.tol = self.problem.settings.tol
        self.limit = max(1, self.rounds - PROOF)
        self.certificate = NOT_ASKED  # ``iterate`` need not know what is proved
        self.x: Array | None = None  # after the last round
        self.judged: Any = None  # the state that the last proof that was asked for is about
        # whether the last point may be asked about together with how well the model fits there
        quick = isinstance(self.method, FedSplitInformation) and self.method.penalty is None
        self.kernel = getattr(self.method, "kernel", None)  # as in ``Point``
        self._may_close = quick and self.kernel is None
        self._idle = 0  # rounds in a row that brought nothing
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
    def helped(self) -> bool:
        """Whether Newton's method may finish what this one has begun."""
        return self.method.newton_may_finish and self.method.penalty is None

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
        penalty = self._penalised(state)
        point = Point.of(self.problem, x, *answers, *penalty, least, self.kernel)
        yield from self._take(point)
        radius = math.inf if point.proved.radius is None else point.proved.radius
        # far from the tolerance the distance in standard errors can wait: it may cost a question
        if radius <= 100.0 * self.tol:
            self.point = point = yield from ask_fit(point, last=False)
            if point.distance <= self.tol:
                if evidence.spread.max() > 2.0**-33:  # else the matrices are those of x
                    information = (yield Everyone(Information(x))).rows
                    self.point = replace(point, information=information)
                return "certificate"
        size = length(x)
        curvature = np.diagonal(point.information, axis1=1, axis2=2).sum(axis=0).max()
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
            self._may_close = False
            closed = yield from ask_closing(point, ahead)
            if closed is None:
                return None
            objective = closed.proved.objective
            self.count = (yield TraceEntry("round", objective, length(ahead - x))).rounds
            yield from self._take(closed)
            return "certificate" if closed.distance <= self.tol else None
        # one round that brings nothing may be an accident: rounding leaves no better bound
        return "residual" if self._idle >= 3 else None

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
        point = yield from self._ask(state.x, penalty, subgradient)
        while self.helped and self.tol < point.distance < math.inf and self.left >= 0:
            step = inverse(point.hessian) @ point.gradients.sum(axis=0)
            if np.isnan(step).any():
                break
            closer = yield from self._ask(point.x - step, None, None)
            if not closer.distance < 0.5 * point.distance:
                break
            point = closer
        self.point, distance = point, point.distance
        if distance <= self.tol:
            return "certificate"
        # A singular information, as of fewer rows than columns, proves nothing at any x. A penalty
        # still has its minimiser: one small move may be an accident, four are not.
        hopeless = math.isinf(distance) and penalty is None
        if self.left <= 0 or self.tired:
            return "rounds"
        if len(self.proofs) >= 4 or self._stands or hopeless:
            return "residual"
        radius = point.proved.radius
        unit = distance / radius if radius and math.isfinite(distance) else 1.0
        self._target = 0.5 * 100.0 ** -len(self.proofs) * (self.tol / unit) ** 2
        return None

    def _ask(
        self, x: Array, penalty: FitPenalty | None, subgradient: Array | None
    ) -> Dialogue[Point]:
        """Ask ``PROOF`` questions of every client, which are part of the run."""
        gradients = (yield Everyone(Gradient(x))).rows
        information = (yield Everyone(Information(x))).rows
        slope = gradients.sum(axis=0)
        if subgradient is not None:
            slope = slope + subgradient
        scalars = ProofScalars(**(yield Everyone(Decrement(x, slope))).parts)
        answers = gradients, information, scalars
        point = Point.of(self.problem, x, *answers, penalty, subgradient)
        self.count = (yield TraceEntry("certificate")).rounds
        yield from self._take(point)
        if point.proved.radius is None:
            return point
        return (yield from ask_fit(point, last=False))

    def _penalised(self, state: Any) -> tuple[Any, Array | None]:
        """The penalty, and its subgradient at the x of a state; None without a penalty."""
        penalty = self.method.penalty
        return penalty, None if penalty is None else self.method.subgradient(state)

    def _take(self, point: Point) -> Dialogue[None]:
        """Note a point with its proof, and report it."""
        self.point = point
        self.proofs.append((self.count, point.proved))
        yield Reported(proved=point.proved.gap)

    def finish(self, state: Any, account: Account) -> Dialogue[None]:
        """Nothing: the last proof is asked for after the rounds."""
        yield from ()

    def conclude(self, state: Any, stopped_by: StoppedBy) -> tuple[Certificate, bool]:
        return NOT_ASKED, stopped_by == "certificate"


def minimise(
    problem: FitProblem,
    method: Method[Any],
    x: Array,
    last: Minimum | None = None,
    patience: int = 60,
) -> Dialogue[Minimum]:
    """Rounds of a method until a proof, from x or from where it ended under another penalty.

    A run that has gone on for ``patience`` rounds is a hard one, or has no minimiser: Newton's
    method takes over, whose rounds are expensive but few, without a penalty and for methods with
    ``newton_may_finish``, if the clients allow it; other methods are to show where they stop. Where
    coefficients grow without bound, and that is reported, the result is the limit.

    Raises
    ------
    Unbounded
        If there is no minimiser, and the limit is not to be reported.
    Removed
        If clients have left: the others agree anew, and start from ``reached``.
    """
    method = method.suited(problem.m, len(x))
    state: Any = None
    if last is not None:
        resumable: Any = method  # as those are that a path takes
        state = resumable.resume(last.state)
        x = state.x
    separation = None
    if method.penalty is None and not problem.bounded:
        quick = isinstance(method, FedSplitInformation) and not isinstance(method, Newton)
        separation = SeparationSearch(problem, span=2 if quick else 5)
    start = method.penalised((yield Measurement(x)), x)
    before = (yield TraceEntry("setup", start)).rounds  # those of earlier searches
    budget = before + problem.settings.rounds
    rule = ProvedDistance(problem, method, budget, separation, count=before)
    if rule.helped and problem.rows.matrices:
        rule.patience = before + patience
    limit: Limit | None = None
    try:
        while True:
            state, stopped_by = yield from _rounds(rule, x, state, start)
            method = Newton()
            if rule.tired and stopped_by != "certificate" and rule.left > 0 and rule.point:
                x = rule.point.x
                if separation is not None:
                    yield from separation.search(x, rule.left)
                    rule.count = (yield TraceEntry("certificate")).rounds
            elif separation is None or not separation.found:
                break
            if separation is not None and separation.found:
                limit = yield from separation.limit(state.x, rule.left)
                x, method = limit.x, LimitNewton(kernel=limit.kernel)
            else:
                separation = None  # there was none, after so many rounds
            rule = replace(rule, method=method, separation=separation, patience=math.inf)
            state, start = None, math.nan
    except Removed as gone:
        if rule.x is not None:
            gone.reached = problem.by_name(rule.x)
        raise
    point = rule.point
    assert point is not None  # as every way out of the rounds has one
    weak: Sequence[str] = ()
    if stopped_by != "certificate" and np.isfinite(point.hessian).all():
        spectrum, Q = np.linalg.eigh(point.hessian)
        if spectrum[0] <= 1e-6 * spectrum[-1]:  # along which nearly nothing is known
            weak = leading(problem.basis @ Q[:, 0], problem.names)
    if limit is not None:
        point = replace(point, receding=limit.receding)
    return Minimum(point, rule.proofs, rule.count, stopped_by == "certificate", weak, state, limit)


def _rounds(
    rule: ProvedDistance, x: Array, state: Any, start: float
) -> Dialogue[tuple[Any, StoppedBy]]:
    """Rounds of the rule's method until it stops them, and why they ended.

    They leave of the budget what a last proof needs.
    """
    rounds = iterate(rule.method, x, rule.problem.m, rule, state=state, start=start)
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
    separation, method = rule.separation, rule.method
    if outcome.direction is not None and separation is not None:
        raise separation.error(outcome.direction, proved=True)
    if stopped_by == "diverged":
        result = Result(
            x=state.x,
            rounds=rule.count,
            converged=False,
            stopped_by="diverged",
            state=RunState(state, None, rule.count),
            trace=Trace(math.nan),  # the driver has its rows
            method=method.described(),
            step=method.step_of(state),
            certificate=NOT_ASKED,
        )
        raise Diverged(outcome.sign, method.hazard, result)
    found = separation is not None and separation.found
    if not found and method.evidence(state) is None and rule.judged is not state:
        stopped_by = (yield from rule.prove(state)) or stopped_by
    return state, stopped_by
