"""The questions that the server asks about the clients' costs, and the table of them all.

A new question about f_j is one class here and one line of ``QUESTIONS``. It says which parts an
answer has, and computes them from the costs of stacked clients; counting, sampling, checkpoints,
transport and the check of what comes back follow from that. If every part says how it is added up
over clients, the question can also be asked where only sums are disclosed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np

from fedsplit.arrays import Array, like, namespace
from fedsplit.clients.local_models import LocalModel, ModifiedScore
from fedsplit.clients.local_models import Overview as Overview
from fedsplit.clients.local_models import Trials as Trials
from fedsplit.clients.question import (
    Answer,
    CostQuestion,
    Part,
)
from fedsplit.clients.rounding import rounded_down, rounded_up, separated, sign_along
from fedsplit.local.solver import ProxSolver, StochasticSolver, start_of
from fedsplit.losses.batches import Streams, epochs, independent, unseeded
from fedsplit.losses.costs import Costs
from fedsplit.sums import SIGN, SUM, VALUES


@dataclass(frozen=True)
class StochasticDescend(CostQuestion):
    """The end of gradient steps on f_j from x, each with the gradient of a minibatch."""

    x: Array  # (d,)
    step: float
    steps: int  # the number of steps, or of passes over the client's rows if ``in_epochs``
    batch: int  # B: the gradient of a batch is multiplied by n_j/B
    # whether batches go through all rows in random order; otherwise each is drawn anew
    in_epochs: bool = False
    streams: Streams | None = None  # (m,)

    parts: ClassVar = {"point": Part(("d",))}

    draws = True

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        # without seeds, as when clients are asked directly, all draw from the same ones
        streams = unseeded(costs.terms.k) if self.streams is None else self.streams
        draw = epochs if self.in_epochs else independent
        for batch in draw(streams, costs.stacked, self.batch, self.steps):
            # a client that has finished its passes stays where it is
            used = np.any(batch.scale > 0, axis=1, keepdims=True)
            x = x - self.step * like(1.0 * used, x) * costs.batch(batch).gradient(x)
        return {"point": x}


@dataclass(frozen=True)
class BatchCurvature(CostQuestion):
    """ℓ_j, and the expected smoothness ℒ_j of batches of B rows, everywhere or at x.

    ℒ_j is rounded up to a power of two, since of small batches it is a number of one row.
    """

    batch: int
    x: Array | None = None

    everyone = True
    parts: ClassVar = {"bounds": Part((2,), "not nan")}

    def answer(self, costs: Costs, x: Array | None) -> Mapping[str, Array]:
        ell, _ = costs.bounds if x is None else costs.at(x).bounds()
        # of one row per batch, this is that row's curvature
        smooth = like(rounded_up(costs.batch_smoothness(self.batch, x)), ell)
        return {"bounds": namespace(ell).stack([ell, smooth], axis=1)}


@dataclass(frozen=True)
class Prox(CostQuestion):
    """prox_{s f_j}(v_j) with a proved bound on its error, and a classifier's margin.

    Parameters
    ----------
    v : (d,) or (m, d) array
    s : float
        The step.
    start : (d,) or (m, d) array, optional
        Where the solver starts; v where None.
    solver : ProxSolver
    streams : (m,) array of int, optional
        For a solver that draws.

    Notes
    -----
    The margin is 1 if min_i b_i a_iᵀx > 0 at the start, -1 if not; nan where the loss has no
    classes, a ridge bounds x anyway, or clients start at points of their own. If it is 1 for all
    clients, the classes are separable, and F has no minimiser.
    """

    v: Array
    s: float
    start: Array | None
    solver: ProxSolver
    streams: Streams | None = None

    vectors = ("v", "start")
    parts: ClassVar = {
        "point": Part(("d",)),
        "error": Part((), "distance"),
        "margin": Part((), "anything"),
    }

    def answer(self, costs: Costs, v: Array, start: Array | None) -> Mapping[str, Array]:
        if start is None:
            start = v
        solver = self.solver
        if self.streams is None:
            solved = solver.solve(costs, v, self.s, start)
        else:
            solved = cast(StochasticSolver, solver).solve(costs, v, self.s, start, self.streams)
        # a margin is about one point: at points of their own clients say nothing about F
        common = self.v if self.start is None else self.start
        margin = math.nan * solved.error
        if costs.terms.classifies and common.ndim == 1:
            margin = separated(costs.at(start))
        return {"point": solved.u, "error": solved.error, "margin": margin}


@dataclass(frozen=True)
class Reflection(CostQuestion):
    """A client's part of Algorithm 1: z_j + 2(prox_{s f_j}(2x - z_j) - x), as ``Prox`` otherwise.

    Clients on a device do it in one pass over their rows. All others are asked for the ``prox``
    alone, by the driver: the question itself never travels.
    """

    x: Array  # (d,)
    z: Array  # (m, d)
    s: float
    solver: ProxSolver
    streams: Streams | None = None  # (m,): for a solver that draws

    vectors = ("x", "z")
    parts: ClassVar = {
        "z": Part(("d",)),
        "error": Part((), "distance"),
        "margin": Part((), "anything"),
    }

    @property
    def prox(self) -> Prox:
        """The question for prox_{s f_j}(2x - z_j)."""
        start = start_of(self.solver, self.x, self.z)
        return Prox(2.0 * self.x - self.z, self.s, start, self.solver, self.streams)

    def of_prox(self, answer: Answer) -> Answer:
        """The answer that an answer to ``prox`` amounts to."""
        others = dict(answer.parts)  # clients of one's own may answer with the point alone
        point = others.pop(next(iter(others)))
        # _replace takes three times as long
        return Answer({"z": self.z + 2.0 * (point - self.x), **others}, *answer[1:])

    def answer(self, costs: Costs, x: Array, z: Array) -> Mapping[str, Array]:
        parts = dict(self.prox.answer(costs, 2.0 * x - z, start_of(self.solver, x, z)))
        return {"z": z + 2.0 * (parts.pop("point") - x), **parts}


@dataclass(frozen=True)
class Descend(CostQuestion):
    """The end of ``steps`` gradient steps on f_j + ⟨shift_j, ·⟩ from x."""

    x: Array
    step: float
    steps: int
    shift: Array | None = None

    vectors = ("x", "shift")
    parts: ClassVar = {"point": Part(("d",))}

    def answer(self, costs: Costs, x: Array, shift: Array | None) -> Mapping[str, Array]:
        linear = 0.0 if shift is None else shift  # the gradient of ⟨shift_j, ·⟩
        for _ in range(self.steps):
            x = x - self.step * (costs.gradient(x) + linear)
        return {"point": x}


@dataclass(frozen=True)
class Gradient(CostQuestion):
    """∇f_j(x)."""

    x: Array

    parts: ClassVar = {"gradient": Part(("d",), "finite", SUM)}

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        return {"gradient": costs.gradient(x)}


@dataclass(frozen=True)
class Value(CostQuestion):
    """f_j(x)."""

    x: Array

    parts: ClassVar = {"value": Part((), "not nan", VALUES)}

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        return {"value": costs.at(x).value}


@dataclass(frozen=True)
class Evaluate(CostQuestion):
    """f_j(x) and ∇f_j(x).

    Parameters
    ----------
    x : (d,) or (m, d) array
    trial : (d,) array, optional
        Another point, at which the answer has f_j: a line search need not ask for it by itself.
    margin : bool
        Whether to answer with a classifier's margin at x too, as in ``Prox``.
    """

    x: Array
    trial: Array | None = None
    margin: bool = False

    vectors = ("x", "trial")
    parts: ClassVar = {
        "value": Part((), "not nan", VALUES),
        "gradient": Part(("d",), "not nan", SUM),
        "value_at_trial": Part((), "not nan", VALUES, when="trial"),
        "margin": Part((), "anything", SIGN, when="margin"),
    }

    def answer(self, costs: Costs, x: Array, trial: Array | None) -> Mapping[str, Array]:
        at = costs.at(x)  # one pass over the rows for all that is asked at x
        parts = {"value": at.value, "gradient": at.gradient}
        if trial is not None:
            parts["value_at_trial"] = costs.value(trial)
        if self.margin:
            parts["margin"] = separated(at)
        return parts


@dataclass(frozen=True)
class Curvature(CostQuestion):
    """ℓ_j and L_j that hold everywhere (0 and inf where there are none), or at x.

    A step that follows from them must suit every client.
    """

    x: Array | None = None

    everyone = True
    parts: ClassVar = {"bounds": Part((2,), "not nan")}

    def answer(self, costs: Costs, x: Array | None) -> Mapping[str, Array]:
        bounds = costs.bounds if x is None else costs.at(x).bounds()  # ℓ_j and L_j, each (k,)
        return {"bounds": namespace(bounds[0]).stack(bounds, axis=1)}


class ProofScalars(NamedTuple):
    """What client j contributes to a certificate at x, given g = ∇F(x) or a subgradient."""

    value: Array  # (m,): f_j(x)
    q: Array  # (m,): gᵀ∇²f_j(x)⁻¹g, inf where that is not defined
    mu: Array  # (m,): the smallest eigenvalue of ∇²f_j(x), 0 at the level of rounding
    ell: Array  # (m,): ℓ_j, the strong convexity of f_j everywhere
    # (m,): how fast the Hessian can change: |D³f_j[h, u, u]| ≤ c D²f_j[u, u] with c = norm·‖h‖, and
    # with c = leverage·‖h‖ in the norm of ∇²f_j(x). 0 for a quadratic, inf without a bound. Powers
    # of two, as ``steady``: each is a number of one row
    norm: Array
    leverage: Array
    floor: Array  # (m,): a lower bound on f_j
    # (m,): the radius of a ball around x in which ∇²f_j is constant: inf for a quadratic, 0 where
    # none is known
    steady: Array
    # (m,): about how much rounding adds to ∇f_j(x), in the norm of ∇²f_j(x)⁻¹; inf where that is
    # not defined. Empty if it is not known
    noise: Array = np.zeros(0)
    # (m,): f_j(0), which the tolerance is relative to; empty if it is not known
    origin: Array = np.zeros(0)

    @classmethod
    def of(cls, parts: dict[str, Array]) -> ProofScalars:
        """The scalars of an answer. All but f_j(x) may be left out, and then count as unknown."""
        # what is unknown bounds nothing, so that no proof rests on it: q, mu, ell, norm, leverage,
        # floor and steady
        unknown = (np.inf, 0.0, 0.0, np.inf, np.inf, -np.inf, 0.0)
        nothing = cls(parts["value"], *(np.full_like(parts["value"], each) for each in unknown))
        return nothing._replace(**{name: parts[name] for name in cls._fields if name in parts})


@dataclass(frozen=True)
class Decrement(CostQuestion):
    """The ``ProofScalars`` of f_j at x, given g."""

    # (d,)
    x: Array
    g: Array
    # whether to answer with f_j(0) too, which a tolerance may be relative to, with the noise, and
    # with a classifier's margin as in ``Prox``
    origin: bool = False

    vectors = ("x", "g")
    parts: ClassVar = {
        **dict.fromkeys(ProofScalars._fields[:-2], Part((), "not nan")),
        "noise": Part((), "nonnegative", when="origin"),
        "origin": Part((), "not nan", when="origin"),
        "margin": Part((), "anything", when="origin"),
    }

    def answer(self, costs: Costs, x: Array, g: Array) -> Mapping[str, Array]:
        at = costs.at(x)
        scalars = at.decrement(g)
        # on the side on which a proof stays a proof: Hessians may change faster, and sooner
        scalars |= {name: rounded_up(scalars[name]) for name in ("norm", "leverage")}
        scalars["steady"] = rounded_down(scalars["steady"])
        noise = scalars.pop("noise")
        if self.origin:
            scalars["noise"] = noise
            scalars["origin"] = costs.value_at_origin
            scalars["margin"] = separated(at)
        return scalars


@dataclass(frozen=True)
class Line(CostQuestion):
    """f_j(x + t_i direction) for every t_i, perhaps not a number far out: a line search at once."""

    x: Array
    direction: Array
    t: Array

    vectors = ("x", "direction")
    parts: ClassVar = {"values": Part(("t",), "some not nan", VALUES)}

    def answer(self, costs: Costs, x: Array, direction: Array) -> Mapping[str, Array]:
        values = [costs.value(x + float(t) * direction) for t in self.t]
        return {"values": namespace(x).stack(values, axis=1)}


@dataclass(frozen=True)
class Direction(CostQuestion):
    """∇²f_j(x)⁻¹ g, the local Newton direction."""

    x: Array
    g: Array

    vectors = ("x", "g")
    parts: ClassVar = {"direction": Part(("d",))}

    def answer(self, costs: Costs, x: Array, g: Array) -> Mapping[str, Array]:
        return {"direction": costs.at(x).direction(g)}


@dataclass(frozen=True)
class Margin(CostQuestion):
    """Whether every row of a classifier gains along x, none loses, or some row does: 1, 0, -1.

    nan where the loss has no classes.
    """

    x: Array

    parts: ClassVar = {"margin": Part((), "anything", SIGN)}

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        return {"margin": sign_along(costs, x)}


@dataclass(frozen=True)
class Information(CostQuestion):
    """∇²f_j(x)."""

    x: Array

    parts: ClassVar = {"hessian": Part(("d", "d"), "finite", SUM)}

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        return {"hessian": costs.hessian(x)}


QUESTIONS: Mapping[str, type[CostQuestion]] = {
    question.name(): question
    for question in (
        Prox,
        Descend,
        StochasticDescend,
        Gradient,
        Value,
        Evaluate,
        Curvature,
        BatchCurvature,
        Overview,
        Trials,
        Decrement,
        Line,
        Direction,
        Margin,
        Information,
        LocalModel,
        ModifiedScore,
    )
}
"""Everything that clients answer about their costs, by name."""
