"""Questions about a client's cost to second order: matrices, with what a proof needs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from fedsplit.arrays import (
    Array,
    Factors,
    Mask,
    add_diagonal,
    dots,
    matvec,
    packed,
    unpacked,
)
from fedsplit.clients.adding import Together
from fedsplit.clients.question import HESSIAN, NUMBER, SIZE, VECTOR, Answer, CostQuestion, Part
from fedsplit.clients.rounding import rounded_down, rounded_up, separated
from fedsplit.fixed_point import fits
from fedsplit.local.newton import LocalNewton
from fedsplit.losses.costs import Costs, Evaluation
from fedsplit.losses.jeffreys import jeffreys
from fedsplit.sums import SMALLEST

WAY = (*(2.0**-k for k in (0, 1, 2, 3, 4, 5, 6, 8, 10, 14, 18, 24)), 0.0)
"""The shares of the way between two points at which ``LocalModel`` tells f_j; the first is x."""

LEVEL = 2.0**-43
"""Values that are added up differ by less, relative to themselves, where only their last digits,
which are random, do."""


class LastModels(NamedTuple):
    """What k clients last answered to ``LocalModel``: p_j, y_j and B_j."""

    p: Array
    y: Array
    B: Array

    def gradients(self, x: Array) -> Array:
        """The gradients of the models at x, (k, d)."""
        return self.y + matvec(self.B, x - self.p)


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
    hessian : bool
        Whether to answer with ∇²f_j(p_j). That of a quadratic is the same everywhere, and is sent
        once; without it p_j = x.
    """

    x: Array
    v: Array | None
    metric: Array | None
    reach: float
    before: Array | None
    both: bool = False
    hessian: bool = True

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

    together: ClassVar = {
        "point": "sum",
        "away": "values",
        "gradient": "sum",
        "hessian": "sum",
        "values": "values",
        "slope": "sum",
        "spread": "root",
        "norm": "root",
        "floor": "sum",
        "steady": "radius",
        "ell": "sum",
        "margin": "sign",
    }

    def answer_parts(self) -> Mapping[str, Part]:
        parts = dict(self.parts)
        if not self.hessian:
            del parts["hessian"]
        if self.both:
            parts["hessian_at_x"] = Part(("triangle",), "any")
        return parts

    def added_parts(self) -> Mapping[str, Together]:
        together = dict(self.together)
        if not self.hessian:
            del together["hessian"]
        if self.both:
            together["hessian_at_x"] = "sum"
        return together

    def for_sums(self, m: int) -> Self:
        """Without the centres, which each client finds by its own last answer."""
        metric = None
        if self.metric is not None:
            metric = self.metric / m
        return replace(self, v=None, metric=metric)

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

    def of_no_rows(self) -> Answer:
        answer = super().of_no_rows()
        return answer._replace(parts=answer.parts | {"point": self.x[None]})

    def to_add(self, parts: Mapping[str, Array]) -> Mapping[str, Array]:
        """The models about x, which is the same for all; p_j too, and whether it is x.

        A model that does not fit into a sum is left out, and the value infinite: the server refuses
        such an x.
        """
        found = dict(parts)
        of_model = ["point", "gradient", "slope"]
        if self.hessian:
            models = LastModels(parts["point"], parts["gradient"], unpacked(parts["hessian"]))
            found["gradient"] = models.gradients(self.x)
            of_model.append("hessian")
        found["away"] = (parts["point"] != self.x).any(axis=1).astype(np.float64)
        usable: Mask = np.all([fits(found[name]).all(axis=1) for name in of_model], axis=0)
        if not usable.all():
            found |= {name: np.where(usable[:, None], found[name], 0.0) for name in of_model}
            found["values"] = found["values"].copy()
            found["values"][~usable, 0] = np.inf
        return found

    def from_added(self, parts: dict[str, Array], m: int) -> dict[str, Array]:
        """The model of the sum is about the mean of the p_j, or about x if all of them are x.

        A curvature that is too small beside the unit of the sums proves nothing.
        """
        if self.hessian:
            d = len(self.x)
            diagonal = parts["hessian"][0, np.cumsum(np.arange(1, d + 1)) - 1]
            if (diagonal < SMALLEST).any():
                parts["norm"] = np.full(1, np.inf)
        parts["values"] = _level(parts["values"])
        if not parts.pop("away").any():
            return parts | {"point": self.x[None].copy()}
        p = parts["point"] / m
        gradient = parts["gradient"] + matvec(unpacked(parts["hessian"]), p - self.x)
        return parts | {"point": p, "gradient": gradient}

    def answer(
        self, costs: Costs, x: Array, v: Array | None, before: Array | None
    ) -> Mapping[str, Array]:
        here = costs.at(x)
        if before is None:
            values = np.tile(here.value[:, None], len(WAY))
        else:
            values = here.values_from(costs.at(before), WAY)
        terms = costs.terms
        parts = {}
        if self.hessian:
            p, gradient, B = self._model(here, v)
            parts["hessian"] = packed(B)
        else:
            p, gradient = x, _or_zero(here.gradient)
        parts = {"point": p, "gradient": gradient} | parts
        parts |= {
            "values": values,
            "slope": here.gradient,
            "spread": rounded_up(terms.spread(x - p)),
            "norm": rounded_up(costs.norm),
            "floor": terms.floor(),
            "steady": rounded_down(here.steady()),
            "ell": costs.convexity,
            "margin": separated(here),
        }
        if self.both:
            parts["hessian_at_x"] = packed(here.hessian)
        return parts

    def _model(self, here: Evaluation, v: Array | None) -> tuple[Array, Array, Array]:
        """p_j, ∇f_j(p_j) and ∇²f_j(p_j)."""
        costs = here.costs
        # Beyond float64 there is no model; the server refuses such an x by its value.
        usable: Mask = np.asarray(np.isfinite(here.gradient).all(axis=1))
        # With fewer observations than coordinates a client has no minimiser of its own, and the
        # model of a quadratic is the same everywhere.
        stays = ~usable | costs.terms.underdetermined() | (costs.norm == 0)
        if self.reach == 0.0 or stays.all():
            return _finite(here)
        newton = LocalNewton(ratio=RATIO, most_steps=10)
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
        return _finite(at.merged(here, stays))


