"""The questions that the server asks: frozen values that any client, anywhere, can answer.

A new question about f_j is one class here and one line of ``QUESTIONS``. It says which arrays an
answer has, with their shapes, and computes them from the costs of stacked clients; counting,
sampling, checkpoints, transport and the check of what comes back follow from that.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask, packed, unpacked
from fedsplit.losses.costs import Costs
from fedsplit.losses.jeffreys import jeffreys
from fedsplit.prox.metric import own_metric, own_point, pooled_point
from fedsplit.prox.solver import ProxSolver

NOT_FINITE = "an answer that is not finite"
"""What is wrong with an answer whose numbers cannot be used. If those of every client are like
this, the clients are not to blame: the run itself diverges."""


class Answer(NamedTuple):
    """The clients' answers to one question; row j of every array belongs to client j.

    Attributes
    ----------
    parts : dict of str to array
        The arrays of the answer by name, each (m, ...); rows of absent clients are nan.
    present : (m,) mask
        Who answered.
    seconds : (m,) array
        The time each client took. Clients that share a process share its time evenly.
    work : (m, 3) array
        How many gradients, Hessians and factorisations each client computed.
    """

    parts: dict[str, Array]
    present: Mask
    seconds: Array
    work: Array

    @property
    def rows(self) -> Array:
        """The first part: the point of a prox, the gradient, the values …"""
        return next(iter(self.parts.values()))

    @property
    def error(self) -> Array:
        """A proved bound on each row's distance from the exact answer, (m,); 0 if it is exact."""
        exact = np.zeros(len(self.present))
        return self.parts.get("error", exact)

    def rows_or(self, default: Array) -> Array:
        """The rows, with ``default`` where a client did not answer."""
        xp = array_namespace(self.rows)
        if xp.all(self.present):
            return self.rows
        filled: Array = xp.where(self.present[:, None], self.rows, default)
        return filled


class Question(ABC):
    """A frozen dataclass of plain values, which travels as it is.

    Attributes
    ----------
    answer_type : type
        What comes back from a cohort of clients, for those who decode it.
    prepares : bool
        Whether this question prepares clients for others, and so brings no answer by itself.
    everyone : bool
        Whether the answers are useless unless every client gives one.
    vectors : tuple of str
        The fields that are points.
    brings_matrices : bool
        Whether a method asks this in every round, and for matrices of a client's rows.
    """

    answer_type: ClassVar[Any]
    prepares: ClassVar[bool] = False
    everyone: ClassVar[bool] = False
    vectors: ClassVar[tuple[str, ...]] = ()
    brings_matrices: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        """The question's name in messages and logs, such as ``prox``."""
        return re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def matrices(self) -> int:
        """How many matrices of its rows a client tells in its answer."""
        return 0

    def points(self) -> list[Array | None]:
        """The fields named in ``vectors``."""
        return [getattr(self, name) for name in self.vectors]


