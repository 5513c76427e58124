"""The stopping rule of ``solve``, and the parts that it shares with that of ``fit``."""

from __future__ import annotations

from collections import deque

import numpy as np
from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask, length
from fedsplit.device.backend import to_host
from fedsplit.methods.information import Evidence
from fedsplit.methods.method import State
from fedsplit.rounds.certificate import (
    MOVED,
    NOT_ASKED,
    Certificate,
    certify,
    certify_at_hand,
)
from fedsplit.rounds.loop import Run, StoppingRule
from fedsplit.rounds.result import StoppedBy

CAUTION = 100.0
"""Before the first proof, the gap is taken to be this many times what the last move says."""

FASTEST = 0.1
"""A round is not expected to leave less than this share of the gap, however fast those before."""

STANDSTILL = 1e-12
"""A residual below this share of ‖z‖ is rounding: the method stands still, wherever that is."""

STOOD = 3
"""How many rounds in a row with a penalty stand still before a run ends without a proof."""

ROUNDED = 1e-5
"""With rows in float32, a residual below this share of ‖z‖ that falls no more is rounding."""

WINDOW = 10
"""Over so many rounds the residual should at least have halved."""

ROUGHEST = 1e-6
"""A residual says nothing if local solvers err by more than this share of ‖z‖, or than the
tolerance if that is larger."""

PROOF = 2
"""The rounds of a certificate: gradients, and scalars."""

PRICE = 0.1
"""The share of a run's rounds that certificates may cost, beyond the first three."""

LOOSENESS = 4.0
"""Before the first proof, it is taken to show this many times the gap that the method promises."""


def estimated_gap(move: Array, s: float | Array) -> float:
    """Σ(z⁺ - z)²/s, which is of the order of F(x) - F* where a method converges steadily."""
    xp = array_namespace(move)
    if not hasattr(xp, "square"):  # a block vector tells its length alone
        return length(move) ** 2 / float(s)
    return float(xp.sum(xp.square(move) / s))


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


def promised_gap(before: State, state: State) -> float:
    """What F(x) - F* probably is, from a round's states before and after it.

    A method that models the costs knows the gap at the x before, as the gain of the step from
    there. The gap at x is the same share of that as the gain is of the round's before.
    """
    gain = float(getattr(state, "gain", np.nan))
    if not np.isfinite(gain):
        return CAUTION * estimated_gap(state.iterate - before.iterate, state.s)
    earlier = float(getattr(before, "gain", np.nan))
    if not earlier > 0.0:
        return gain
    return gain * min(1.0, max(FASTEST, gain / earlier))


