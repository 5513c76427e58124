"""The rounds of a fit: until every coefficient is proved to be near the pooled one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Information
from fedsplit.loop.certificate import Certificate
from fedsplit.loop.conversation import Conversation
from fedsplit.loop.divergence import Divergence
from fedsplit.loop.result import Diverged, StoppedBy
from fedsplit.loop.stopping import STANDSTILL, heard_since
from fedsplit.loop.trace import Row, Trace
from fedsplit.methods.information import FedSplitInformation, Newton
from fedsplit.methods.method import Evidence, Method, estimated_gap
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.server.identifiability import (
    SPAN,
    SPAN_OF_MATRICES,
    Separation,
    Unbounded,
    undetermined,
)
from fedsplit.regression.server.inference import inverse
from fedsplit.regression.server.proof import PROOF, Proof, prove, prove_by_evidence
from fedsplit.regression.server.run import FitRun

EXACT = 2.0**-33
"""Information matrices that can be off by no larger share, about 1e-10, are those of x."""

NEAR = 100.0
"""Times the tolerance: a radius within which the distance in standard errors is looked at."""

CAUTION = 100.0
"""Times the gap that a move promises: that of a slow method is some hundred times larger."""

IDLE = 3
"""Rounds in a row that halve no bound, or stand still, after which the search ends."""

PATIENCE = 60
"""After this many rounds Newton's method takes over."""


class Progress(NamedTuple):
    """A round as a user sees it.

    Attributes
    ----------
    round : int
    gap : float
        A bound on F(x) - F*, or an estimate from the last move; nan before there is one.
    answered, clients : int
        How many clients answered, and how many there are.
    floats : int
        Sent both ways so far.
    proved : bool
        Whether the gap is a bound. After each round that is a measurement, which is not counted,
        and made only if the clients are in this process.
    """

    round: int
    gap: float
    answered: int
    clients: int
    floats: int
    proved: bool = False


@dataclass(frozen=True)
class Estimate:
    """Where the rounds ended, in their own coordinates.

    Attributes
    ----------
    x : (d,) array
    proof : Proof
        At x.
    trace : Trace
        Every round, those of proofs included.
    proofs : sequence of (int, Certificate)
        The round of each proof, and what it proved.
    floats : int
        Sent both ways.
    converged : bool
        Whether the proved distance is within the tolerance.
    undetermined : sequence of str
        If it is not, the columns of which there is hardly any information.
    state : Any
        The method's, to continue from.
    size : float
        The length of the method's own variable, which a move is compared with.
    """

    x: Array
    proof: Proof
    trace: Trace
    proofs: Sequence[tuple[int, Certificate]]
    floats: int
    converged: bool
    undetermined: Sequence[str]
    state: Any
    size: float

    def after(self, earlier: Sequence[Row]) -> Estimate:
        """The same with the rounds of an earlier run before its own."""
        if not earlier:
            return self
        floats = sum(row.floats_up + row.floats_down for row in earlier)
        proofs = [(at + len(earlier), certificate) for at, certificate in self.proofs]
        trace = Trace(self.trace.start, [*earlier, *self.trace.rows])
        return replace(self, trace=trace, proofs=proofs, floats=self.floats + floats)


