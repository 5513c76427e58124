"""The stopping rule of ``solve``: a proof that x is good enough."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fedsplit.arrays import Array, Mask, length, to_host
from fedsplit.clients.oracle import Account, Pooled
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Value
from fedsplit.dialogue import Dialogue
from fedsplit.loop.certificate import NOT_ASKED, Certificate, certify_at_hand, prove
from fedsplit.loop.result import StoppedBy
from fedsplit.methods.method import Evidence, Method

STANDSTILL = 1e-12
"""A residual below this share of ‖z‖ is rounding: the method stands still, wherever that is."""


def heard_since(small: bool, heard: Mask, present: Mask) -> Mask:
    """Who has answered since the moves became small, (m,): an absent client may still move x."""
    if small:
        return heard | present
    return np.zeros_like(heard)


class StoppingRule(Protocol):
    """What decides how long ``iterate`` goes on, and what was proved last."""

    tol: float
    rounds: int
    limit: int
    certificate: Certificate

    def begin(self, m: int) -> None:
        """Forget what was seen, at the beginning or when clients have left m of them."""

    def look(
        self, before: Any, state: Any, residual: float, objective: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        """Why the run stops after a round; None if it goes on."""

    def finish(self, state: Any, account: Account) -> Dialogue[None]:
        """Ask for a last proof when the budget is spent."""

    def conclude(self, state: Any, stopped_by: StoppedBy) -> tuple[Certificate, bool]:
        """What is proved at the last state, and whether the tolerance is reached."""


@dataclass
class ProvedGap:
    """Stop when F(x) - F* ≤ tol · max(|F(x)|, F(0) - F(x)) is proved.

    If nothing can be proved, stop when ‖z⁺ - z‖ ≤ tol · ‖z‖; if a larger gap is proved, when the
    method stands still.

    A proof is asked for when the last step promises one, and the price is within limits; with
    absent clients, when all of them have answered since the steps became so small. What a proof
    shows beside the promise says how much to ask of the next.

    Attributes
    ----------
    certificate : Certificate
        The last proof.
    limit : int
        The round after which nothing but a last proof is asked for.
    """

    method: Method[Any]
    tol: float  # 0 never stops, and proves nothing
    rounds: int  # the budget
    # whether proofs are asked of the one client that all are together, on a device
    pooled: bool = False
    # whether local solvers compute in float32, so that a residual has fewer digits
    float32: bool = False
    # what a proof shows beside the gap that the method promises, until the first one has measured
    # it
    looseness: float = 4.0
    proof_rounds: int = 2  # the exchanges of a proof: gradients, and scalars
    price: float = 0.1  # the share of a run's rounds that proofs may cost, beyond the first three
    # A residual says nothing if local solvers err by more than this share of ‖z‖, or than the
    # tolerance if that is larger
    roughest: float = 1e-6
    window: int = 10  # in float32, the residual of this many rounds ago should be twice that of now
    # in float32, a residual below this share of ‖z‖ that falls no more is rounding
    float32_digits: float = 1e-5
    # how many rounds in a row with a penalty stand still before a run ends without a proof: a
    # constraint may hold x where it is while the models still become better
    still_rounds: int = 3
    # how many rounds in a row may bring F hardly any gain, and no proof: a plane that nearly
    # separates classes is approached for ever
    vain_rounds: int = 10

    def __post_init__(self) -> None:
        self.limit = self.rounds
        if self.tol > 0 and self.rounds >= 20:  # of a shorter budget, a proof is too large a share
            self.limit -= self.proof_rounds
        self._spent = 0  # rounds of all proofs so far
        self.begin(1)

    def begin(self, m: int) -> None:
        """Forget what was seen, at the beginning or when clients have left."""
        self.certificate = NOT_ASKED
        self._proved: Any = None  # the state that the certificate is about
        self._stood = 0  # rounds in a row that stood still
        self._vain = 0  # rounds in a row in which F hardly fell, and nothing was proved
        self._level = math.nan  # max(|F|, F(0) - F), if it is known
        self._residuals: deque[float] = deque(maxlen=self.window)
        self._heard: Mask = np.zeros(m, dtype=bool)

    @property
    def _provable(self) -> bool:
        """Whether there may be a proof at a later x."""
        last = self.certificate
        return last is NOT_ASKED or last.gap is not None or last.hopeful

    def look(
        self, before: Any, state: Any, residual: float, objective: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        method = self.method
        if residual == 0.0:
            steps = to_host(method.step_of(before)), to_host(method.step_of(state))
            if not np.array_equal(*steps, equal_nan=True):  # nan of a method without a step
                return None  # a step was refused: a shorter one, or one of another kind, is to come
        evidence = method.evidence(state)
        if evidence is None:
            return (yield from self._ask_for_proof(before, state, residual, objective, account))
        if evidence is method.evidence(before):
            return None  # a step was refused: what was proved of x has been looked at
        stopped_by = self._judge(state, evidence, residual, account)
        unproved = self._provable and self.certificate.gap is None
        if stopped_by == "residual" and unproved and self._affordable(account.rounds):
            # In the norm of its own Hessian, a client's bound on how fast that changes does not
            # depend on the units of columns.
            yield from self._prove(state)
            stopped_by = "certificate" if self.certificate.within(self.tol) else stopped_by
        return stopped_by

    def _judge(
        self, state: Any, evidence: Evidence, residual: float, account: Account
    ) -> StoppedBy | None:
        """Look at what the answers of the last round prove, at no price."""
        method = self.method
        proof = certify_at_hand(evidence, state.x, method.penalty, self._subgradient(state))
        self.certificate, self._proved = proof, state
        if proof.within(self.tol):
            return "certificate"
        self._vain = self._vain + 1 if proof.vain else 0
        if proof.final or self._vain >= self.vain_rounds:
            return "residual"
        small = STANDSTILL if self._provable else self.tol
        still = residual <= small * length(method.iterate(state))
        self._heard = heard_since(still, self._heard, method.current(state, account.present))
        self._stood = (self._stood + bool(self._heard.all())) if still else 0
        stands = self._stood >= self.still_rounds or (self._stood and method.penalty is None)
        return "residual" if stands else None

    def _ask_for_proof(
        self, before: Any, state: Any, residual: float, objective: float, account: Account
    ) -> Dialogue[StoppedBy | None]:
        """Ask for a proof where the last step promises one; see ``look``."""
        method = self.method
        z = method.iterate(state)
        size = length(z)
        gap = method.expected_gap(before, state)
        promised = self.looseness * gap
        guess = method.in_units_of_F(state, z)
        spent = self._spent
        level = yield from self._scale(state, account, promised <= 1e6 * self.tol * guess)
        done = account.rounds + self._spent - spent
        enough = self.tol * (guess if math.isnan(level) else level)
        # A residual means something if proxes are precise, and F is finite where it is measured.
        still = (
            account.error <= max(self.tol, self.roughest) * size
            and not math.isinf(objective)
            and residual <= self.tol * size
        )
        if still and not math.isnan(enough):
            still = method.in_units_of_F(state, z - method.iterate(before)) <= enough
        present = method.current(state, account.present)
        self._heard = heard_since(still or gap <= enough, self._heard, present)
        promising = still or (self._provable and promised <= enough)
        if not (promising and self._heard.all()):
            if not (self.float32 and self._provable):
                return None
            # whether the residual of rows in float32 is down to rounding
            earlier = list(self._residuals)
            self._residuals.append(residual)
            known = len(earlier) == self.window and residual <= self.float32_digits * size
            return "residual" if known and residual > 0.5 * earlier[0] else None
        if self._provable:
            if not self._affordable(done):
                return None
            yield from self._prove(state)
            if self.certificate.within(self.tol):
                return "certificate"
            if self.certificate.gap is not None:
                # what this proof has shown, with a margin
                self.looseness *= 2.0 * self.certificate.gap / max(promised, 1e-300)
            if self._provable:
                # not yet proved, or the method stands still where the optimum is not
                still = still and residual <= STANDSTILL * size
        return "residual" if still else None

    def finish(self, state: Any, account: Account) -> Dialogue[None]:
        """Ask for a last proof when the budget is spent, if some of it was kept for that."""
        # with evidence every round has been looked at
        if self.tol == 0 or self.limit == self.rounds or self.method.evidence(state) is not None:
            return
        if self._provable and self._affordable(account.rounds) and account.heard.all():
            yield from self._prove(state)

    def conclude(self, state: Any, stopped_by: StoppedBy) -> tuple[Certificate, bool]:
        """What is proved at the last state, and whether the tolerance is reached."""
        certificate = self.certificate
        here = state is self._proved
        if not here:  # a reason why there is no proof may still hold, F(x) does not
            certificate = replace(certificate, objective=math.nan)
            if certificate.gap is not None:
                reason = "x has moved since the last proof"
                certificate = Certificate(None, None, math.nan, reason)
        stands = stopped_by == "residual" and not self._provable
        reached = stands or stopped_by == "method" or (here and certificate.within(self.tol))
        return certificate, reached

    def _subgradient(self, state: Any) -> Array | None:
        slope = None if self.method.penalty is None else self.method.subgradient(state)
        return None if slope is None else to_host(slope)

    def _affordable(self, rounds: int) -> bool:
        """Whether one more proof is within the budget and the price."""
        done = rounds + self.proof_rounds
        spent = self._spent + self.proof_rounds
        return done <= self.rounds and spent <= max(3 * self.proof_rounds, self.price * done)

    def _scale(self, state: Any, account: Account, near: bool) -> Dialogue[float]:
        """What the tolerance is relative to; nan while it is not known.

        Some methods know F nearly. Otherwise a run of 30 rounds can afford one to ask for F, when
        it is near its end.
        """
        smooth = self.method.smooth_value(state)
        if math.isfinite(self.certificate.scale):
            self._level = self.certificate.scale
        elif math.isfinite(smooth):
            self._level = abs(self.method.penalised(smooth, state.x))
        elif math.isnan(self._level) and account.rounds >= 30 and near and account.present.all():
            question = Value(to_host(state.x))
            answer: Answer = yield (Pooled(question) if self.pooled else question)
            self._spent += 1
            if answer.present.all():
                self._level = abs(self.method.penalised(float(answer.rows.sum()), state.x))
        return self._level

    def _prove(self, state: Any) -> Dialogue[None]:
        """Ask for a proof at x. Questions to absent clients are not part of its price."""
        x, penalty = to_host(state.x), self.method.penalty
        proof = yield from prove(x, penalty, self._subgradient(state), self.tol, self.pooled)
        self._spent += self.proof_rounds
        self.certificate, self._proved = proof, state
