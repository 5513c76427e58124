"""The questions of a quasi-Newton method: an overview at the start, then trial points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array, Factors, Mask, dots, matvec
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

    Parameters
    ----------
    x : (d,) array
    origin : bool
        Whether to answer with f_j(0) too: a start far away may be worse than none.
    """

    x: Array
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
            "rank": np.minimum(1.0, rows / terms.d),
            "gain": np.round(_gain(at), 1),
        }
        if self.origin:
            parts["value_at_0"] = np.nan_to_num(costs.value_at_origin, nan=np.inf, posinf=np.inf)
        return parts


@dataclass(frozen=True)
class Trials(CostQuestion):
    """f_j and ∇f_j at up to three points, and a local Newton step from the first of them.

    The step is w_j = (H_j + diag(diagonal))⁻¹(prediction_j - ∇f_j(x)): it answers only what the
    server did not foresee. H_j = ∇²f_j(reference), so that the client is a function of the question
    alone, and still factorises only when the reference changes. It is 0 where the system is
    singular to rounding.

    Parameters
    ----------
    x : (d,) array
        The first point.
    second, third : (d,) array, optional
        The others.
    prediction : (m, d) array
        What the server expects ∇f_j(x) to be.
    diagonal : float or (d,) array
        Added to that of the Hessian; above 0.
    reference : (d,) array, optional
        None for x. The answer then has tr(diag(diagonal)⁻¹H_j) too.
    """

    x: Array
    second: Array | None
    third: Array | None
    prediction: Array
    diagonal: float | Array
    reference: Array | None = None

    vectors = ("x", "second", "third", "prediction", "reference")

    def answer_parts(self) -> dict[str, Part]:
        k = 3 - (self.second is None) - (self.third is None)
        parts = {
            "values": Part((k,), not_nan),
            "gradients": Part((k, "d")),
            "step": Part(("d",)),
            "margin": Part((), anything),
        }
        return parts if self.reference is not None else parts | {"trace": Part((), nonnegative)}

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
        key = made.tobytes(), np.asarray(self.diagonal).tobytes()

        def make() -> Solver:
            return _inverse(costs.counted().at(there), self.diagonal)

        # Counted once, though a client that has forgotten the factors makes them again: so the
        # count is a function of the questions.
        inverse = costs.latest.get("trials", key, make)
        if reference is None:
            costs.work.hessians += costs.share
            costs.work.factorisations += 1
        value, gradient = found[0]
        step = inverse.solve(prediction - gradient)
        usable = np.isfinite(value) & np.isfinite(step).all(axis=1)
        if isinstance(inverse, Factors):
            usable = usable & ~inverse.singular
        parts = {
            "values": np.stack([value for value, _ in found], axis=1),
            "gradients": np.stack([gradient for _, gradient in found], axis=1),
            "step": np.where(usable[:, None], step, 0.0),
            "margin": separated(trials[0]),
        }
        if reference is None:
            trace = np.sum(trials[0].diagonal() / self.diagonal, axis=1)
            parts["trace"] = np.where(np.isfinite(trace), trace, 0.0)
        return parts


def _finite(at: Evaluation) -> tuple[Array, Array]:
    """Values and gradients; inf and 0 where one is beyond float64, which the server refuses."""
    usable = np.isfinite(at.value) & np.isfinite(at.gradient).all(axis=1)
    if usable.all():
        return at.value, at.gradient
    return np.where(usable, at.value, np.inf), np.where(usable[:, None], at.gradient, 0.0)


def _inverse(at: Evaluation, diagonal: float | Array) -> Solver:
    """That of ∇²f_j + diag(diagonal), for several systems."""
    solver = at.factor(diagonal, regular=False)
    inverse: Solver = solver if at.costs.terms.large else solver.inverted()
    return inverse


@np.errstate(divide="ignore", invalid="ignore")
def _gain(at: Evaluation) -> Array:
    """log cos²(v, Hv) in the norms of the diagonal less that in the usual ones, (k,).

    v = (H + TINY·D)⁻¹g is where a step in the client's own scaling would go. 0 where that says
    nothing.
    """
    at.costs.work.factorisations += 1
    if at.costs.terms.large:
        D = np.where(at.diagonal() > 0, at.diagonal(), 1.0)
        shift = TINY * D
        v = ByProducts(lambda U: at.times(U) + shift * U, D + shift, 1e-10).solve(at.gradient)
        q = at.times(v)
    else:
        finite: Mask = np.asarray(np.isfinite(at.hessian).all(axis=(1, 2)))
        finite = finite & np.isfinite(at.gradient).all(axis=1)
        H = np.where(finite[:, None, None], at.hessian, 0.0)
        v = Factors(H, TINY).solve(np.where(finite[:, None], at.gradient, 0.0))
        q = matvec(H, v)
        D = np.einsum("kii->ki", H)
        D = np.where(D > 0, D, 1.0)
    # (vᵀq)² is in both, and cancels
    gain = np.log(dots(v, v) * dots(q, q)) - np.log(dots(v, D * v) * dots(q, q / D))
    return np.where(np.isfinite(gain), gain, 0.0)