RATIO = 0.1
"""How accurate p_j is, relative to the way from x: the model is exact at p_j, wherever that is."""


def own_metric(at: Evaluation, most: float, least: float = 0.1, shift: float = 1e-6) -> Array:
    """Each client's own metric H_j/reach_j, (k, d, d), for the first question.

    The squared length of a client's own Newton step, in its own Hessian, is about the number of
    coefficients if its data are noise. James and Stein's estimator shrinks the step by
    1 - freedom/length², which is what a reach of length²/freedom - 1 does.

    Parameters
    ----------
    at : Evaluation
        The costs at x.
    most, least : float
        The largest reach, and that of a client whose own data say no more than noise.
    shift : float
        Added to the diagonal of H_j, relative to it, so that it is regular.
    """
    at.costs.work.factorisations += 1
    finite = np.asarray(np.isfinite(at.hessian).all(axis=(1, 2)))
    finite = finite & np.isfinite(at.gradient).all(axis=1)
    H = np.where(finite[:, None, None], at.hessian, 0.0)
    g = np.where(finite[:, None], at.gradient, 0.0)
    factors = Factors(H, shift)
    length2 = dots(g, factors.solve(g))
    reach = np.clip(length2 / np.maximum(factors.freedom, 1.0) - 1.0, least, most)
    return add_diagonal(H.copy(), shift * factors.sizes**2) / reach[:, None, None]


@np.errstate(invalid="ignore")
def _level(values: Array) -> Array:
    """Values of F along the way between two points, (1, n), without differences by random digits.

    A value that differs from that at the end of the way by no more is replaced by it.
    """
    end = values[:, -1:]
    return np.where(np.abs(values - end) <= LEVEL * np.abs(end), end, values)


def _finite(at: Evaluation) -> tuple[Array, Array, Array]:
    """Points, gradients and Hessians; 0 for clients whose numbers are beyond float64."""
    p, B = at.X, at.hessian
    gradient = _or_zero(at.gradient)
    usable: Mask = np.asarray(np.isfinite(B).all(axis=(1, 2)) & np.isfinite(p).all(axis=1))
    if usable.all():
        return p, gradient, B
    own = usable[:, None]
    return np.where(own, p, 0.0), np.where(own, gradient, 0.0), np.where(own[:, :, None], B, 0.0)


def _or_zero(gradient: Array) -> Array:
    """Gradients, (k, d), and 0 in the place of those that are not finite."""
    finite = np.isfinite(gradient).all(axis=1, keepdims=True)
    return gradient if finite.all() else np.where(finite, gradient, 0.0)


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
        Where the server was; the answer's ``spread`` is c·max_i |a_iᵀ(x - before)|, rounded up to
        a power of two.
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

    together: ClassVar = {
        "gradient": "sum",
        "slope": "sum",
        "value": "values",
        "bend": "sum",
        "spread": "root",
        "floor": "sum",
    }

    def answer_parts(self) -> Mapping[str, Part]:
        parts = dict(self.parts)
        if self.hessian:
            parts["hessian"] = HESSIAN
        if self.augmented:
            parts["augmented"] = HESSIAN
        return parts

    def added_parts(self) -> Mapping[str, Together]:
        more: Mapping[str, Together] = {
            name: "sum" for name in self.answer_parts() if name not in self.together
        }
        return {**self.together, **more}

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
            parts["augmented"] = packed(penalty.information)
        return parts
