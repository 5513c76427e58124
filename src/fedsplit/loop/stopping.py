"""The stopping rule of ``solve``: a proof that x is good enough."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask, length, to_host
from fedsplit.clients.effects import Account, Pooled, TraceEntry
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Value
from fedsplit.dialogue import Dialogue
from fedsplit.loop.certificate import MOVED, NOT_ASKED, Certificate, certify_at_hand, prove
from fedsplit.loop.result import StoppedBy
from fedsplit.methods.method import Evidence, Method

STANDSTILL = 1e-12
"""A residual below this share of ‖z‖ is rounding: the method stands still, wherever that is."""


def heard_since(small: bool, heard: Mask, present: Mask) -> Mask:
    """Who has answered since the moves became small, (m,): an absent client may still move x.

    Parameters
    ----------
    small : bool
        Whether the move of this round is small.
    heard : (m,) mask
        Who had answered before this round.
    present : (m,) mask
        Who answered in this round.
    """
    if small:
        return heard | present
    return np.zeros_like(heard)


class ProvedGap:
    """Stop when F(x) - F* ≤ tol · max(|F(x)|, F(0) - F(x)) is proved.

    If nothing can be proved, stop when ‖z⁺ - z‖ ≤ tol · ‖z‖; if a larger gap is proved, when the
    method stands still.

    A proof is asked for when the last step promises one, and the price is within limits; with
    absent clients, when all of them have answered since the steps became so small. What a proof
    shows beside the promise says how much to ask of the next.

    Parameters
    ----------
    method : Method
    tol : float
        Above 0.
    rounds : int
        The budget.
    pooled : bool
        Whether proofs are asked of the one client that all are together, on a device.
    float32 : bool
        Whether local solvers compute in float32, so that a residual has fewer digits.
    looseness : float
        What a proof shows beside the gap that the method promises, until the first one has measured
        it.
    price : float
        The share of a run's rounds that proofs may cost, beyond the first three.
    roughest : float
        A residual says nothing if local solvers err by more than this share of ‖z‖, or than the
        tolerance if that is larger.
    window : int
        In float32, the residual of this many rounds ago should be twice that of now.
    float32_digits : float
        In float32, a residual below this share of ‖z‖ that falls no more is rounding.
    still_rounds : int
        How many rounds in a row with a penalty stand still before a run ends without a proof: a
        constraint may hold x where it is while the models still become better.
    vain_rounds : int
        How many rounds in a row may bring F hardly any gain, and no proof: a plane that nearly
        separates classes is approached for ever.

    Attributes
    ----------
    limit : int
        The round after which nothing but a last proof is asked for.
    asked : int
        How many questions had been asked in the whole run when the rule itself last asked one.
    """

    proof_rounds = 2
    """The exchanges of a proof: gradients, and scalars."""

    def __init__(
        self,
        method: Method[Any],
        tol: float,
        rounds: int,
        *,
        pooled: bool = False,
        float32: bool = False,
        looseness: float = 4.0,
        price: float = 0.1,
        roughest: float = 1e-6,
        window: int = 10,
        float32_digits: float = 1e-5,
        still_rounds: int = 3,
        vain_rounds: int = 10,
    ) -> None:
        self.method = method
        self.tol = tol
        self.rounds = rounds
        self.limit = rounds
        if rounds >= 20:  # of a shorter budget, a proof at the end would be too large a share
            self.limit -= self.proof_rounds
        self._pooled = pooled
        self._float32 = float32
        self._looseness = looseness
        self._price = price
        self._roughest = roughest
        self._window = window
        self._digits = float32_digits
        self._still_rounds = still_rounds
        self._vain_rounds = vain_rounds
        self._spent = 0  # rounds of all proofs so far
        self.asked = 0
        self.begin(1)

    def begin(self, m: int) -> None:
        """Forget what was seen, at the beginning or when clients have left."""
        self.certificate = NOT_ASKED
        self._proved: Any = None  # the state that the certificate is about
        self._provable = True
        self._stood = 0  # rounds in a row that stood still
        self._vain = 0  # rounds in a row in which F hardly fell, and nothing was proved
        self._level = math.nan  # max(|F|, F(0) - F), if it is known
        self._residuals: deque[float] = deque(maxlen=self._window)
        self._heard: Mask = np.zeros(m, dtype=bool)

    def look(
        self, before: Any, state: Any, residual: float, objective: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        """Why the run stops after a round; None if it goes on.

        Parameters
        ----------
        before, state : states
            Before the round and after it.
        residual : float
            ‖z⁺ - z‖ of the round.
        objective : float
            F(x), as it was measured; nan where it was not.
        account : Account
        """
        method = self.method
        step = method.step_of(state)
        if residual == 0.0 and not _same(method.step_of(before), step):
            return None  # a step was refused: a shorter one, or one of another kind, is to come
        evidence = method.evidence(state)
        if evidence is not None:
            if evidence is method.evidence(before):
                return None  # a step was refused: what was proved of x has been looked at
            stopped_by = self._judge(state, evidence, residual, account)
            unproved = self._provable and self.certificate.gap is None
            if stopped_by == "residual" and unproved and self._affordable(account.rounds):
                # In the norm of its own Hessian, a client's bound on how fast that changes does not
                # depend on the units of columns.
                yield from self._prove(state, account.rounds)
                return "certificate" if self.certificate.within(self.tol) else stopped_by
            return stopped_by
        z = method.iterate(state)
        size = length(z)
        gap = method.expected_gap(before, state)
        promised = self._looseness * gap
        guess = method.in_units_of_F(state, z)
        level = yield from self._scale(state, account, promised <= 1e6 * self.tol * guess)
        enough = self.tol * (guess if math.isnan(level) else level)
        # A residual means something if proxes are precise, and F is finite where it is measured.
        still = (
            account.error <= max(self.tol, self._roughest) * size
            and not math.isinf(objective)
            and residual <= self.tol * size
        )
        if still and not math.isnan(enough):
            still = method.in_units_of_F(state, z - method.iterate(before)) <= enough
        present = method.current(state, account.present)
        self._heard = heard_since(still or gap <= enough, self._heard, present)
        promising = still or (self._provable and promised <= enough)
        if not (promising and self._heard.all()):
            if self._float32 and self._provable and self._falls_no_more(residual, size):
                return "residual"
            return None
        if self._provable:
            done = max(account.rounds, self.asked)
            if not self._affordable(done):
                return None
            yield from self._prove(state, done)
            if self.certificate.within(self.tol):
                return "certificate"
            if self.certificate.gap is not None:
                # what this proof has shown, with a margin
                self._looseness *= 2.0 * self.certificate.gap / max(promised, 1e-300)
            if self._provable:
                # not yet proved, or the method stands still where the optimum is not
                still = still and residual <= STANDSTILL * size
        return "residual" if still else None

    def finish(self, state: Any, stopped_by: StoppedBy, account: Account) -> Dialogue[None]:
        """Ask for a last proof when the budget is spent, if some of it was kept for that."""
        kept = stopped_by == "rounds" and self.limit < self.rounds
        if self.method.evidence(state) is not None:
            return  # every round has been looked at
        if kept and self._provable and self._affordable(account.rounds) and account.heard.all():
            yield from self._prove(state, account.rounds)

    def conclude(self, state: Any, stopped_by: StoppedBy) -> tuple[Certificate, bool]:
        """What is proved at the last state, and whether the tolerance is reached."""
        certificate = self.certificate
        here = state is self._proved
        if certificate.gap is not None and not here:
            certificate = MOVED
        if stopped_by == "residual" and not self._provable and certificate.gap is None:
            return certificate, True
        return certificate, stopped_by == "method" or (here and certificate.within(self.tol))

    def _falls_no_more(self, residual: float, size: float) -> bool:
        """Whether the residual of rows in float32 is down to rounding."""
        earlier = list(self._residuals)
        self._residuals.append(residual)
        if len(earlier) < self._window or residual > self._digits * size:
            return False
        return residual > 0.5 * earlier[0]

    def _judge(
        self, state: Any, evidence: Evidence, residual: float, account: Account
    ) -> StoppedBy | None:
        """Look at what the answers of the last round prove, at no price."""
        method = self.method
        proof = certify_at_hand(
            evidence.least_hessian,
            evidence.gradients.sum(axis=0),
            evidence.scalars,
            state.x,
            method.penalty,
            self._subgradient(state),
            evidence.drift,
        )
        self._take(proof, state)
        if proof.within(self.tol):
            return "certificate"
        self._vain = self._vain + 1 if proof.vain else 0
        if proof.final or self._vain >= self._vain_rounds:
            return "residual"
        hopeless = proof.gap is None and not proof.hopeful
        still = residual <= (self.tol if hopeless else STANDSTILL) * length(method.iterate(state))
        present = method.current(state, account.present)
        self._heard = heard_since(still, self._heard, present)
        if not still:
            self._stood = 0
        elif self._heard.all():
            self._stood += 1
        if self._stood >= self._still_rounds or (self._stood and method.penalty is None):
            return "residual"
        return None

    def _subgradient(self, state: Any) -> Array | None:
        if self.method.penalty is None:
            return None
        slope = self.method.subgradient(state)
        return None if slope is None else to_host(slope)

    def _affordable(self, rounds: int) -> bool:
        """Whether one more proof is within the budget and the price."""
        done = rounds + self.proof_rounds
        spent = self._spent + self.proof_rounds
        return done <= self.rounds and spent <= max(3 * self.proof_rounds, self._price * done)

    def _scale(self, state: Any, account: Account, near: bool) -> Dialogue[float]:
        """What the tolerance is relative to; nan while it is not known.

        Some methods know F nearly. Otherwise a run of 30 rounds can afford one to ask for F, when
        it is near its end.
        """
        smooth = self.method.smooth_value(state)
        penalty = self.method.penalty
        more = 0.0 if penalty is None else penalty.value(to_host(state.x))
        if math.isfinite(self.certificate.scale):
            self._level = self.certificate.scale
        elif math.isfinite(smooth):
            self._level = abs(smooth + more)
        elif math.isnan(self._level) and account.rounds >= 30 and near and account.present.all():
            question = Value(to_host(state.x))
            answer: Answer = yield (Pooled(question) if self._pooled else question)
            entered: Account = yield TraceEntry("certificate")
            self.asked = entered.rounds
            self._spent += 1
            if answer.present.all():
                self._level = abs(float(answer.rows.sum()) + more)
        return self._level

    def _prove(self, state: Any, before: int) -> Dialogue[None]:
        """Ask for a proof at x, of which the questions count as certificate rounds."""
        m = 1 if self._pooled else len(self._heard)
        x = to_host(state.x)
        penalty = self.method.penalty
        left = self.rounds - before
        proof = prove(x, m, penalty, self._subgradient(state), left, self.tol)
        certificate = yield from (_pooled(proof) if self._pooled else proof)
        account: Account = yield TraceEntry("certificate")
        self.asked = account.rounds
        # Questions to absent clients are not part of the price.
        self._spent += min(self.proof_rounds, account.rounds - before)
        self._take(certificate, state)

    def _take(self, proof: Certificate, state: Any) -> None:
        """Keep a proof, which is about this state."""
        self.certificate = proof
        self._proved = state
        self._provable = proof.gap is not None or proof.hopeful


def _same(one: float | Array, other: float | Array) -> bool:
    """Whether two steps are the same; nan of a method without one is."""
    return np.array_equal(to_host(one), to_host(other), equal_nan=True)


def _pooled(proof: Dialogue[Certificate]) -> Dialogue[Certificate]:
    """A proof whose questions go to the one client that all are together."""
    try:
        question = next(proof)
        while True:
            answer = yield Pooled(question)
            question = proof.send(answer)
    except StopIteration as end:
        certificate: Certificate = end.value
        return certificate
