"""The rounds of a fit, and the proof at their end: how far each coefficient can be from the pooled one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array, add_diagonal
from fedsplit.clients.metered import MeteredClients
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import ProofScalars
from fedsplit.clients.stacked import QUIET
from fedsplit.errors import InputError, listed
from fedsplit.methods.method import Method, State
from fedsplit.methods.newton import Newton
from fedsplit.methods.variants import FedSplit
from fedsplit.penalties.nonnegative_elastic_net import NonNegativeElasticNet
from fedsplit.regression.server.inference import inverse
from fedsplit.rounds.certificate import Certificate, certify_by_information
from fedsplit.rounds.result import Diverged
from fedsplit.rounds.solve import STANDSTILL, solve
from fedsplit.rounds.trace import Row, Trace
from fedsplit.threads import one_blas_thread

CAUTION = 100.0
"""The gap is taken to be so many times what the last move says, before a proof is asked for."""

PROOF, PROOFS = 3, 4
"""The questions of a proof, and how often one may be asked for, each time with a hundredth of the move."""

IDLE = 5
"""After so many rounds on end that moved less than STANDSTILL, and no less than before, nothing moves but rounding."""

SPAN, PATIENCE = 5, 60
"""Every SPAN rounds the last moves are looked at; after PATIENCE of them Newton's method takes over."""

MEASURED = 200
"""With more coefficients than this a proof takes longer than a round, and is no measurement by the way."""

WEAK = 1e-6
"""Information below this share of the largest leaves a coefficient all but undetermined."""

MOVING, NEARLY = 0.01, 0.01
"""x still moves by this share of its length; a move separates the classes but for this share of its largest margin."""


class Progress(NamedTuple):
    """A round as a user sees it: its number, the gap, who answered, floats so far, and whether the gap is proved.

    Each round's proof is a measurement, free where the clients are in this process, and not counted. Where there is
    none yet, far from the optimum, the gap is an estimate from the last move, not a number before there is a move.
    """

    round: int
    gap: float
    answered: int
    clients: int
    floats: int
    proved: bool = False


class Proof(NamedTuple):
    """Every client's gradient and information at x, the scalars it told, and what they prove together."""

    x: Array
    gradients: Array
    information: Array
    told: ProofScalars
    certificate: Certificate
    rows: list[Row]


@dataclass(frozen=True)
class Estimate:
    """Where the rounds ended, in their own coordinates.

    x : (d,).
    proof : what the clients told at x, and what it proves.
    trace : every round, those of proofs included.
    proofs : the round of each proof, and its certificate.
    floats : sent both ways.
    converged : whether the proved distance is within the tolerance.
    undetermined : where it is not, the columns of which there is hardly any information.
    state : the server's, to go on from.
    """

    x: Array
    proof: Proof
    trace: Trace
    proofs: Sequence[tuple[int, Certificate]]
    floats: int
    converged: bool
    undetermined: Sequence[str]
    state: State


class Watch:
    """Looks at every round: reports it, and stops the run when the moves are small or no minimiser is in sight.

    Classes are separable where the margin at x is positive, which is a proof. Along the move δ of the last rounds they
    are all but separable where min_i b_i a_iᵀδ is not much below zero; that alone is a suspicion, since x may have far
    to go, and a finding when there is no proof of a minimiser near x long after.
    """

    def __init__(
        self, clients: Clients, bounded: bool, report: Callable[[Row, State, float], object]
    ) -> None:
        self.meter, self.bounded, self.report = MeteredClients(clients), bounded, report
        self.states: list[State] = []
        self.target, self.limit, self.patience, self.rounds, self.floats = 0.0, 0, math.inf, 0, 0
        self.smallest, self.idle = np.inf, 0
        self.heard: set[str] = set()
        self.everyone = True
        self.separated = False
        self.direction: Array = np.zeros(clients.d)

    def __call__(self, row: Row, state: State) -> bool:
        self.states = [*self.states[-SPAN:], state]
        self.rounds += 1
        self.floats += row.floats_up + row.floats_down
        move = (
            state.iterate - self.states[-2].iterate if len(self.states) > 1 else np.full(1, np.nan)
        )
        gap = float(np.sum(np.square(move) / state.s))
        self.report(row, state, gap)
        still = (
            np.linalg.norm(move) <= STANDSTILL * np.linalg.norm(state.iterate)
            and gap > 0.5 * self.smallest
        )
        close = CAUTION * gap <= self.target
        self.idle = self.idle + 1 if still else 0
        self.heard = self.heard | set(row.latency or ()) if still or close else set()
        self.everyone = (
            row.latency is None or len(self.heard) == self.meter.m
        )  # who was absent may still move
        self.smallest = np.fmin(self.smallest, gap)
        if not self.bounded and not np.isnan(row.margin):
            self._suspect(row.margin)
        spent = self.rounds + self.meter.waiting >= self.limit
        return self.separated or self.stands or self.tired or spent or (close and self.everyone)

    @property
    def tired(self) -> bool:
        """Whether the run has gone on for long."""
        return self.rounds >= self.patience

    @property
    def stands(self) -> bool:
        """Whether nothing moves but rounding."""
        return self.idle >= IDLE and self.everyone

    def _suspect(self, margin: float) -> None:
        x, before = self.states[-1].x, self.states[0].x
        if margin > 0:
            self.separated, self.direction = True, x
        elif (
            self.rounds % SPAN == 0
            and self.rounds > 2 * SPAN
            and self._nearly_separates(x, x - before)
        ):
            self.direction = x - before

    def _nearly_separates(self, x: Array, move: Array) -> bool:
        if np.linalg.norm(move) <= MOVING * np.linalg.norm(x):
            return False
        lowest, highest = self.meter.margin(move).rows.min(), -self.meter.margin(-move).rows.min()
        return bool(lowest >= -NEARLY * highest)

    def separable(self, columns: Sequence[str], basis: Array) -> InputError:
        """The error that says which coefficients would grow."""
        growing = _largest(basis @ self.direction, columns)
        how = "separable" if self.separated else "quasi-separable"
        return InputError(
            f"the classes are {how}: the coefficient{'s' * (len(growing) > 1)} of {listed(growing, 4)} "
            "would grow without end; add a ridge, or leave a column out"
        )


