"""FedSplit with information: clients send Hessians, and every answer brings a proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import EPS, Array, Mask, dots, matvec, packed, unpacked
from fedsplit.clients.local_models import WAY, LocalModel
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import ProofScalars
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.methods.method import Evidence, Method, answers, check_settings, require_complete
from fedsplit.methods.server_step import Expansions, semidefinite_solve, server_step
from fedsplit.penalties.penalty import Penalty


class Arrivals(NamedTuple):
    """What a server that waits for nobody knows beside the models."""

    # (m, d): what each client was asked about last, and ∇f_j there
    at: Array
    slope: Array
    # (m,): as in ``ProofScalars``
    floor: Array
    ell: Array
    start: Array  # (d,): where the run began, which is what everybody was asked about first
    first: Array  # (m,): f_j there
    answers: NDArray[np.int64]  # (m,): how many answers each client has given
    idle: Mask  # (m,): who has nothing to do
    gain: float = math.nan  # by how much F falls with the last step, as the models have it


class InformationState(NamedTuple):
    """What the server knows."""

    x: Array  # (d,): the best point at which everyone was asked
    subgradient: Array  # (d,): a subgradient of the penalty at x; 0 without one
    # (d,): the next point, and a subgradient of the penalty there
    ahead: Array
    slope: Array
    models: Expansions
    # (m,): how fast ∇²f_j can change, as in ``ProofScalars``: 0 for a quadratic, nan while unknown
    norm: Array
    reach: float  # how far clients may go from x in the next answer; 0 if all of them stay there
    still: bool  # whether the next question has p_j = x, as in Newton's method
    # (m,): f_j(0), which the tolerance is relative to, and f_j where each client was asked last;
    # nan of who has not been heard
    origin: Array
    latest: Array
    evidence: Evidence | None = None  # at x; None unless everyone answered
    # only in an asynchronous run, where x = ahead is the minimiser of the newest models
    arrivals: Arrivals | None = None

    @property
    def constant(self) -> bool:
        """Whether all costs are quadratics, so that B_j is the Hessian of f_j everywhere."""
        return bool((self.norm == 0.0).all())

    def updated(self, answer: Answer) -> InformationState:
        """With the models of an answer; those of absent clients stay."""
        present, parts = answer.present, answer.parts
        own = present[:, None]
        B = self.models.B
        if "hessian" in parts:  # else all costs are quadratics, whose Hessians were sent before
            B = unpacked(parts["hessian"])
            B[~present] = self.models.B[~present]
        p = np.where(own, parts["point"], self.models.p)
        y = np.where(own, parts["gradient"], self.models.y)
        return self._replace(
            models=Expansions(p, y, B, self.models.heard | present),
            norm=np.where(present, parts["norm"], self.norm),
            latest=np.where(present, parts["values"][:, 0], self.latest),
        )


@dataclass(frozen=True)
class FedSplitInformation(Method[InformationState]):
    """FedSplit in the metric of the pooled curvature, with models that are exact to second order.

    In each round client j sends p_j = argmin_u f_j(u) + ½(u - v_j)ᵀM(u - v_j), y_j = ∇f_j(p_j) and
    B_j = ∇²f_j(p_j), and the server takes

        x⁺ = argmin_x g(x) + Σ_j ⟨y_j, x - p_j⟩ + ½(x - p_j)ᵀB_j(x - p_j),
        v_j = x⁺ + M⁻¹(y_j + B_j(x⁺ - p_j)),    M = Σ_j B_j/m.

    With B_j = M = I/s this is Algorithm 1. A fixed point, p_j = x for all j, minimises F + g for
    every M. On least squares the models are exact wherever they are made, so that this *is*
    Newton's method, and one answer is enough. In the first round each client takes its own metric,
    ∇²f_j(x), and goes as far towards its own minimiser as its data say more than noise; x⁺ is then
    close to the fixed-effect meta-analysis of the clients' own estimates. Where these points are no
    nearer to x⁺ than x was, as with many clients of few rows that differ, going there was of no
    use: x⁺ is then mostly a step from x, and from there on all clients stay at x, as in Newton's
    method.

    Every answer has F and its gradient at the x of the question, so that each round proves how far
    that x is from the optimum. A step that raises F is refused: the next question is at the best
    point on the way, where it is Newton's. Absent clients keep their models. Where the data do not
    determine x, the step is the shortest one.

    A round takes d(d + 1)/2 floats per client both ways, where ``FedSplit`` takes d.

    Parameters
    ----------
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    first_reach : float
        How far clients may go in the first answer: 256 is almost to their own minimiser, where they
        have one.
    reach : float
        How far they may go later, in the metric of the mean Hessian: 1 is where Algorithm 1's
        contraction is best. 0 is Newton's method.
    shorter : float
        The factor of the reach after a step that F refused.
    largest : float
        The most entries of all clients' Hessians together, m·d², that the server takes: 2²⁹ are
        four gigabytes.
    wait : bool
        Whether a step waits until every client has answered, where only some are asked at a time:
        the question is then asked again, in the same round. So F is known at every step, one that
        raises it is refused, and each proves its x. Otherwise every answer moves x.
    """

    penalty: Penalty | None = None
    first_reach: float = 256.0
    reach: float = 1.0
    shorter: float = 0.25
    largest: float = 2.0**29
    wait: bool = False

    newton_may_finish = False
    device = "sums"
    state_type = InformationState
    may_be_zero = ("first_reach", "reach")

    def __post_init__(self) -> None:
        check_settings(self)

    def described(self) -> str:
        return "FedSplit with information: every client sends its Hessian"

    def start(self, x0: Array, m: int) -> Dialogue[InformationState]:
        """No question; from a start far off, the first answers say whether 0 is a better one."""
        yield from ()
        d = len(x0)
        if m * d**2 > self.largest:
            raise InputError(
                f"{type(self).__name__}: {m} Hessians of {d} × {d} numbers are too large for the "
                "server: use QuasiNewton() or LBFGS(), which ask for vectors"
            )
        unknown = np.full(m, np.nan)
        # under a penalty, a subgradient is known after the first minimisation
        slope = 0.0 * x0 if self.penalty is None else np.full_like(x0, np.nan)
        nothing, reach = Expansions.none(x0, m), self.first_reach
        return InformationState(
            0.0 * x0, slope, x0, slope, nothing, unknown, reach, reach == 0.0, unknown, unknown
        )

    def update(self, state: InformationState) -> Dialogue[InformationState]:
        return self.after(state, (yield from answers(self.question(state), self.wait)))

    def question(self, state: InformationState) -> LocalModel:
        """What all clients are asked in a round."""
        x = state.ahead
        models = state.models
        before = None if np.array_equal(state.x, x) else state.x
        if state.constant or state.still:  # the Hessian is then that at x
            return LocalModel(x, None, None, 0.0, before, hessian=not state.constant)
        # Where clients state no concordance, a model about p_j proves nothing at x. A server that
        # waits for nobody does not ask for more: x has moved on when the answer comes.
        both = state.arrivals is None and bool(np.isinf(state.norm).any())
        if not models.heard.any():
            return LocalModel(x, None, None, state.reach, before, both)
        mean = models.hessian() / len(models.heard)
        v = x + state.reach * semidefinite_solve(mean, models.gradients(x).T).T
        return LocalModel(x, v, packed(mean), state.reach, before, both)

    def after(self, state: InformationState, answer: Answer) -> InformationState:
        """The state after an answer to ``question``."""
        x = state.ahead
        after = state.updated(answer)
        models = after.models
        # The question compares x with the point before it. In the first round that is 0, but for a
        # run that went astray asynchronously: there it is the start, and F(0) stays unknown.
        known = answer.present & (not state.x.any())
        values_at_0 = np.where(known, answer.parts["values"][:, -1], np.nan)
        origin = np.where(state.models.heard, state.origin, values_at_0)
        # Those who answered can compare the start with 0; later an absent one may be why F rises.
        comparable = answer.present.all() or not state.models.heard.any()
        F = self._along(state, answer)
        rounding = 16.0 * EPS * np.abs(answer.parts["values"][answer.present, -1]).sum()
        if comparable and not F[0] <= F[-1] + rounding:
            return self._refused(state._replace(origin=origin), F)
        ahead, slope = self.minimiser(models, x)
        reach = min(self.reach, state.reach / self.shorter)
        if (models.p[answer.present] != x).any():
            # from the points of those who answered to ``ahead``, and from x, in the norms of B_j
            B, left = models.B[answer.present], (ahead - models.p)[answer.present]
            way = np.broadcast_to(ahead - x, left.shape)
            missed, moved = (float(dots(e, matvec(B, e)).sum()) for e in (left, way))
            if missed >= moved and missed > 0:  # both are 0 where no cost is curved
                ahead, slope = self._between(models, x, answer, moved / (missed + moved))
                reach = 0.0
        # If the minimiser is x itself, this is a subgradient there, perhaps the first one known.
        here = slope if np.array_equal(ahead, x) else state.slope
        # Quadratics stay at x in any metric, and so does who stayed in the pooled one.
        settled = state.models.heard.all() or after.constant
        if settled and not state.still and models.are_at(x):
            reach = 0.0  # no metric is needed any more
        return after._replace(
            x=x,
            subgradient=here,
            ahead=ahead,
            slope=slope,
            reach=reach,
            still=reach == 0.0,
            origin=origin,
            evidence=evidence_of(answer, models, origin),
        )

    def _between(
        self, models: Expansions, x: Array, answer: Answer, share: float
    ) -> tuple[Array, Array]:
        """The minimiser of this share of the models, and of the rest of others, about x.

        Errors of both grow with the squared distances, so that their weights are the inverses of
        these. The models about x have ∇f_j(x), and B_j times a number, such that the curvature on
        the way to p_j is the mean one there, ⟨y_j - ∇f_j(x), p_j - x⟩.
        """
        rows = answer.present[:, None]
        gradients = np.where(rows, answer.parts["slope"], models.gradients(x))
        way = models.p - x
        bent = dots(way, matvec(models.B, way))
        mean = dots(way, models.y - gradients)
        factor = np.where(bent > 0, mean / np.where(bent > 0, bent, 1.0), 1.0)
        about_x = models._replace(
            p=np.broadcast_to(x, models.p.shape),
            y=gradients,
            B=factor[:, None, None] * models.B,
        )
        return server_step(
            x,
            share * models.gradient(x) + (1.0 - share) * about_x.gradient(x),
            share * models.hessian() + (1.0 - share) * about_x.hessian(),
            self.penalty,
        )

    def minimiser(self, models: Expansions, x: Array) -> tuple[Array, Array]:
        """The minimiser of the models and the penalty, and a subgradient of the latter there."""
        return models.minimiser(x, self.penalty)

    def resume(self, state: InformationState) -> InformationState:
        """The state to continue from under this method's penalty; no client is asked."""
        ahead, slope = self.minimiser(state.models, state.x)
        return state._replace(ahead=ahead, slope=slope, evidence=None)

    def without(self, state: InformationState, kept: Mask) -> InformationState | None:
        return self.resume(
            state._replace(
                models=state.models.of(kept),
                norm=state.norm[kept],
                origin=state.origin[kept],
                latest=state.latest[kept],
            )
        )

    def _along(self, state: InformationState, answer: Answer) -> Array:
        """F + g at the points of the way from x to the point asked, (len(WAY),)."""
        F: Array = answer.parts["values"][answer.present].sum(axis=0)
        if self.penalty is not None:
            way = state.ahead - state.x
            F = F + [self.penalty.value(state.x + t * way) for t in WAY]
        return np.where(np.isnan(F), np.inf, F)

    def _refused(self, state: InformationState, F: Array) -> InformationState:
        """Back on the way, along which F is known, to its least, with the models that led there."""
        t = WAY[int(np.argmin(F))]
        if t == 0.0 and state.models.are_at(state.x):
            t = WAY[-2]  # Newton's step goes down, however short it has to be
        ahead = state.x + t * (state.ahead - state.x)
        if not state.models.heard.any():  # the start was worse than 0: a better one
            return state._replace(ahead=ahead)
        return state._replace(
            ahead=ahead,
            slope=np.full_like(ahead, np.nan),  # known again after the next minimisation
            reach=self.shorter * min(state.reach, self.reach),
            still=True,
        )

    def iterate(self, state: InformationState) -> Array:
        return state.ahead

    def step_of(self, state: InformationState) -> float:
        return state.reach or math.nan  # in Newton's method there is none

    def smooth_value(self, state: InformationState) -> float:
        return float(state.latest.sum())

    def in_units_of_F(self, state: InformationState, move: Array) -> float:  # noqa: N802
        return 0.5 * float(move @ state.models.hessian() @ move)

    def expected_gap(self, before: InformationState, after: InformationState) -> float:
        if after.models is before.models or not after.models.heard.all():
            return math.inf  # a step was refused, or nothing is known of some client
        # The next step of second order takes away nearly all of the gap.
        return self.in_units_of_F(after, self.iterate(after) - self.iterate(before))

    def subgradient(self, state: InformationState) -> Array:
        return state.subgradient

    def evidence(self, state: InformationState) -> Evidence | None:
        return state.evidence

    def values(self, state: InformationState) -> Array | None:
        return None if state.evidence is None else state.evidence.scalars.value