class ProvedGap(StoppingRule):
    """Stop when F(x) - F* ≤ tol · max(1, |F|) is proved.

    If nothing can be proved, stop when ‖z⁺ - z‖ ≤ tol · max(1, ‖z‖); if a larger gap is proved,
    when the method stands still.

    A proof is asked for when the last step promises one, and the price is within limits; with
    absent clients, when all of them have answered since the steps became so small. What a proof
    shows beside the promise tells how much to ask of the next.

    Parameters
    ----------
    tol : float
        Above 0.
    """

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self._spent = 0  # rounds of all proofs so far

    def begin(self, run: Run) -> None:
        run.limit = run.rounds
        if run.rounds >= 20:  # of a shorter budget, a proof at the end would be too large a share
            run.limit -= PROOF
        self._certificate = NOT_ASKED
        self._proved: State | None = None  # the state that the certificate is about
        self._certified = False
        self._provable = True
        self._looseness = LOOSENESS
        self._level = np.nan  # |F|, if it is known
        self._stood = 0  # rounds in a row that stood still
        self._residuals: deque[float] = deque(maxlen=WINDOW)
        self._heard: Mask = np.zeros(run.clients.m, dtype=bool)

    def look(self, run: Run, before: State, residual: float) -> StoppedBy | None:
        state = run.state
        same = type(state) is type(before) and np.array_equal(to_host(before.s), to_host(state.s))
        if residual == 0.0 and not same:
            return None  # a step was refused: a shorter one, or one of another kind, is to come
        evidence = getattr(state, "evidence", None)
        if evidence is not None:
            if evidence is getattr(before, "evidence", None):
                return None  # a step was refused: what was proved of x has been looked at
            return self._judge(run, evidence, residual)
        row = run.trace.rows[-1]
        present = self._present(run)
        size = length(state.iterate)
        gap = promised_gap(before, state)
        promised = self._looseness * gap
        enough = self.tol * self._scale(run, promised)
        # A residual means something if proxes are precise and F, where it is measured, is finite.
        precise = row.error <= max(self.tol, ROUGHEST) * max(1.0, size)
        precise = precise and bool(np.isfinite(row.objective) or not run.measured)
        still = precise and residual <= self.tol * max(1.0, size)
        if still:
            still = estimated_gap(state.iterate - before.iterate, state.s) <= enough
        self._heard = heard_since(still or gap <= enough, self._heard, present)
        promising = still or (self._provable and promised <= enough)
        if not (promising and self._heard.all()):
            if run.clients.rounded and self._provable and self._falls_no_more(residual, size):
                return "residual"
            return None
        if self._provable:
            if not self._affordable(run):
                return None
            self._prove(run)
            if self._certified:
                return "certificate"
            if self._certificate.gap is not None:
                # What this proof has shown, with a margin.
                self._looseness *= 2.0 * self._certificate.gap / max(promised, 1e-300)
            if self._provable:
                # Not yet proved, or the method stands still where the optimum is not.
                still = still and residual <= STANDSTILL * size
        if still:
            return "residual"
        return None

    def _falls_no_more(self, residual: float, size: float) -> bool:
        """Whether the residual of rows in float32 is down to rounding."""
        earlier = list(self._residuals)
        self._residuals.append(residual)
        if len(earlier) < WINDOW or residual > ROUNDED * max(1.0, size):
            return False
        return residual > 0.5 * earlier[0]

    def _judge(self, run: Run, evidence: Evidence, residual: float) -> StoppedBy | None:
        """Look at what the answers of the last round prove, at no price."""
        state = run.state
        proof = certify_at_hand(
            evidence.least_hessian,
            evidence.gradients.sum(axis=0),
            evidence.scalars,
            state.x,
            run.penalty,
            run.subgradient,
            evidence.drift,
        )
        self._take(proof, state)
        if self._certified:
            return "certificate"
        enough = STANDSTILL
        if proof.gap is None and not proof.hopeful:
            enough = self.tol
        still = residual <= enough * max(1.0, length(state.iterate))
        self._heard = heard_since(still, self._heard, self._present(run))
        if not still:
            self._stood = 0
        elif self._heard.all():
            self._stood += 1
        # A constraint may hold x where it is while the models still become better.
        if self._stood >= STOOD or (self._stood and run.penalty is None):
            return "residual"
        return None

    def finish(self, run: Run, stopped_by: StoppedBy) -> StoppedBy | None:
        kept = stopped_by == "rounds" and run.limit < run.rounds
        if getattr(run.state, "evidence", None) is not None:
            return stopped_by  # every round has been looked at
        if kept and self._provable and self._affordable(run) and run.meter.heard.all():
            self._prove(run)
        return stopped_by

    def conclude(self, run: Run, stopped_by: StoppedBy) -> tuple[Certificate, bool]:
        certificate = self._certificate
        here = run.state is self._proved
        if certificate.gap is not None and not here:
            certificate = MOVED
        if stopped_by == "residual" and not self._provable and certificate.gap is None:
            return certificate, True
        return certificate, stopped_by == "method" or (self._certified and here)

    def _present(self, run: Run) -> Mask:
        """Who has answered now, (m,); answers that come late count if they are about this x."""
        present: Mask = getattr(run.state, "current", run.meter.present)
        return present

    def _affordable(self, run: Run) -> bool:
        """Whether one more proof is within the budget and the price."""
        done = len(run.trace) + PROOF
        return done <= run.rounds and self._spent + PROOF <= max(3 * PROOF, PRICE * done)

    def _scale(self, run: Run, promised: float) -> float:
        """max(1, |F|), which the tolerance is relative to; 1 while F is not known.

        Some methods know it nearly. Otherwise a run of 30 rounds can afford one to ask for F, if
        the gap may be within the tolerance for a large F.
        """
        x = run.state.x
        smooth = float(getattr(run.state, "smooth_value", np.nan))
        long = len(run.trace) >= 30 and bool(run.meter.present.all())
        if np.isfinite(self._certificate.objective):
            self._level = abs(self._certificate.objective)
        elif np.isfinite(smooth):
            if run.penalty is not None:
                smooth += run.penalty.value(x)
            self._level = abs(smooth)
        elif np.isnan(self._level) and long and promised <= 1e6 * self.tol:
            run.count_as("certificate")
            answer = run.meter.pooled().value(to_host(x))
            run.record(run.objective)
            self._spent += 1
            self._level = 1.0
            if answer.present.all():
                value = float(answer.rows.sum())
                if run.penalty is not None:
                    value += run.penalty.value(x)
                self._level = abs(value)
        return float(np.fmax(1.0, self._level))

    def _prove(self, run: Run) -> None:
        before = len(run.trace)
        run.count_as("certificate")
        proof = certify(
            run.meter.pooled(),
            to_host(run.state.x),
            run.penalty,
            run.subgradient,
            allowed=lambda: before + run.meter.waiting < run.rounds,
            tol=self.tol,
        )
        run.record(run.objective)
        # Questions to absent clients are not part of the price.
        self._spent += min(PROOF, len(run.trace) - before)
        self._take(proof, run.state)

    def _take(self, proof: Certificate, state: State) -> None:
        """Keep a proof, which is about this state."""
        self._certificate = proof
        self._proved = state
        self._provable = proof.gap is not None or proof.hopeful
        self._certified = False
        if proof.gap is not None:
            self._certified = proof.gap <= self.tol * max(1.0, abs(proof.objective))