def _largest(direction: Array, columns: Sequence[str]) -> list[str]:
    """The columns along which a direction mostly goes."""
    size = np.abs(direction)
    names = [columns[i] for i in np.argsort(-size) if size[i] > 0.25 * size.max()]
    others = [
        name for name in names if not name.endswith("Intercept")
    ]  # which goes along: columns are centred
    return others or names


def _undetermined(H: Array, columns: Sequence[str], basis: Array) -> list[str]:
    """The columns along which there is hardly any information."""
    if not np.isfinite(H).all():
        return []
    spectrum, Q = np.linalg.eigh(H)
    return _largest(basis @ Q[:, 0], columns) if spectrum[0] <= WEAK * spectrum[-1] else []


def prove(
    clients: Clients,
    x: Array,
    penalty: NonNegativeElasticNet | None,
    subgradient: Array | None,
    objective: float,
) -> Proof:
    """Ask for gradients, information matrices and scalars: ``PROOF`` questions."""
    meter = MeteredClients(clients.insistent())
    with one_blas_thread(), np.errstate(**QUIET):
        gradients = meter.gradient(x).rows
        ridge = (
            np.zeros(clients.d) if penalty is None else penalty.l2
        )  # as if each client had its part of it
        information = add_diagonal(meter.information(x).rows.copy(), ridge / clients.m)
        slope = gradients.sum(axis=0) + (0.0 if subgradient is None else subgradient)
        told = ProofScalars(**meter.decrement(x, slope).parts)
        certificate = certify_by_information(information.sum(axis=0), slope, told, x, penalty)
    return Proof(x, gradients, information, told, certificate, _asked(meter, objective))


def _asked(meter: MeteredClients, objective: float) -> list[Row]:
    """One row for each question beside the method's own."""
    return [
        Row(
            objective,
            np.nan,
            0.0,
            each.floats_up,
            each.floats_down,
            each.answered,
            each.seconds,
            "certificate",
            np.nan,
            each.latency,
            each.questions,
            *each.work,
        )
        for each in meter.take()
    ]