@dataclass
class Search:
    """The stopping rule of a fit: the proved distance, in standard errors, is at most ``tol``.

    A proof is asked for when the last move promises one. If it proves something, but not enough,
    its gradient and information give a Newton step, which usually reaches the rounding of the
    gradient. A run that has gone on for long is a hard one, or has no minimiser: Newton's method
    takes over, whose rounds are expensive but few. Both happen only without a penalty, and only for
    methods with ``newton_may_finish``; other methods are to show where they stop.

    Parameters
    ----------
    clients : Clients
    columns : sequence of str
        The names of the coefficients, for messages.
    basis : (d, d) array
        Takes x to the coefficients of the columns.
    tol : float
    rounds : int
        The budget.
    penalty : FitPenalty or None
    bounded : bool
        Whether there is a minimiser whatever the data, such as with a ridge.
    per_radius : callable
        Given a proof, how many standard errors a distance of 1 in the Hessian's norm is at most.
    report : callable or None
        Called with a ``Progress`` after every round.
    verify : callable or None
        Given a direction, (d,), asks the clients whether rows recede along it.
    remedy : str
        What gives coefficients that would grow without bound finite estimates.
    directions : bool
        Whether the clients tell what a direction does to their rows.
    """

    clients: Clients
    columns: Sequence[str]
    basis: Array
    tol: float
    rounds: int
    penalty: FitPenalty | None
    bounded: bool
    per_radius: Callable[[Proof], float]
    report: Callable[[Progress], object] | None
    verify: Callable[[Array], bool] | None = None
    remedy: str = "add a ridge"
    directions: bool = True

    def __post_init__(self) -> None:
        self.states: list[Any] = []  # the last ones, after each round
        self._iterate: Array | None = None  # that of the last one
        self.rows: list[Row] = []  # of the trace
        verify = self.verify
        if self.penalty is not None:
            verify = None
        self._separation = Separation(self.clients, verify, self.directions)
        self._heard: Mask = np.zeros(self.clients.m, dtype=bool)
        self._helped = False
        self._patience = math.inf
        self._round = 0
        self._floats = 0
        self._smallest = np.inf  # estimated gap
        self._idle = 0  # rounds in a row that stood still
        self._stands = False
        self._closest = np.inf  # the least proved radius
        self._proofs: list[tuple[int, Certificate]] = []
        self._proof: Proof  # the last one
        # A proof is asked for at an estimated gap of _target, a share of the gap that would do:
        # about ½ radius². Until there is a proof, a radius of 1 counts as one standard error.
        self._share = 1.0
        self._target = 0.5 * self.tol**2

    def run(self, method: Method[Any], x0: Array, state: Any = None) -> Estimate:
        """FitRun from a state, or else from ``x0``."""
        if self.penalty is not None:
            method = method.with_penalty(self.penalty)
        elif method.newton_may_finish:
            self._helped = True
            self._patience = PATIENCE
        method = method.suited(self.clients.m, len(x0))
        if isinstance(method, FedSplitInformation) and not isinstance(method, Newton):
            self._separation.span = SPAN_OF_MATRICES
        run = FitRun(self.clients, method, self, self.rounds, self.penalty)
        self.rows = run.trace.rows
        try:
            result = run.go(x0 if state is None else state.x, state)
        except Diverged:
            if self._separation.direction.any():
                raise self._error(run) from None
            raise
        converged = result.stopped_by == "certificate"
        weak: Sequence[str] = ()
        if not converged:
            if self._separation.direction.any():
                raise self._error(run)
            H = self._proof.information.sum(axis=0)
            weak = undetermined(H, self.columns, self.basis)
        return Estimate(
            x=self._proof.x,
            proof=self._proof,
            trace=run.trace,
            proofs=self._proofs,
            floats=sum(row.floats_up + row.floats_down for row in run.trace.rows),
            converged=converged,
            undetermined=weak,
            state=run.state,
            size=float(np.linalg.norm(run.method.iterate(run.state))),
        )

    def begin(self, run: FitRun) -> None:
        run.limit = max(1, self.rounds - PROOF)

    def look(self, run: FitRun, before: Any, residual: float) -> StoppedBy | None:
        state = run.state
        row = run.trace.rows[-1]
        move: Array = np.full(1, np.nan)
        iterate = run.method.iterate(state)
        if self._iterate is not None and self._iterate.shape == iterate.shape:
            move = iterate - self._iterate
        self._iterate = iterate
        self.states = [*self.states[-SPAN:], state]
        self._round += 1
        self._floats += row.floats_up + row.floats_down
        evidence = run.method.evidence(state)
        if evidence is not None:
            return self._judge(run, evidence, before)
        step = run.method.step_of(state)
        if residual == 0.0 and not np.array_equal(run.method.step_of(before), step):
            return None  # a step was refused: a shorter one is to come
        gap = estimated_gap(move, step)
        self._show(run, gap)
        small = np.linalg.norm(move) <= STANDSTILL * np.linalg.norm(iterate)
        still = bool(small and gap > 0.5 * self._smallest)
        close = CAUTION * gap <= self._target
        self._smallest = np.fmin(self._smallest, gap)
        self._heard = heard_since(still or close, self._heard, run.conversation.present)
        everyone = bool(self._heard.all())
        self._idle += 1
        if not still:
            self._idle = 0
        # One such round may be an accident, and so may a few.
        self._stands = self._idle >= 5 and everyone
        if not self.bounded:
            self._look_for_separation(run, row.margin)
        spent = len(run.trace) >= self.rounds - PROOF
        done = self._stands or (close and everyone)
        if done or spent or self._round >= self._patience:
            return self.finish(run, "rounds")
        return None

    def _judge(self, run: FitRun, evidence: Evidence, before: Any) -> StoppedBy | None:
        """Look at what the answers of the last round prove at their x, at no price."""
        if evidence is run.method.evidence(before):
            return None  # a step was refused: this has been looked at
        x = run.state.x
        proof = prove_by_evidence(evidence, x, self.penalty, run.subgradient)
        self._proof = proof
        self._proofs.append((self._round, proof.certificate))
        self._tell(run, proof.certificate)
        radius = np.inf
        if proof.certificate.radius is not None:
            radius = proof.certificate.radius
        # The distance in standard errors may need another question.
        if radius <= NEAR * self.tol and self._distance(proof) <= self.tol:
            if evidence.spread.max() > EXACT:
                meter = Conversation(self.clients.insistent())
                self._proof = proof._replace(information=meter.ask(Information(x)).rows)
                _record(run, meter)
            return "certificate"
        size = np.linalg.norm(x)
        curvature = np.diagonal(proof.information, axis1=1, axis2=2).sum(axis=0).max()
        if curvature > 0:  # near x = 0, as with a large penalty, a standard error is the measure
            size = max(size, 1.0 / np.sqrt(curvature))
        still = np.linalg.norm(run.method.iterate(run.state) - x) <= STANDSTILL * size
        self._idle += 1
        if not (still or 0.5 * self._closest < radius < np.inf):
            self._idle = 0
        self._closest = min(radius, self._closest)
        if self._idle >= IDLE:
            return "residual"  # rounding leaves no better bound
        if not self.bounded:
            self._look_for_separation(run, run.trace.rows[-1].margin)
            self._round = len(run.trace)
        return None

    def finish(self, run: FitRun, stopped_by: StoppedBy) -> StoppedBy | None:
        if run.method.evidence(run.state) is not None:
            return stopped_by  # every round has been looked at
        proof = self._prove(run, run.state.x, run.subgradient)
        if self._helped:
            proof = self._polish(run, proof)
        self._proof = proof
        unit = self.per_radius(proof)
        if self._distance(proof) <= self.tol:
            return "certificate"
        if len(run.trace) + PROOF >= self.rounds:
            return stopped_by
        if self._round >= self._patience:
            # Newton's method shows whether there is a minimiser.
            if not self.bounded:
                self._separation.search(proof.x, self._left(run))
                self._refuse_separation(run)
            self.bounded = True
            self._patience = math.inf
            self.begin(run)
            run.start_with(Newton(), proof.x)
        else:
            # A singular information, as of fewer rows than columns, proves nothing at any x. A
            # penalty still has its minimiser: one small move may be an accident, four are not.
            hopeless = np.isinf(unit) and self.penalty is None
            if len(self._proofs) >= 4 or self._stands or hopeless:
                return stopped_by
            self.begin(run)
        # The next proof is asked for at a hundredth of the gap.
        self._share *= 0.01
        if np.isinf(unit):
            unit = 1.0
        self._target = 0.5 * self._share * (self.tol / unit) ** 2
        run.divergence = Divergence(run.objective)
        return None

    def _left(self, run: FitRun) -> int:
        """How many questions the budget leaves before a last round and its proof."""
        return self.rounds - len(run.trace) - PROOF - 1

    def _look_for_separation(self, run: FitRun, margin: float) -> None:
        """Raise Unbounded if the last rounds show that the likelihood has no maximum."""
        self._separation.look(margin, self._round, self.states, self._left(run))
        self._refuse_separation(run)

    def _refuse_separation(self, run: FitRun) -> None:
        if self._separation.direction.any():
            raise self._error(run)
        _record(run, self._separation.meter)

    def _error(self, run: FitRun) -> Unbounded:
        _record(run, self._separation.meter)
        return self._separation.error(self.columns, self.basis, run.trace.rows, self.remedy)

    def _show(self, run: FitRun, estimate: float) -> None:
        """Report a round, with a proof of its gap if that is quick and costs nothing."""
        if self.report is None:
            return
        answered = run.trace.rows[-1].answered
        m = self.clients.m * self.clients.stands_for
        now = Progress(self._round, estimate, answered, m, self._floats)
        # With many coefficients a proof takes longer than a round.
        if not self.clients.recorded and self.clients.d <= 200:
            proof = prove(self.clients, run.state.x, self.penalty, run.subgradient)
            if proof.certificate.gap is not None:
                now = now._replace(gap=proof.certificate.gap, proved=True)
        self.report(now)

    def _prove(self, run: FitRun, x: Array, subgradient: Array | None = None) -> Proof:
        """A proof at x, which is part of the run."""
        meter = Conversation(self.clients.insistent())
        proof = prove(meter, x, self.penalty, subgradient)
        _record(run, meter)
        certificate = proof.certificate
        self._round = len(run.trace)
        self._floats = sum(row.floats_up + row.floats_down for row in run.trace.rows)
        self._proofs.append((self._round, certificate))
        self._tell(run, certificate)
        return proof

    def _tell(self, run: FitRun, certificate: Certificate) -> None:
        """Report a round with what it proves, if it proves something."""
        if self.report is None:
            return
        m = self.clients.m * self.clients.stands_for
        now = Progress(self._round, np.nan, m, m, self._floats)
        if certificate.gap is not None:
            now = now._replace(gap=certificate.gap, proved=True)
        self.report(now)

    def _distance(self, proof: Proof) -> float:
        """The proved distance in standard errors; inf if there is no proof."""
        radius = proof.certificate.radius
        if radius is None:
            return np.inf
        return radius * self.per_radius(proof)

    def _polish(self, run: FitRun, proof: Proof) -> Proof:
        """The proof after Newton steps, while each halves a distance above the tolerance."""
        while self.tol < self._distance(proof) < np.inf and len(run.trace) + PROOF <= self.rounds:
            step = inverse(proof.information.sum(axis=0)) @ proof.gradients.sum(axis=0)
            if np.isnan(step).any():
                break
            closer = self._prove(run, proof.x - step)
            if not self._distance(closer) < 0.5 * self._distance(proof):
                break
            proof = closer
        return proof


def _record(run: FitRun, meter: Conversation) -> None:
    """Record questions beside those of the method: a row each, however long the answer."""
    objective = run.objective
    for exchange in meter.take():
        # A margin was asked of a move, not of x.
        own = exchange._replace(objective=objective, kind="certificate", margin=np.nan)
        run.trace.rows.append(own)
