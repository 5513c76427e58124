"""The questions of a quasi-Newton method: an overview at the start, then trial points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import (
    Array,
    DeviceFactors,
    Factors,
    add_diagonal,
    dots,
    like,
    matvec,
    namespace,
    on_host,
    to_host,
)
from fedsplit.clients.question import CostQuestion, Part, anything, nonnegative, not_nan
from fedsplit.clients.rounding import separated
from fedsplit.losses.costs import Costs, Evaluation
from fedsplit.losses.systems import ByProducts, Solver

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
        "gradient": Part(("d",), not_nan),
        "value": Part((), not_nan),
        "rank": Part((), nonnegative),
        "gain": Part((), not_nan),
        "value_at_0": Part((), not_nan, when="origin"),
    }

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        at = costs.at(x)
        terms = costs.terms
        stacked = terms.stacked
        rows = np.full(terms.k, terms.d) if stacked is None else stacked.sizes
        value, gradient = _finite(at)
        parts = {
            "diagonal": at.diagonal(),
            "gradient": gradient,
            "value": value,
            "rank": like(np.minimum(1.0, rows / terms.d), x),
            "gain": namespace(x).round(10.0 * _gain(at)) / 10.0,
        }
        if self.origin:
            xp = namespace(x)
            origin = costs.value_at_origin
            parts["value_at_0"] = xp.where(xp.isnan(origin), np.inf, origin)
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
    # (d,): the others
    second: Array | None
    third: Array | None
    prediction: Array  # (m, d): what the server expects ∇f_j(x) to be
    diagonal: float | Array  # (d,): added to that of the Hessian; above 0
    # (d,): None for x. The answer then has tr(diag(diagonal)⁻¹H_j) too
    reference: Array | None = None

    vectors = ("x", "second", "third", "prediction", "reference")

    parts: ClassVar = {
        "values": Part((3,), not_nan),
        "gradients": Part((3, "d")),
        "step": Part(("d",)),
        "margin": Part((), anything),
        "trace": Part((), nonnegative),
    }

    def answer_parts(self) -> dict[str, Part]:
        k = 3 - (self.second is None) - (self.third is None)
        parts = {**self.parts, "values": Part((k,), not_nan), "gradients": Part((k, "d"))}
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
        made = self.x if self.reference is None else self.reference
        there = x if reference is None else reference
        key = to_host(made).tobytes(), np.asarray(self.diagonal).tobytes()
        diagonal = self.diagonal
        if not isinstance(diagonal, float):
            diagonal = like(diagonal, x)

        def make() -> Solver:
            return _inverse(costs.counted().at(there), diagonal)

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
    if xp.all(usable):
        return at.value, at.gradient
    return xp.where(usable, at.value, np.inf), xp.where(usable[:, None], at.gradient, 0.0)


def _inverse(at: Evaluation, diagonal: float | Array) -> Solver:
    """The inverse of ∇²f_j + diag(diagonal), for several systems."""
    solver = at.factor(diagonal, regular=False)
    return solver if at.costs.terms.large else solver.inverted()


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
    return xp.where(xp.isfinite(gain), gain, 0.0)