@dataclass(frozen=True)
class Newton(FedSplitInformation):
    """Newton's method: x⁺ = x - (Σ_j ∇²f_j(x))⁻¹∇F(x), as DataSHIELD does it.

    It is ``FedSplitInformation`` with clients that stay at x: one question per step brings F, its
    gradient and its Hessian, and F on the way from the point before, for a line search if it has
    risen. Every client must answer in every round. A fit by secure sums is this method: the server
    sees one client.
    """

    # what makes it Newton's method is no setting
    first_reach: float = field(default=0.0, init=False)
    reach: float = field(default=0.0, init=False)

    unanimous = True

    def described(self) -> str:
        return "Newton's method: every client sends its Hessian"

    def after(self, state: InformationState, answer: Answer) -> InformationState:
        require_complete("Newton", answer)
        return super().after(state, answer)


def evidence_of(answer: Answer, models: Expansions, origin: Array) -> Evidence | None:
    """What the answer proves at the x of the question; None unless everyone answered.

    ``models`` are those after this answer, and ``origin`` has the f_j(0), (m,).
    """
    if not answer.complete:
        return None
    parts = answer.parts
    scalars = ProofScalars.of(parts | {"value": parts["values"][:, 0], "origin": origin})
    hessians, spread = packed(models.B), parts["spread"]
    if "hessian_at_x" in parts:
        hessians, spread = parts["hessian_at_x"], np.zeros_like(spread)
    return Evidence(parts["slope"], spread, hessians, scalars, margin=answer.margin)