@dataclass
class Search:
    """Rounds until the proved distance, times ``per_radius``, is at most ``tol``.

    ``bounded`` says that there is a minimiser whatever the data: with a ridge, for instance. ``basis`` takes x to
    coefficients of the ``columns``, whose names messages have.

    Where a proof falls short but is good, g and H at x are a Newton step at hand, and one step of it reaches the
    rounding of g. A run that has gone on for long is a hard one, or has no minimiser, and Newton's method takes over,
    whose rounds are dearer but few. Both without a penalty and after FedSplit's own rounds only: other methods are to
    show where they stop.
    """

    clients: Clients
    columns: Sequence[str]
    basis: Array
    tol: float
    rounds: int
    seed: int
    penalty: NonNegativeElasticNet | None
    bounded: bool
    per_radius: Callable[[Proof], float]
    report: Callable[[Progress], object] | None

    def __post_init__(self) -> None:
        self.watch = Watch(self.clients, self.bounded, self._show)
        self.rows: list[Row] = []
        self.proofs: list[tuple[int, Certificate]] = []
        self.began = np.nan

    def run(self, method: Method[Any], x0: Array, state: State | None = None) -> Estimate:
        """From ``x0``, or on from ``state``."""
        unit, hope = 1.0, 1.0
        helped = self.penalty is None and isinstance(method, FedSplit)
        self.watch.patience = PATIENCE if helped else math.inf
        while True:
            self.watch.target = 0.5 * hope * (self.tol / unit) ** 2
            state = self._go(method, x0, state)
            proof = self._prove(state.x, self._subgradient(state))
            if helped:
                proof = self._polished(proof)
            unit, hope = self.per_radius(proof), 0.01 * hope
            converged = self._distance(proof) <= self.tol
            if (
                not converged and self.watch.tired
            ):  # Newton's method shows whether there is a minimiser
                method, state, x0 = Newton(), None, proof.x
                self.watch.bounded, self.watch.patience = True, math.inf
                continue
            spent = len(self.rows) + PROOF >= self.rounds or len(self.proofs) >= PROOFS
            if converged or self.watch.stands or np.isinf(unit) or spent:
                return self._conclude(proof, converged, state)

    def _go(self, method: Method[Any], x0: Array, state: State | None) -> State:
        """Rounds, until the watch stops them."""
        self.watch.limit = self.rounds - PROOF
        left, start = max(1, self.watch.limit - len(self.rows)), x0 if state is None else None
        try:
            result = solve(
                self.clients, method, rounds=left, tol=0, x0=start, state=state, penalty=self.penalty, seed=self.seed,
                callbacks=[self.watch],
            )  # fmt: skip
        except Diverged:
            if not self.watch.direction.any():
                raise
            raise self.watch.separable(self.columns, self.basis) from None
        if self.watch.separated:
            raise self.watch.separable(self.columns, self.basis)
        self.began = result.trace.start if np.isnan(self.began) else self.began
        self.rows += [
            *result.trace.rows,
            *_asked(self.watch.meter, float(result.trace.objective[-1])),
        ]
        return result.state

    def _show(self, row: Row, state: State, estimate: float) -> None:
        """Report a round, with a proof of its gap where that is quick."""
        if self.report is None:
            return
        gap = None
        if not self.clients.recorded and self.clients.d <= MEASURED:
            measured = prove(
                self.clients, state.x, self.penalty, self._subgradient(state), row.objective
            )
            gap = measured.certificate.gap
        now = Progress(self.watch.rounds, estimate, row.answered, self.clients.m, self.watch.floats)
        self.report(now if gap is None else now._replace(gap=gap, proved=True))

    def _subgradient(self, state: State) -> Array | None:
        return getattr(state, "subgradient", None) if self.penalty is not None else None

    def _prove(self, x: Array, subgradient: Array | None = None) -> Proof:
        proof = prove(self.clients, x, self.penalty, subgradient, self.rows[-1].objective)
        self.rows += proof.rows
        self.proofs.append((len(self.rows), proof.certificate))
        floats = sum(row.floats_up + row.floats_down for row in self.rows)
        self.watch.rounds, self.watch.floats = len(self.rows), floats
        if self.report is not None and (gap := proof.certificate.gap) is not None:
            m = self.clients.m
            self.report(Progress(len(self.rows), gap, m, m, floats, proved=True))
        return proof

    def _distance(self, proof: Proof) -> float:
        """The distance that is proved, in units of the tolerance's."""
        radius = proof.certificate.radius
        return np.inf if radius is None else radius * self.per_radius(proof)

    def _polished(self, proof: Proof) -> Proof:
        """The proof after Newton steps, while each halves the distance and it is above the tolerance."""
        while self.tol < self._distance(proof) < np.inf and len(self.rows) + PROOF <= self.rounds:
            step = inverse(proof.information.sum(axis=0)) @ proof.gradients.sum(axis=0)
            if np.isnan(step).any():
                break
            closer = self._prove(proof.x - step)
            if not self._distance(closer) < 0.5 * self._distance(proof):
                break
            proof = closer
        return proof

    def _conclude(self, proof: Proof, converged: bool, state: State) -> Estimate:
        if not converged and self.watch.direction.any():
            raise self.watch.separable(self.columns, self.basis)
        weak = (
            []
            if converged
            else _undetermined(proof.information.sum(axis=0), self.columns, self.basis)
        )
        trace = Trace(self.began, self.rows)
        return Estimate(
            proof.x, proof, trace, self.proofs, self.watch.floats, converged, weak, state
        )
