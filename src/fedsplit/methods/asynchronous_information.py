"""FedSplit with information, asynchronously: the newest model of every client, however old."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from fedsplit.arrays import Array, Mask, dots, matvec, norms, packed
from fedsplit.clients.effects import Arrival, Post
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import ProofScalars
from fedsplit.dialogue import Dialogue
from fedsplit.methods.astray import AsynchronousProgress
from fedsplit.methods.information import (
    FedSplitInformation,
    InformationState,
    Models,
    check_size,
)
from fedsplit.methods.method import Evidence, Method
from fedsplit.penalties.penalty import Penalty, check_penalty

FARTHEST = 1.0
"""A model is of use in a proof at x while Hessians between differ by a factor of e at most."""


SAME = 1e-10
"""Points at a smaller distance, relative to ‖x‖, are the same to a client."""

SHARE = 0.1
"""A client is not asked while its model is off by less than this share of the worst one."""


class Facts(NamedTuple):
    """What each client told about the x that it was asked about last.

    Attributes
    ----------
    at, slope : (m, d) arrays
        That x, and ∇f_j there.
    value, norm, floor, ell : (m,) arrays
        f_j there, and as in ``ProofScalars``.
    """

    at: Array
    slope: Array
    value: Array
    norm: Array
    floor: Array
    ell: Array

    @classmethod
    def none(cls, m: int, d: int) -> Facts:
        zeros = np.zeros(m)
        return cls(np.zeros((m, d)), np.zeros((m, d)), zeros, np.full(m, np.inf), zeros, zeros)

    def updated(self, x: Array, answer: Answer) -> Facts:
        """The facts after an answer to a question about x."""
        parts = answer.parts
        here = answer.present
        column = here[:, None]
        return Facts(
            np.where(column, x, self.at),
            np.where(column, parts["slope"], self.slope),
            np.where(here, parts["values"][:, 0], self.value),
            np.where(here, parts["norm"], self.norm),
            np.where(here, parts["floor"], self.floor),
            np.where(here, parts["ell"], self.ell),
        )

    def least_value(self, x: Array) -> Array:
        """Lower bounds on f_j(x), (m,): f_j is above its tangents."""
        return self.value + dots(self.slope, x - self.at)


class AsynchronousInformationState(NamedTuple):
    """What the server knows.

    Attributes
    ----------
    x : (d,) array
        The minimiser of all models.
    subgradient : (d,) array
        Of the penalty there.
    models : Models
    facts : Facts
    progress : AsynchronousProgress
    s : float
        The reach of the next question.
    gain : float
        By how much F falls with the last step, as the models have it.
    evidence : Evidence or None
        What the models prove at x; None while a client was not heard, or is too far from x.
    astray : bool
        Whether the models lead nowhere, so that x stays where it was.
    idle : (m,) mask
        Who has nothing to do.
    """

    x: Array
    subgradient: Array
    models: Models
    facts: Facts
    progress: AsynchronousProgress
    s: float
    idle: Mask
    gain: float = math.nan
    evidence: Evidence | None = None
    astray: bool = False

    @property
    def current(self) -> Mask:
        """Whose last answer is about x, (m,)."""
        near = SAME * max(1.0, float(np.linalg.norm(self.x)))
        here: Mask = self.models.heard & (norms(self.x - self.facts.at) <= near)
        return here


@dataclass(frozen=True)
class AsynchronousInformation(Method[AsynchronousInformationState | InformationState]):
    """``FedSplitInformation`` whose server takes every answer as it comes.

    x is always the minimiser of the newest models, of which each is f_j's expansion at its own
    p_j. With e_j = ‖p_j - x*‖ the next x is within O(max_j e_j²) of x*, whatever the ages of the
    models: the error is bounded in the norm max_j, in which delays do no harm (Bertsekas and
    Tsitsiklis, 1989), and is squared each time that every client has answered once more. For a
    quadratic x is exact as soon as everybody was heard.

    All this is local. F is known at the start alone, so no single step can be refused for raising
    it. Where the models lead astray (``AsynchronousProgress``), the run goes on as
    ``FedSplitInformation`` from the better of x and the start: clients are then asked together, and
    a step that raises F is refused.

    A model is also a proof elsewhere. If |D³f_j[h, u, u]| ≤ c_j‖h‖D²f_j[u, u] and
    t_j = c_j‖x - p_j‖, then ∇²f_j(x) ⪰ e^(-t_j)B_j, and the gradient of the model is off by
    at most ((e^(t_j) - 1)/t_j - 1)‖x - p_j‖ in the norms of B_j: nobody is asked for a proof.
    """

    penalty: Penalty | None = None

    arrivals = True
    state_type = AsynchronousInformationState

    def __post_init__(self) -> None:
        check_penalty(self.penalty)

    def described(self) -> str:
        return "FedSplit with information, asynchronously: every client sends its Hessian"

    @property
    def together(self) -> FedSplitInformation:
        """The method that waits for everybody, for when models of different ages lead astray."""
        return FedSplitInformation(self.penalty)

    def start(self, x0: Array, m: int) -> Dialogue[AsynchronousInformationState]:
        yield from ()
        together = self.together
        check_size("AsynchronousInformation", m, len(x0), together.largest)
        return AsynchronousInformationState(
            x0,
            np.zeros_like(x0),
            Models.none(x0, m),
            Facts.none(m, len(x0)),
            AsynchronousProgress.none(m, x0),
            together.first_reach,
            np.ones(m, dtype=bool),
        )

    def update(
        self, state: AsynchronousInformationState | InformationState
    ) -> Dialogue[AsynchronousInformationState | InformationState]:
        if isinstance(state, InformationState):
            return (yield from self.together.update(state))
        idle = state.idle
        useful = idle & self.useful(state)
        if idle.all() and not useful.any():
            useful = idle  # the answers of all will show that nothing moves any more
        arrival: Arrival = yield Post(self.question(state), useful)
        after = self.absorb(state, arrival)
        if not (after.astray and after.models.heard.all()):
            return after
        begun = yield from self.together.start(after.x, len(after.idle))
        if np.isfinite(after.progress.values).all():
            begun = begun._replace(x=after.progress.start)
        # its first round at once: a round in which x stays would look like the end of the run
        return (yield from self.together.update(begun))

    def question(self, state: AsynchronousInformationState) -> LocalModel:
        """What a client is asked next."""
        if not state.models.heard.any():
            return LocalModel(state.x, None, None, state.s, None)
        return self.together.model_question(state.x, state.models, state.s)

    def useful(self, state: AsynchronousInformationState) -> Mask:
        """Not of quadratics that are known, of who was asked here before, or is not what x lacks.

        A client that takes up a question of little use may still be at it when x has moved, which
        costs more than its answer gains. The x of a minority is no place to ask about either.
        """
        models = state.models
        heard = models.heard
        if 2 * heard.sum() <= len(heard):
            return ~heard
        known = (state.facts.norm == 0.0) | state.current
        t, size = away(state.x, models, state.facts)
        # off by this in the norm of B_j⁻¹, to second order; c_j is taken for the same if not known
        error = np.where(heard, size * np.where(np.isfinite(t), t, size), np.inf)
        new: Mask = ~(heard & known) & (error >= SHARE * error[heard].max())
        return new

    def absorb(
        self, state: AsynchronousInformationState, arrival: Arrival
    ) -> AsynchronousInformationState:
        """The state after answers to an earlier question."""
        asked = cast(LocalModel, arrival.question)
        answer = arrival.answer
        models = state.models.updated(answer)
        facts = state.facts.updated(asked.x, answer)
        progress = state.progress.updated(facts.value, answer.present)
        x, subgradient = self.together.minimiser(models, state.x)
        step = x - state.x
        gain = 0.5 * float(step @ models.hessian() @ step)
        if progress.is_astray(facts.at, facts.value, facts.floor, gain, self.penalty):
            return state._replace(
                models=models, facts=facts, progress=progress, idle=arrival.idle, astray=True
            )
        evidence = evidence_at(x, models, facts)
        reach = self.together.reach
        return AsynchronousInformationState(
            x, subgradient, models, facts, progress, reach, arrival.idle, gain, evidence
        )

    def iterate(self, state: AsynchronousInformationState | InformationState) -> Array:
        return state.ahead if isinstance(state, InformationState) else state.x

    def asked_about(self, state: AsynchronousInformationState | InformationState) -> Array:
        return self.iterate(state)

    def step_of(self, state: AsynchronousInformationState | InformationState) -> float:
        return self.together.step_of(state) if isinstance(state, InformationState) else state.s

    def subgradient(self, state: AsynchronousInformationState | InformationState) -> Array:
        return state.subgradient

    def evidence(self, state: AsynchronousInformationState | InformationState) -> Evidence | None:
        return state.evidence

    def values(self, state: AsynchronousInformationState | InformationState) -> Array | None:
        return self.together.values(state) if isinstance(state, InformationState) else None

    def current(
        self, state: AsynchronousInformationState | InformationState, present: Mask
    ) -> Mask:
        return present if isinstance(state, InformationState) else state.current

    def expected_gap(
        self,
        before: AsynchronousInformationState | InformationState,
        after: AsynchronousInformationState | InformationState,
    ) -> float:
        return after.gain if isinstance(after, AsynchronousInformationState) else math.inf


def away(x: Array, models: Models, facts: Facts) -> tuple[Array, Array]:
    """t_j = c_j‖x - p_j‖, and ‖x - p_j‖ in the norm of B_j, each (m,)."""
    way = x - models.p
    length = norms(way)
    quadratic = (length == 0.0) | (facts.norm == 0.0)
    t = np.where(quadratic, 0.0, facts.norm * np.where(quadratic, 1.0, length))
    return t, np.sqrt(np.maximum(dots(way, matvec(models.B, way)), 0.0))


def evidence_at(x: Array, models: Models, facts: Facts) -> Evidence | None:
    """What models of any age prove at x; None while one is too far from there."""
    if not models.heard.all():
        return None
    t, size = away(x, models, facts)
    if not (t <= FARTHEST).all():
        return None
    # (e^t - 1)/t - 1, and e^(t/2) from the norm of B_j to that of e^(-t)B_j
    off = np.where(t < 1e-6, t, np.expm1(t) / np.where(t == 0.0, 1.0, t) - 1.0)
    drift = float(np.linalg.norm(np.exp(0.5 * t) * off * size))
    unknown = np.full(len(t), np.inf)
    nothing = np.zeros(len(t))
    scalars = ProofScalars(
        value=facts.least_value(x),
        q=unknown,
        mu=nothing,
        ell=facts.ell,
        norm=facts.norm,
        leverage=unknown,
        floor=facts.floor,
        steady=nothing,
    )
    return Evidence(models.gradients(x), t, packed(models.B), scalars, drift)