class Part(NamedTuple):
    """One array of an answer.

    Attributes
    ----------
    shape : tuple of int or str
        Its shape per client, where ``"d"`` stands for the number of coordinates, and ``"triangle"``
        for that of the entries of a symmetric d×d matrix on and below its diagonal.
    allowed : {"finite", "distance", "size", "convex", "number", "some", "any"}
        Whether entries must be finite, or finite and nonnegative, or only nonnegative; those of a
        triangle finite, and nonnegative on the diagonal; may be infinite; may be nan, but not all
        those of a client; or may be anything.
    """

    shape: tuple[int | str, ...] = ()
    allowed: Literal["finite", "distance", "size", "convex", "number", "some", "any"] = "finite"

    def shape_for(self, d: int) -> tuple[int, ...]:
        """The shape per client, for x with d coordinates."""
        lengths = {"d": d, "triangle": d * (d + 1) // 2}
        return tuple(lengths.get(str(length)) or int(length) for length in self.shape)


def _may_be_convex(triangles: Array) -> Any:
    """Whether matrices with these entries, on and below the diagonal, may be Hessians."""
    d = int(np.sqrt(2 * triangles.shape[-1]))
    diagonal = np.cumsum(np.arange(1, d + 1)) - 1
    return np.isfinite(triangles).all() and (triangles[..., diagonal] >= 0).all()


USABLE: Mapping[str, Callable[[Array], Any]] = {
    "finite": lambda array: np.isfinite(array).all(),
    "distance": lambda array: (np.isfinite(array) & (array >= 0)).all(),
    "size": lambda array: (array >= 0).all(),
    "convex": _may_be_convex,
    "number": lambda array: not np.isnan(array).any(),
    "some": lambda array: not np.isnan(array).all(axis=1).any(),
    "any": lambda array: True,
}
"""By ``Part.allowed``, whether the numbers of a part can be used."""

VECTOR = Part(("d",))
NUMBER = Part((), "number")
SIZE = Part((), "size")
HESSIAN = Part(("triangle",), "convex")

WAY = (*(2.0**-k for k in (0, 1, 2, 3, 4, 5, 6, 8, 10, 14, 18, 24)), 0.0)
"""The shares of the way between two points at which ``LocalModel`` tells f_j; the first is x."""


class CostQuestion(Question):
    """A question about each client's own cost f_j.

    Its points are (d,), the same for all clients, (m, d), one per client, or None.

    Attributes
    ----------
    parts : mapping of str to Part
        The arrays of an answer by name; the first one is ``Answer.rows``.
    """

    answer_type = Answer
    vectors: ClassVar[tuple[str, ...]] = ("x",)
    parts: ClassVar[Mapping[str, Part]] = {}

    @abstractmethod
    def answer(self, costs: Costs, *points: Any) -> Sequence[Array]:
        """The parts, each (k, ...), of the k clients with these costs.

        ``points`` are the fields named in ``vectors``, in their order, each (k, d) or None.
        """

    def answer_parts(self) -> Mapping[str, Part]:
        """The arrays of an answer to this very question."""
        return self.parts

    @property
    def matrices(self) -> int:
        shapes = [part.shape for part in self.answer_parts().values()]
        return shapes.count(("d", "d")) + shapes.count(("triangle",))

    def floats_down(self, d: int) -> int:
        """Floats sent to each client: arrays and step sizes count, a solver's settings do not."""
        points = sum(point is not None for point in self.points())
        others = [value for name, value in vars(self).items() if name not in self.vectors]
        return d * points + sum(np.size(v) for v in others if isinstance(v, float | np.ndarray))

    def floats_up(self, d: int, answer: Answer) -> int:
        """Floats received from each client."""
        return sum(prod(part.shape_for(d)) for part in self.answer_parts().values())

    def share(self, rows: slice) -> Self:
        """The question as it goes to the clients of these rows."""
        own = {
            name: point[rows]
            for name, point in zip(self.vectors, self.points(), strict=True)
            if point is not None and point.ndim == 2
        }
        return replace(self, **own)  # type: ignore[type-var]  # every subclass is a dataclass

    def check(self, value: Any, k: int, d: int) -> str:
        """What is wrong with the answer of k clients: an empty text if nothing is."""
        if not isinstance(value, Answer):
            return f"an answer of the wrong type, {type(value).__name__}"
        parts = self.answer_parts()
        if list(value.parts) != list(parts):
            return f"an answer with {', '.join(value.parts)}, expected {', '.join(parts)}"
        for name, part in parts.items():
            array = value.parts[name]
            shape = (k, *part.shape_for(d))
            kind = getattr(array, "dtype", type(array).__name__)
            if kind != np.float64:
                return f"{name} has the wrong type, {kind}"
            if array.shape != shape:
                return f"{name} has the wrong shape, {array.shape}, expected {shape}"
        if value.work.shape != (k, 3):
            return f"work has the wrong shape, {value.work.shape}, expected {(k, 3)}"
        for name, part in parts.items():
            array = value.parts[name]
            if not USABLE[part.allowed](array):
                return f"{name} is below zero" if np.isfinite(array).all() else NOT_FINITE
        return ""


@dataclass(frozen=True)
class Prox(CostQuestion):
    """prox_{s f_j}(v_j) with a proved bound on its error, and a classifier's margin.

    Parameters
    ----------
    v : (d,) or (m, d) array
    s : float or (d,) array
        The step, or one per coordinate.
    start : (d,) or (m, d) array, optional
        Where the solver starts; v where None.
    solver : ProxSolver
    gradient : bool
        Whether to answer with ∇f_j at the point too.

    Notes
    -----
    The margin is min_i b_i a_iᵀx at the start, nan where the loss has no classes. If it is positive
    at one x for all clients, the classes are separable.
    """

    v: Array
    s: float | Array
    start: Array | None
    solver: ProxSolver
    gradient: bool = False

    vectors = ("v", "start")
    parts: ClassVar = {"point": VECTOR, "error": Part((), "distance"), "margin": Part((), "any")}

    def answer_parts(self) -> Mapping[str, Part]:
        if not self.gradient:
            return self.parts
        return {**self.parts, "gradient": VECTOR}

    def answer(self, costs: Costs, v: Array, start: Array | None) -> Sequence[Array]:
        if start is None:
            start = v
        solved = self.solver.solve(costs, v, self.s, start)
        parts = [solved.u, solved.error, costs.margin(start)]
        if self.gradient:
            known = solved.gradient
            parts.append(costs.gradient(solved.u) if known is None else known)
        return parts

    def floats_up(self, d: int, answer: Answer) -> int:
        """The margin counts only if there is one."""
        nothing = bool(np.isnan(answer.parts["margin"]).any())
        return super().floats_up(d, answer) - nothing


@dataclass(frozen=True)
class Descend(CostQuestion):
    """The end of ``steps`` gradient steps on f_j + ⟨shift_j, ·⟩ from x."""

    x: Array
    step: float
    steps: int
    shift: Array | None = None

    vectors = ("x", "shift")

    parts: ClassVar = {"point": VECTOR}

    def answer(self, costs: Costs, x: Array, shift: Array | None) -> Sequence[Array]:
        linear = 0.0 if shift is None else shift
        for _ in range(self.steps):
            x = x - self.step * (costs.gradient(x) + linear)
        return [x]


@dataclass(frozen=True)
class Gradient(CostQuestion):
    """∇f_j(x)."""

    x: Array

    parts: ClassVar = {"gradient": VECTOR}

    def answer(self, costs: Costs, x: Array) -> Sequence[Array]:
        return [costs.gradient(x)]


@dataclass(frozen=True)
class Value(CostQuestion):
    """f_j(x)."""

    x: Array

    parts: ClassVar = {"value": NUMBER}

    def answer(self, costs: Costs, x: Array) -> Sequence[Array]:
        return [costs.value(x)]


@dataclass(frozen=True)
class Evaluate(CostQuestion):
    """f_j(x) and ∇f_j(x)."""

    x: Array

    parts: ClassVar = {"value": NUMBER, "gradient": Part(("d",), "number")}

    def answer(self, costs: Costs, x: Array) -> Sequence[Array]:
        return [costs.value(x), costs.gradient(x)]


@dataclass(frozen=True)
class Curvature(CostQuestion):
    """ℓ_j and L_j that hold everywhere (0 and inf where there are none), or at x.

    A step that follows from them must suit every client.
    """

    x: Array | None = None

    everyone = True

    parts: ClassVar = {"bounds": Part((2,), "number")}

    def answer(self, costs: Costs, x: Array | None) -> Sequence[Array]:
        bounds = costs.bounds if x is None else costs.bounds_at(x)
        return [np.stack(bounds, axis=1)]


@dataclass(frozen=True)
class Diagonal(CostQuestion):
    """The diagonal of ∇²f_j(x), about its smallest and largest eigenvalue, and f_j(x).

    Parameters
    ----------
    x : (d,) array
    origin : bool
        Whether to answer with f_j(0) too: a start far away may be worse than none.
    """

    x: Array
    origin: bool = False

    parts: ClassVar = {"diagonal": VECTOR, "smallest": Part(), "largest": Part(), "value": NUMBER}

    def answer_parts(self) -> Mapping[str, Part]:
        if not self.origin:
            return self.parts
        return {**self.parts, "value_at_0": NUMBER}

    def answer(self, costs: Costs, x: Array) -> Sequence[Array]:
        parts = [costs.diagonal(x), *costs.extremes_at(x), costs.value(x)]
        if self.origin:
            parts.append(costs.value(np.zeros_like(x)))
        return parts


class ProofScalars(NamedTuple):
    """What client j contributes to a certificate at x, given g = ∇F(x) or a subgradient.

    Attributes
    ----------
    value : (m,) array
        f_j(x).
    q : (m,) array
        gᵀ∇²f_j(x)⁻¹g, inf where that is not defined.
    mu : (m,) array
        The smallest eigenvalue of ∇²f_j(x), 0 at the level of rounding.
    ell : (m,) array
        ℓ_j, the strong convexity of f_j everywhere.
    norm, leverage : (m,) arrays
        How fast the Hessian can change: |D³f_j[h, u, u]| ≤ c D²f_j[u, u] with c = norm·‖h‖, and
        with c = leverage·‖h‖ in the norm of ∇²f_j(x). 0 for a quadratic, inf without a bound.
    floor : (m,) array
        A lower bound on f_j.
    steady : (m,) array
        The radius of a ball around x in which ∇²f_j is constant: inf for a quadratic, 0 where none
        is known.
    """

    value: Array
    q: Array
    mu: Array
    ell: Array
    norm: Array
    leverage: Array
    floor: Array
    steady: Array


@dataclass(frozen=True)
class Decrement(CostQuestion):
    """The ``ProofScalars`` of f_j at x, given g."""

    x: Array
    g: Array

    vectors = ("x", "g")

    parts: ClassVar = dict.fromkeys(ProofScalars._fields, NUMBER)

    def answer(self, costs: Costs, x: Array, g: Array) -> Sequence[Array]:
        return costs.decrement(x, g)


@dataclass(frozen=True)
class Line(CostQuestion):
    """f_j(x + t_i direction) for every t_i: a line search in one question.

    Far out on the line a cost may not be a number.
    """

    x: Array
    direction: Array
    t: Array

    vectors = ("x", "direction")

    def answer_parts(self) -> Mapping[str, Part]:
        return {"values": Part((len(self.t),), "some")}

    def answer(self, costs: Costs, x: Array, direction: Array) -> Sequence[Array]:
        return [np.stack([costs.value(x + length * direction) for length in self.t], axis=1)]


@dataclass(frozen=True)
class Direction(CostQuestion):
    """∇²f_j(x)⁻¹ g, the local Newton direction."""

    x: Array
    g: Array

    vectors = ("x", "g")

    parts: ClassVar = {"direction": VECTOR}

    def answer(self, costs: Costs, x: Array, g: Array) -> Sequence[Array]:
        return [costs.direction(x, g)]


@dataclass(frozen=True)
class Margin(CostQuestion):
    """min_i b_i a_iᵀx of a classifier, nan where the loss has no classes."""

    x: Array

    parts: ClassVar = {"margin": Part((), "any")}

    def answer(self, costs: Costs, x: Array) -> Sequence[Array]:
        return [costs.margin(x)]


@dataclass(frozen=True)
class Information(CostQuestion):
    """∇²f_j(x)."""

    x: Array

    parts: ClassVar = {"hessian": Part(("d", "d"))}

    def answer(self, costs: Costs, x: Array) -> Sequence[Array]:
        return [costs.hessian(x)]


@dataclass(frozen=True)
class LocalModel(CostQuestion):
    """A quadratic model of f_j around p_j, where the client would rather be, and a proof at x.

    p_j = argmin_u f_j(u) + ½(u - v_j)ᵀM(u - v_j), and the model is f_j's second-order expansion
    there. Beside it the answer has what a certificate at x needs.

    Parameters
    ----------
    x : (d,) array
        Where the server is, and the local solver starts.
    v : (m, d) array or None
        The centres; x where None.
    metric : (d(d + 1)/2,) array or None
        The entries of a matrix on and below its diagonal, which is M times ``reach``. Where None,
        each client takes its own ∇²f_j(x), made regular.
    reach : float
        The larger, the farther p_j may be from v_j; 0 for p_j = x, as in Newton's method.
    before : (d,) array or None
        Another point; the answer has f_j on the way from there to x.
    both : bool
        Whether to answer with ∇²f_j(x) too, for losses that state no concordance.
    """

    x: Array
    v: Array | None
    metric: Array | None
    reach: float
    before: Array | None
    both: bool = False

    vectors = ("x", "v", "before")
    brings_matrices = True

    parts: ClassVar = {
        "point": VECTOR,
        "gradient": VECTOR,
        "hessian": HESSIAN,
        "values": Part((len(WAY),), "number"),
        "slope": Part(("d",), "number"),
        "spread": SIZE,
        "norm": SIZE,
        "floor": NUMBER,
        "steady": SIZE,
        "ell": SIZE,
        "margin": Part((), "any"),
    }

    def answer_parts(self) -> Mapping[str, Part]:
        if not self.both:
            return self.parts
        return {**self.parts, "hessian_at_x": Part(("triangle",), "any")}

    def answer(
        self, costs: Costs, x: Array, v: Array | None, before: Array | None
    ) -> Sequence[Array]:
        slope = costs.gradient(x)
        if before is None:
            values = np.tile(costs.value(x)[:, None], len(WAY))
        else:
            values = costs.values(before, x, slope, WAY)
        p, gradient, B = self._model(costs, x, values[:, 0], slope, v)
        terms = costs.terms
        parts = [p, gradient, packed(B), values, slope, terms.spread(x - p), costs.norm]
        parts += [terms.floor(), terms.steady(x), costs.convexity, costs.margin(x)]
        if self.both:
            parts.append(packed(costs.hessian(x)))
        return parts

    def _model(
        self, costs: Costs, x: Array, value: Array, slope: Array, v: Array | None
    ) -> tuple[Array, Array, Array]:
        """p_j, ∇f_j(p_j) and ∇²f_j(p_j)."""
        # Beyond float64 there is no model; the server refuses such an x by its value.
        usable: Mask = np.asarray(np.isfinite(slope).all(axis=1))
        slope = np.where(usable[:, None], slope, 0.0)
        # With fewer observations than coordinates a client has no minimiser of its own, and the
        # model of a quadratic is the same everywhere.
        stays = ~usable | costs.terms.underdetermined() | (costs.norm == 0)
        if self.reach == 0.0 or stays.all():
            return _finite(x, slope, costs.hessian(x))
        if self.metric is None:
            _, _, H = _finite(x, slope, costs.hessian(x))
            p, gradient, B = own_point(costs, x, slope, H, own_metric(H, slope, self.reach))
            # A client that can tell its classes apart would go on without end.
            stays = stays | (costs.margin(p) > 0)
        else:
            mean = unpacked(self.metric)
            centre = x if v is None else v
            p, gradient, B = pooled_point(costs, x, value, slope, mean, self.reach, centre)
        if stays.any():
            p = np.where(stays[:, None], x, p)
            gradient = np.where(stays[:, None], slope, gradient)
            B = np.where(stays[:, None, None], costs.hessian(x), B)
        return _finite(p, gradient, B)


def _finite(p: Array, gradient: Array, B: Array) -> tuple[Array, Array, Array]:
    """The models, or none of clients whose numbers are beyond float64."""
    finite = np.isfinite(gradient).all(axis=1) & np.isfinite(B).all(axis=(1, 2))
    usable: Mask = np.asarray(finite & np.isfinite(p).all(axis=1))
    if usable.all():
        return p, gradient, B
    own = usable[:, None]
    return np.where(own, p, 0.0), np.where(own, gradient, 0.0), np.where(own[:, :, None], B, 0.0)


@dataclass(frozen=True)
class ModifiedScore(CostQuestion):
    """∇f_j(x) less the client's share of the slope of Jeffreys' penalty, and what a step needs.

    Parameters
    ----------
    x : (d,) array
    metric : (d(d + 1)/2,) array
        The entries of V, which stands for (Σ_j ∇²f_j(x))⁻¹, on and below its diagonal: the
        leverages of a client's rows are those among the rows of all.
    before : (d,) array
        Where the server was; the answer's ``spread`` is c·max_i |a_iᵀ(x - before)|.
    hessian, augmented : bool
        Whether to answer with ∇²f_j(x) too, and with the Hessian as if every row came once more,
        with the weight of its leverage.
    """

    x: Array
    metric: Array
    before: Array
    hessian: bool
    augmented: bool

    vectors = ("x", "before")
    everyone = True
    brings_matrices = True

    parts: ClassVar = {
        "gradient": VECTOR,
        "slope": VECTOR,
        "value": NUMBER,
        "bend": Part((), "distance"),
        "spread": SIZE,
        "floor": NUMBER,
    }

    def answer_parts(self) -> Mapping[str, Part]:
        parts = dict(self.parts)
        if self.hessian:
            parts["hessian"] = HESSIAN
        if self.augmented:
            parts["augmented"] = HESSIAN
        return parts

    def answer(self, costs: Costs, x: Array, before: Array) -> Sequence[Array]:
        penalty = jeffreys(costs.terms, x, unpacked(self.metric))
        parts = [costs.gradient(x) - penalty.slope, penalty.slope, costs.value(x), penalty.bend]
        parts += [costs.terms.spread(x - before), costs.terms.floor()]
        if self.hessian:
            parts.append(packed(costs.hessian(x)))
        if self.augmented:
            parts.append(packed(penalty.information))
        return parts


QUESTIONS: Mapping[str, type[CostQuestion]] = {
    question.name(): question
    for question in (
        Prox,
        Descend,
        Gradient,
        Value,
        Evaluate,
        Curvature,
        Diagonal,
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
