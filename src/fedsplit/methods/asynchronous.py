"""Methods that take answers as they come: FedSplit with information, and DAve-PG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from fedsplit.arrays import Array, Mask, dots, matvec, norms, packed
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.oracle import Arrival, Post
from fedsplit.clients.questions import Gradient, ProofScalars
from fedsplit.dialogue import Dialogue
from fedsplit.methods.information import Arrivals, FedSplitInformation, InformationState
from fedsplit.methods.method import (
    Evidence,
    StepMethod,
    average,
    choose_step,
    subgradient_of_average,
)
from fedsplit.penalties.penalty import Penalty
from fedsplit.theory import fedgd_step


@dataclass(frozen=True)
class AsynchronousInformation(FedSplitInformation):
    """``FedSplitInformation`` whose server takes every answer as it comes.

    x is always the minimiser of the newest models, of which each is f_j's expansion at its own
    p_j. With e_j = ‖p_j - x*‖ the next x is within O(max_j e_j²) of x*, whatever the ages of the
    models: the error is bounded in the norm max_j, in which delays do no harm (Bertsekas and
    Tsitsiklis, 1989), and is squared each time that every client has answered once more. For a
    quadratic x is exact as soon as everybody was heard.

    All this is local. F is known at the start alone, so no single step can be refused for raising
    it. Where the models lead astray, the run goes on as ``FedSplitInformation`` from the better of
    x and the start: clients are then asked together, and a step that raises F is refused.

    A model is also a proof elsewhere. If |D³f_j[h, u, u]| ≤ c_j‖h‖D²f_j[u, u] and
    t_j = c_j‖x - p_j‖, then ∇²f_j(x) ⪰ e^(-t_j)B_j, and the gradient of the model is off by
    at most ((e^(t_j) - 1)/t_j - 1)‖x - p_j‖ in the norms of B_j: nobody is asked for a proof.

    Parameters
    ----------
    share : float
        A client is not asked while its model is off by less than this share of the worst one.
    same : float
        Points at a smaller distance, relative to ‖x‖, are the same to a client.
    farthest : float
        The largest t_j of a model in a proof: Hessians between then differ by a factor of e.
    leap : float
        A step is astray if by the models F falls by this many times what it can fall.
    worse : float
        A run is astray where costs are above those of the start by more than this share, which is
        not rounding.
    patience : int
        A run is astray after this many answers of every client: most end after three to six.
    """

    share: float = 0.1
    same: float = 1e-10
    farthest: float = 1.0
    leap: float = 1e6
    worse: float = 1e-9
    patience: int = 12

    arrivals = True

    def described(self) -> str:
        return "FedSplit with information, asynchronously: every client sends its Hessian"

    def start(self, x0: Array, m: int) -> Dialogue[InformationState]:
        begun = yield from super().start(x0, m)
        nothing, zeros, everyone = np.zeros((m, len(x0))), np.zeros(m), np.ones(m, dtype=bool)
        nobody = np.zeros(m, dtype=np.int64)
        arrivals = Arrivals(nothing, nothing, zeros, zeros, x0, zeros, nobody, everyone)
        # x is what everybody is asked about first, and nothing is compared with 0
        return begun._replace(x=x0, arrivals=arrivals)

    def update(self, state: InformationState) -> Dialogue[InformationState]:
        if state.arrivals is None:  # it went astray
            return (yield from super().update(state))
        idle = state.arrivals.idle
        useful = idle & self._useful(state, state.arrivals)
        if idle.all() and not useful.any():
            useful = idle  # the answers of all will show that nothing moves any more
        arrival: Arrival = yield Post(self.question(state), useful)
        after, astray = self._absorbed(state, arrival)
        if not (astray and after.models.heard.all()):
            return after
        begun = yield from super().start(after.x, len(idle))
        if after.arrivals is not None and np.isfinite(after.arrivals.first).all():
            begun = begun._replace(x=after.arrivals.start)
        # its first round at once: a round in which x stays would look like the end of the run
        return (yield from super().update(begun))

    def _useful(self, state: InformationState, arrivals: Arrivals) -> Mask:
        """The clients whose answer about x would bring it forward, (m,).

        Clients are skipped whose model is exact (quadratics), who have answered at this x already,
        and whose model is better than the worst by far: one that takes up a question of little use
        may still be at it when x has moved, which costs more than its answer gains. The x of a
        minority is no place to ask about either.
        """
        models = state.models
        heard = models.heard
        if 2 * heard.sum() <= len(heard):
            return ~heard
        known = heard & ((state.norm == 0.0) | self._asked_here(state.x, arrivals))
        t, size = away(state, state.x)
        # off by this in the norm of B_j⁻¹, to second order; c_j is taken for the same if not known
        error = np.where(heard, size * np.where(np.isfinite(t), t, size), np.inf)
        result: Mask = ~known & (error >= self.share * error[heard].max())
        return result

    def _absorbed(self, state: InformationState, arrival: Arrival) -> tuple[InformationState, bool]:
        """The state after answers to an earlier question, and whether the run goes astray."""
        assert state.arrivals is not None
        present, parts = arrival.answer.present, arrival.answer.parts
        rows = present[:, None]
        after = state.updated(arrival.answer)
        before = state.arrivals
        x, slope = after.models.minimiser(state.x, self.penalty)
        step = x - state.x
        arrivals = Arrivals(
            at=np.where(rows, cast(LocalModel, arrival.question).x, before.at),
            slope=np.where(rows, parts["slope"], before.slope),
            floor=np.where(present, parts["floor"], before.floor),
            ell=np.where(present, parts["ell"], before.ell),
            start=before.start,
            first=np.where(present & (before.answers == 0), after.latest, before.first),
            answers=before.answers + present,
            idle=arrival.idle,
            gain=0.5 * float(step @ after.models.hessian() @ step),
        )
        after = after._replace(arrivals=arrivals)
        if self._is_astray(after, arrivals):
            return after, True  # x stays where it was
        evidence = self._evidence(x, after, arrivals)
        return after._replace(
            x=x, subgradient=slope, ahead=x, slope=slope, reach=self.reach, evidence=evidence
        ), False

    def _is_astray(self, state: InformationState, arrivals: Arrivals) -> bool:
        """Whether the run goes nowhere.

        Signs of it are a step that no cost can reward, costs that are above those of the start
        where clients were asked last, or not finite, and a run that takes too long.
        """
        heard = state.models.heard
        first = arrivals.first[heard]
        before = float(first.sum())
        room = before - float(arrivals.floor[heard].sum())
        now = float(state.latest[heard].sum())
        if self.penalty is not None:
            at_start = self.penalty.value(arrivals.start)
            now += float(np.mean([self.penalty.value(x) - at_start for x in arrivals.at[heard]]))
        worse = now > before + self.worse * float(np.abs(first).sum())
        leap = not arrivals.gain <= self.leap * room
        late = arrivals.answers.min() >= self.patience
        return bool(leap or worse or not np.isfinite(now) or late)

    def _evidence(self, x: Array, state: InformationState, arrivals: Arrivals) -> Evidence | None:
        """What models of any age prove at x; None while one is unknown or too far from there."""
        models = state.models
        t, size = away(state, x)
        if not (models.heard.all() and (t <= self.farthest).all()):
            return None
        # (e^t - 1)/t - 1, and e^(t/2) from the norm of B_j to that of e^(-t)B_j
        off = np.where(t < 1e-6, t, np.expm1(t) / np.where(t == 0.0, 1.0, t) - 1.0)
        drift = float(np.linalg.norm(np.exp(0.5 * t) * off * size))
        # On the way from where f_j and its slope are known, the Hessian is at least e^(-s_j)B_j: a
        # tangent alone may be far below f_j, even for a quadratic, which this has exactly.
        way = x - arrivals.at
        s = np.maximum(t, away(state, arrivals.at)[0])
        curved = 0.5 * np.exp(-s) * dots(way, matvec(models.B, way))
        known = {
            "value": state.latest + dots(arrivals.slope, way) + curved,
            "ell": arrivals.ell,
            "norm": state.norm,
            "floor": arrivals.floor,
        }
        return Evidence(models.gradients(x), t, packed(models.B), ProofScalars.of(known), drift)

    def _asked_here(self, x: Array, arrivals: Arrivals) -> Mask:
        """Who was asked about x last, (m,)."""
        return norms(x - arrivals.at) <= self.same * max(1.0, float(np.linalg.norm(x)))

    def current(self, state: InformationState, present: Mask) -> Mask:
        if state.arrivals is None:
            return present
        return state.models.heard & self._asked_here(state.x, state.arrivals)

    def without(self, state: InformationState, kept: Mask) -> InformationState | None:
        # what was posted is void: a run that waits for nobody begins anew from x
        return super().without(state, kept) if state.arrivals is None else None

    def values(self, state: InformationState) -> Array | None:
        # those of old answers are bounds
        return super().values(state) if state.arrivals is None else None

    def expected_gap(self, before: InformationState, after: InformationState) -> float:
        if after.arrivals is None:
            return super().expected_gap(before, after)
        return after.arrivals.gain


def away(state: InformationState, x: Array) -> tuple[Array, Array]:
    """t_j = c_j‖x - p_j‖, and ‖x - p_j‖ in the norm of B_j, each (m,); x is (d,) or (m, d)."""
    models = state.models
    way = x - models.p
    length = norms(way)
    # of a client that was not heard, c_j is not known
    norm = np.where(models.heard, state.norm, np.inf)
    steady = (length == 0.0) | (norm == 0.0)
    t = np.where(steady, 0.0, norm * np.where(steady, 1.0, length))
    return t, np.sqrt(np.maximum(dots(way, matvec(models.B, way)), 0.0))


class ArrivalState(NamedTuple):
    """What the server of an asynchronous method knows."""

    x: Array  # (d,)
    z: Array  # (m, d): what each client's last answer has made of its row
    s: float  # the step
    idle: Mask  # (m,): who has nothing to do


@dataclass(frozen=True)
class DAvePG(StepMethod[ArrivalState]):
    """DAve-PG (Mishchenko, Iutzeler, Malick and Amini, 2018): gradient steps of any age.

    Client j was last asked about x_j, and z_j = x_j - s∇f_j(x_j). The server's x is
    prox_{(s/m)g}(mean z). With s ≤ 2/(ℓ* + L*) each x_j ↦ z_j is a contraction by 1 - sℓ*, so
    that max_j ‖z_j - z_j*‖ falls by that factor each time that every client has answered a question
    asked after the last fall: the limit is the optimum for every delay, and the step the same.

    Parameters
    ----------
    step : float, optional
        s. None is 2/(ℓ* + L*), or 1/L* if ℓ* = 0.
    penalty : Penalty, optional
    """

    step: float | None = None
    penalty: Penalty | None = None

    arrivals = True
    state_type = ArrivalState
    hazard = "the step is above 2/L*: pass a smaller step"

    def start(self, x0: Array, m: int) -> Dialogue[ArrivalState]:
        s = yield from choose_step(self.step, fedgd_step, x0)
        z = np.tile(x0, (m, 1))
        return ArrivalState(average(z, s, self.penalty), z, s, np.ones(m, dtype=bool))

    def update(self, state: ArrivalState) -> Dialogue[ArrivalState]:
        x, z, s, idle = state
        # who has nothing to do is asked about the x of now; the others still answer an older one
        arrival: Arrival = yield Post(Gradient(x), idle)
        answer = arrival.answer
        moved = cast(Gradient, arrival.question).x - s * answer.rows
        z = np.where(answer.present[:, None], moved, z)
        return ArrivalState(average(z, s, self.penalty), z, s, arrival.idle)

    def iterate(self, state: ArrivalState) -> Array:
        return state.z

    def subgradient(self, state: ArrivalState) -> Array:
        return subgradient_of_average(state.x, state.z, state.s)
