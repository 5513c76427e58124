"""Questions about a client's cost to second order: what a proof needs, and Newton steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from fedsplit.arrays import (
    Array,
    DeviceFactors,
    Factors,
    Mask,
    add_diagonal,
    dots,
    like,
    matvec,
    namespace,
    on_host,
    packed,
    to_host,
    unpacked,
)
from fedsplit.clients.question import (
    CostQuestion,
    Part,
)
from fedsplit.clients.rounding import rounded_down, rounded_up, separated
from fedsplit.errors import InputError
from fedsplit.fixed_point import fits
from fedsplit.local.newton import LocalNewton
from fedsplit.losses.costs import Costs, Evaluation
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.systems import ByProducts, Solver
from fedsplit.losses.terms import Terms
from fedsplit.sums import RADIUS, ROOT, SIGN, SUM, VALUES, Rule

WAY = (*(2.0**-k for k in (0, 1, 2, 3, 4, 5, 6, 8, 10, 14, 18, 24)), 0.0)
"""The shares of the way between two points at which ``LocalModel`` has f_j; the first is x."""


class LastModels(NamedTuple):
    """What k clients last answered to ``LocalModel``: p_j, y_j and B_j."""

    p: Array
    y: Array
    B: Array

    @classmethod
    def of(cls, parts: Mapping[str, Array]) -> LastModels:
        """The models in an answer."""
        return cls(parts["point"], parts["gradient"], unpacked(parts["hessian"]))

    def gradients(self, x: Array) -> Array:
        """The gradients of the models at x, (k, d)."""
        return self.y + matvec(self.B, x - self.p)


@dataclass(frozen=True)
class LocalModel(CostQuestion):
    """A quadratic model of f_j around p_j, where the client would rather be, and a proof at x.

    p_j = argmin_u f_j(u) + ½(u - v_j)ᵀM(u - v_j), and the model is f_j's second-order expansion
    there. Beside it the answer has what a certificate at x needs.
    """

    x: Array  # (d,): where the server is, and the local solver starts
    v: Array | None  # (m, d): the centres; x where None
    # (d(d + 1)/2,): the entries of a matrix on and below its diagonal, which is M times ``reach``.
    # Where None, each client takes its own ∇²f_j(x), made regular
    metric: Array | None
    # the larger, the farther p_j may be from v_j; 0 for p_j = x, as in Newton's method
    reach: float
    before: Array | None  # (d,): another point; the answer has f_j on the way from there to x
    both: bool = False  # whether to answer with ∇²f_j(x) too, for losses that state no concordance
    # whether to answer with ∇²f_j(p_j). That of a quadratic is the same everywhere, and is sent
    # once; without it p_j = x
    hessian: bool = True

    vectors = ("x", "v", "before")
    brings_matrices = True
    parts: ClassVar = {
        "point": Part(("d",), "finite", SUM),
        "gradient": Part(("d",), "finite", SUM),
        "hessian": Part(("triangle",), "convex", SUM, when="hessian"),
        "values": Part((len(WAY),), "not nan", VALUES),
        "slope": Part(("d",), "not nan", SUM),
        "spread": Part((), "nonnegative", ROOT),
        "norm": Part((), "nonnegative", ROOT),
        "floor": Part((), "not nan", SUM),
        "steady": Part((), "nonnegative", RADIUS),
        "ell": Part((), "nonnegative", SUM),
        "margin": Part((), "anything", SIGN),
        "hessian_at_x": Part(("triangle",), "anything", SUM, when="both"),
    }

    def rules(self) -> dict[str, Rule]:
        # whether p_j is x, which the sum of the p_j does not show: its last digits are random
        return {**super().rules(), "away": VALUES}

    def for_sums(self, m: int) -> Self:
        """Without the centres, which each client has by its own last answer."""
        return replace(self, v=None, metric=None if self.metric is None else self.metric / m)

    def centred(self, last: LastModels | None) -> LocalModel:
        """The question with centres v_j = x + M⁻¹(y_j + B_j(x - p_j)), by the last answers.

        Clients that have lost them stay at x, and so do all in a metric that is singular.
        """
        if self.metric is None:
            return self
        with suppress(np.linalg.LinAlgError):
            if last is not None:
                mean = unpacked(self.metric)
                # one by one: a client's bits do not depend on who shares its process
                moves = [np.linalg.solve(mean, each) for each in last.gradients(self.x)]
                return replace(self, v=self.x + self.reach * np.stack(moves))
        return replace(self, metric=None, reach=0.0)

    def to_add(self, parts: Mapping[str, Array]) -> Mapping[str, Array]:
        """The models about x, which is the same for all.

        A model that does not fit into a sum is left out, and the value infinite: the server refuses
        such an x.
        """
        added = {**parts, "away": (parts["point"] != self.x).any(axis=1).astype(np.float64)}
        of_model = ["point", "gradient", "slope"]
        if self.hessian:
            added["gradient"] = LastModels.of(parts).gradients(self.x)
            of_model.append("hessian")
        usable, models = _or_zeros(fits, *(added[name] for name in of_model))
        at_x = np.arange(len(WAY)) == 0
        values = np.where(at_x & ~usable[:, None], np.inf, parts["values"])
        return {**added, **dict(zip(of_model, models, strict=True)), "values": values}

    def from_added(self, parts: dict[str, Array], m: int) -> dict[str, Array]:
        """The model of the sum is about the mean of the p_j, or about x if all of them are x.

        A curvature that has lost digits to the unit of the sums proves nothing.
        """
        parts["values"] = _level(parts["values"])
        if not self.hessian:
            return parts | {"point": self.x[None].copy()}
        H = unpacked(parts["hessian"])
        if (np.diagonal(H[0]) < 2.0**-60).any():
            parts["norm"] = np.full(1, np.inf)
        # the models were added about x: moved to p, the sum is the same quadratic
        p = parts["point"] / m if parts["away"].any() else self.x[None].copy()
        return parts | {"point": p, "gradient": parts["gradient"] + matvec(H, p - self.x)}

    def answer(
        self, costs: Costs, x: Array, v: Array | None, before: Array | None
    ) -> Mapping[str, Array]:
        here = costs.at(x)
        if before is None:  # there is no way: f_j is f_j(x) all along
            values = np.tile(here.value[:, None], len(WAY))
        else:
            values = here.values_from(costs.at(before), WAY)
        at = self._moved(here, v)
        model = {"point": at.X, "gradient": at.gradient}
        if self.hessian:
            model["hessian"] = packed(at.hessian)
        # Beyond float64 there is no model; the server refuses such an x by its value.
        _, usable = _or_zeros(np.isfinite, *model.values())
        parts = dict(zip(model, usable, strict=True))
        parts |= {
            "values": values,
            "slope": here.gradient,
            # numbers of one row each, on the side on which a proof stays a proof
            "spread": rounded_up(costs.terms.spread(x - parts["point"])),
            "norm": rounded_up(costs.norm),
            "floor": costs.terms.floor(),
            "steady": rounded_down(here.steady()),
            "ell": costs.convexity,
            "margin": separated(here),
        }
        if self.both:
            parts["hessian_at_x"] = packed(here.hessian)
        return parts

    def _moved(self, here: Evaluation, v: Array | None) -> Evaluation:
        """The costs at p_j, which is x where nothing is gained by moving."""
        costs = here.costs
        usable: Mask = np.asarray(np.isfinite(here.gradient).all(axis=1))
        # With fewer observations than coordinates a client has no minimiser of its own, and the
        # model of a quadratic is the same everywhere.
        stays = ~usable | costs.terms.underdetermined() | (costs.norm == 0)
        if not self.hessian or self.reach == 0.0 or stays.all():
            return here
        # roughly is enough: the model is exact at p_j, wherever that is
        newton = LocalNewton(ratio=0.1, most_steps=10)
        if self.metric is None:
            at = newton.solve(here, here.X, own_metric(here, self.reach))
            # A client that can tell its classes apart would go on without end.
            stays = stays | (at.margin() > 0)
        else:
            mean = unpacked(self.metric)
            # (H + H/r)⁻¹ is r/(1 + r) times H⁻¹, which suffices where clients are alike
            whole = (1.0 + self.reach) / self.reach * mean
            first = Factors(whole[None], overwrite=True, largest=len(mean)).inverted()
            at = newton.solve(here, here.X if v is None else v, mean / self.reach, first)
        return at.merged(here, stays)


def own_metric(at: Evaluation, most: float, least: float = 0.1, shift: float = 1e-6) -> Array:
    """Each client's own metric H_j/reach_j, (k, d, d), for the first question.

    The squared length of a client's own Newton step, in its own Hessian, is about the number of
    coefficients if its data are noise. James and Stein's estimator shrinks the step by 1 -
    freedom/length², which is what a reach of length²/freedom - 1 does, between ``least`` and
    ``most``. ``shift``, relative to the diagonal of H_j, makes that regular.
    """
    at.costs.work.factorisations += 1  # counted here, as it is not the costs' own
    H, g = _or_zeros(np.isfinite, at.hessian, at.gradient)[1]
    factors = Factors(H, shift)
    length2 = dots(g, factors.solve(g))
    reach = np.clip(length2 / np.maximum(factors.freedom, 1.0) - 1.0, least, most)
    return add_diagonal(H.copy(), shift * factors.sizes**2) / reach[:, None, None]


@np.errstate(invalid="ignore")
def _level(values: Array, rounding: float = 2.0**-43) -> Array:
    """Values of F along the way between two points, (1, n), without differences by random digits.

    A value that differs from that at the end of the way by less than ``rounding``, relative to it,
    is replaced by it: the last digits of sums are random.
    """
    end = values[:, -1:]
    return np.where(np.abs(values - end) <= rounding * np.abs(end), end, values)


def _or_zeros(allowed: Callable[[Array], Mask], *arrays: Array) -> tuple[Mask, Sequence[Array]]:
    """The clients whose numbers are all allowed, (k,), and arrays with 0 for the others."""
    usable: Mask = np.all([allowed(each).reshape(len(each), -1).all(1) for each in arrays], axis=0)
    if usable.all():
        return usable, arrays
    rows = np.flatnonzero(~usable)
    cleared = [each.copy() for each in arrays]
    for each in cleared:
        each[rows] = 0.0
    return usable, cleared


@dataclass(frozen=True)
class ModifiedScore(CostQuestion):
    """∇f_j(x) less the client's share of the slope of Jeffreys' penalty, and what a step needs."""

    x: Array  # (d,)
    # (d(d + 1)/2,): the entries of V, which stands for (Σ_j ∇²f_j(x))⁻¹, on and below its diagonal:
    # the leverages of a client's rows are those among the rows of all
    metric: Array
    # (d,): where the server was; the answer's ``spread`` is c·max_i |a_iᵀ(x - before)|, rounded up
    # to a power of two
    before: Array
    # whether to answer with ∇²f_j(x) too, and with the Hessian as if every row came once more, with
    # the weight of its leverage
    hessian: bool
    augmented: bool

    vectors = ("x", "before")
    everyone = True
    brings_matrices = True
    parts: ClassVar = {
        "gradient": Part(("d",), "finite", SUM),
        "slope": Part(("d",), "finite", SUM),
        "value": Part((), "not nan", VALUES),
        "bend": Part((), "distance", SUM),
        "spread": Part((), "nonnegative", ROOT),
        "floor": Part((), "not nan", SUM),
        "hessian": Part(("triangle",), "convex", SUM, when="hessian"),
        "augmented": Part(("triangle",), "convex", SUM, when="augmented"),
    }

    def answer(self, costs: Costs, x: Array, before: Array) -> Mapping[str, Array]:
        at = costs.at(x)
        penalty = jeffreys(costs.terms, x, unpacked(self.metric))
        parts = {
            "gradient": at.gradient - penalty.slope,
            "slope": penalty.slope,
            "value": at.value,
            "bend": penalty.bend,
            "spread": rounded_up(costs.terms.spread(x - before)),
            "floor": costs.terms.floor(),
        }
        if self.hessian:
            parts["hessian"] = packed(at.hessian)
        if self.augmented:
            parts["augmented"] = packed(penalty.information())
        return parts


class Jeffreys(NamedTuple):
    """What clients contribute to the penalty at x, given V, with leverages h_i = w_i φ''_i q_i."""

    # (k, d): ½ Σ_i w_i φ'''_i q_i a_i, where q_i = a_iᵀVa_i. Their sum over all clients is the
    # gradient of ½ log det ∇²F if V is the inverse of ∇²F, Firth's correction of the score
    slope: Array
    # makes Σ_i (w_i + h_i) φ''_i a_i a_iᵀ, (k, d, d): the Hessian as if every row came once more,
    # with the weight of its leverage
    information: Callable[[], Array]
    # (k,): ¼ Σ_i h_i q_i (φ'''_i/φ''_i)². If V is off by a share δ, the sum of the slopes is off by
    # at most δ√Σbend in the norm of (∇²F)⁻¹
    bend: Array


def jeffreys(terms: Terms, X: Array, V: Array) -> Jeffreys:
    """The contributions of stacked clients at the points X, (k, d), given V, (d, d).

    q_i is off by at most δq_i, and Σ_i w_i φ''_i (a_iᵀu)² ≤ 1 for u of unit length in the norm of
    ∇²F. By Cauchy's inequality ½ Σ_i w_i |φ'''_i| δq_i |a_iᵀu| is at most δ(¼ Σ_i w_i φ'''_i²
    q_i²/φ''_i)^½.
    """
    if not isinstance(terms, LinearTerms):
        raise InputError("Firth's correction is for losses of one linear predictor")
    eta = terms.eta(X)
    tilt = terms.phi.tilt(eta, terms.b)
    curvature = terms.phi.curvature(eta, terms.b)
    # a root of V, of which rounding may have made an eigenvalue negative
    spectrum, Q = np.linalg.eigh(V)
    root = Q * np.sqrt(np.maximum(spectrum, 0.0))
    images = terms.design.within(np.broadcast_to(root, (terms.k, *V.shape)))
    q = np.sum(np.square(images), axis=2)
    h = terms.w * curvature * q
    slopes = 0.5 * h * tilt
    weights = (terms.w + h) * curvature
    return Jeffreys(
        terms.adjoint(slopes),
        lambda: terms.design.scaled(np.sqrt(weights)).gram(),
        np.sum(0.25 * h * q * np.square(tilt), axis=1),
    )


TINY = 1e-3
"""A share of a Hessian's diagonal that makes it regular, where a client has few rows."""


@dataclass(frozen=True)
class Overview(CostQuestion):
    """f_j and ∇f_j at x, the diagonal of ∇²f_j there, and what it is worth as a scaling.

    The answer has ``rank``, the share of the coordinates that the client's rows can determine, and
    ``gain``: by how much better the diagonal explains the Hessian along the client's own Newton
    step than a multiple of I, as the logarithm of a ratio of squared cosines. A tenth of it is far
    more than is needed, and it is rounded to that.
    """

    x: Array  # (d,)
    # whether to answer with f_j(0) too: a start far away may be worse than none
    origin: bool = False

    parts: ClassVar = {
        "diagonal": Part(("d",)),
        "gradient": Part(("d",), "not nan"),
        "value": Part((), "not nan"),
        "rank": Part((), "nonnegative"),
        "gain": Part((), "not nan"),
        "value_at_0": Part((), "not nan", when="origin"),
    }

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        at = costs.at(x)
        xp, terms = namespace(x), costs.terms
        rows = np.full(terms.k, terms.d) if terms.stacked is None else terms.stacked.sizes
        value, gradient = _finite(at)
        parts = {
            "diagonal": at.diagonal(),
            "gradient": gradient,
            "value": value,
            "rank": like(np.minimum(1.0, rows / terms.d), x),
            "gain": xp.round(10.0 * _gain(at)) / 10.0,
        }
        if self.origin:
            origin = costs.value_at_origin
            parts["value_at_0"] = xp.where(xp.isnan(origin), math.inf, origin)
        return parts


@dataclass(frozen=True)
class Trials(CostQuestion):
    """f_j and ∇f_j at up to three points, and a local Newton step from the first of them.

    The step is w_j = (H_j + diag(diagonal))⁻¹(prediction_j - ∇f_j(x)): it answers only what the
    server did not foresee. H_j = ∇²f_j(reference), so that the client is a function of the question
    alone, and still factorises only when the reference changes. It is 0 where the system is
    singular to rounding.
    """

    x: Array  # (d,): the first point
    second: Array | None  # (d,), and so is the third
    third: Array | None
    prediction: Array  # (m, d): what the server expects ∇f_j(x) to be
    diagonal: float | Array  # (d,): added to that of the Hessian; above 0
    # (d,): None for x. The answer then has tr(diag(diagonal)⁻¹H_j) too
    reference: Array | None = None

    vectors = ("x", "second", "third", "prediction", "reference")

    parts: ClassVar = {
        "values": Part((3,), "not nan"),
        "gradients": Part((3, "d")),
        "step": Part(("d",)),
        "margin": Part((), "anything"),
        "trace": Part((), "nonnegative"),
    }

    def answer_parts(self) -> dict[str, Part]:
        k = 3 - (self.second is None) - (self.third is None)
        parts = {**self.parts, "values": Part((k,), "not nan"), "gradients": Part((k, "d"))}
        if self.reference is not None:
            del parts["trace"]
        return parts

    def answer(
        self,
        costs: Costs,
        x: Array,
        second: Array | None,
        third: Array | None,
        prediction: Array,
        reference: Array | None,
    ) -> Mapping[str, Array]:
        trials = [costs.at(point) for point in (x, second, third) if point is not None]
        found = [_finite(at) for at in trials]
        there = x if reference is None else reference
        key = to_host(there[0, :]).tobytes(), np.asarray(self.diagonal).tobytes()
        diagonal = self.diagonal
        if not isinstance(diagonal, float):
            diagonal = like(diagonal, x)

        def make() -> Solver:
            return costs.counted().at(there).factor(diagonal, regular=False).inverted()

        # Counted once, though a client that has forgotten the factors makes them again: so the
        # count is a function of the questions.
        inverse = costs.latest.get("trials", key, make)
        if reference is None:
            costs.work.hessians += costs.share
            costs.work.factorisations += 1
        value, gradient = found[0]
        step = inverse.solve(prediction - gradient)
        xp = namespace(x)
        usable = xp.isfinite(value) & xp.all(xp.isfinite(step), axis=1)
        if isinstance(inverse, Factors):
            usable = usable & ~inverse.singular
        parts = {
            "values": xp.stack([value for value, _ in found], axis=1),
            "gradients": xp.stack([gradient for _, gradient in found], axis=1),
            "step": xp.where(usable[:, None], step, 0.0),
            "margin": separated(trials[0]),
        }
        if reference is None:
            trace = xp.sum(trials[0].diagonal() / diagonal, axis=1)
            parts["trace"] = xp.where(xp.isfinite(trace), trace, 0.0)
        return parts


def _finite(at: Evaluation) -> tuple[Array, Array]:
    """Values and gradients; inf and 0 where one is beyond float64, which the server refuses."""
    xp = namespace(at.X)
    usable = xp.isfinite(at.value) & xp.all(xp.isfinite(at.gradient), axis=1)
    return xp.where(usable, at.value, math.inf), xp.where(usable[:, None], at.gradient, 0.0)


@np.errstate(divide="ignore", invalid="ignore")
def _gain(at: Evaluation) -> Array:
    """log cos²(v, Hv) in the norms of the diagonal less that in the usual ones, (k,).

    v = (H + TINY·D)⁻¹g is where a step in the client's own scaling would go. 0 where that says
    nothing.
    """
    at.costs.work.factorisations += 1
    xp = namespace(at.X)
    if at.costs.terms.large:
        D = np.where(at.diagonal() > 0, at.diagonal(), 1.0)
        shift = TINY * D
        v = ByProducts(lambda U: at.times(U) + shift * U, D + shift, 1e-10).solve(at.gradient)
        q = at.times(v)
    else:
        finite = xp.all(xp.isfinite(at.hessian), axis=(1, 2))
        finite = finite & xp.all(xp.isfinite(at.gradient), axis=1)
        H = xp.where(finite[:, None, None], at.hessian, 0.0)
        D = xp.linalg.diagonal(H)
        D = xp.where(D > 0, D, 1.0)
        shifted = Factors(H, TINY) if on_host(H) else DeviceFactors(add_diagonal(H, TINY * D))
        v = shifted.solve(xp.where(finite[:, None], at.gradient, 0.0))
        q = matvec(H, v)
    # (vᵀq)² is in both, and cancels
    gain = xp.log(dots(v, v) * dots(q, q)) - xp.log(dots(v, D * v) * dots(q, q / D))
    result: Array = xp.where(xp.isfinite(gain), gain, 0.0)
    return result
