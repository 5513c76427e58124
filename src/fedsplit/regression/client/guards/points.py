"""Which questions about costs are answered under rules, and which sums over rows they disclose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd

from fedsplit.arrays import Array, unpacked
from fedsplit.clients.local_models import LocalModel, ModifiedScore
from fedsplit.clients.question import CostQuestion, Question
from fedsplit.clients.questions import (
    Curvature,
    Decrement,
    Descend,
    Direction,
    Evaluate,
    Gradient,
    Information,
    Line,
    Margin,
    Overview,
    Prox,
    Trials,
    Value,
)
from fedsplit.clients.stochastic import BatchCurvature, StochasticDescend
from fedsplit.errors import RequestError
from fedsplit.local.newton import ExactProx
from fedsplit.losses.jeffreys import jeffreys
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.multinomial import MultinomialTerms
from fedsplit.losses.terms import Terms
from fedsplit.regression.client.plan import Plan
from fedsplit.statistic import RowSum

NO_DIRECTIONS = "its rules allow no question about a direction of the server's choice"

RowTerms: TypeAlias = LinearTerms | MultinomialTerms
"""The terms of all losses that are not quadratic."""


class At(NamedTuple):
    """What is disclosed of a client's cost at a point.

    Attributes
    ----------
    point : (d,) or (m, d) array
    value, slope, matrix : bool
        Whether the value, the gradient, and the Hessian or anything that is computed from it.
    """

    point: Array
    value: bool = False
    slope: bool = False
    matrix: bool = False


def check_allowed(question: Question) -> None:
    """Raise RequestError for questions that rules never answer."""
    if isinstance(question, Margin):
        raise RequestError(NO_DIRECTIONS)
    if isinstance(question, Descend) and question.steps > 1:
        raise RequestError("its rules allow one gradient step per question")
    # a small batch tells a row
    if isinstance(question, StochasticDescend | BatchCurvature):
        raise RequestError("its rules allow questions about all rows alone, not about minibatches")
    # what a solver that stops early answers depends on points that it does not name
    if isinstance(question, Prox) and question.solver != ExactProx():
        raise RequestError("its rules allow a prox by ExactProx() alone")


def at_named_points(question: CostQuestion) -> CostQuestion:
    """A question whose answer depends on the points alone that are named by it or by its answer.

    A solver that stops early discloses the gradient and the Hessian at its start and on its way: a
    prox is solved to rounding from v, whatever the start. A local model is that at x, as in
    Newton's method; where else its point is would depend on the Hessian at x, and on whether all
    margins are positive.
    """
    match question:
        case Prox():
            return replace(question, start=None, solver=ExactProx())
        case LocalModel():
            return replace(question, reach=0.0)
    return question


def points_of(question: CostQuestion, parts: Mapping[str, Array]) -> list[At] | None:
    """The points of a question and its answer, with what is disclosed there.

    None for a question that is not in this table: there is no statement of what it discloses.
    """
    match question:
        case Line(x=x, direction=direction, t=lengths):
            return [At(x + length * direction, value=True) for length in lengths]
        case LocalModel(x=x, before=before):
            points = [At(x, value=True, slope=True, matrix=question.both or question.hessian)]
            points += [] if before is None else [At(before, value=True)]
            return [*points, At(parts["point"], slope=True, matrix=question.hessian)]
        case ModifiedScore(x=x, hessian=hessian):
            return [At(x, value=True, slope=True, matrix=hessian)]
        case Prox(solver=ExactProx()):  # others disclose something of their way
            return [At(parts["point"], slope=True)]
        case Overview(x=x, origin=origin):
            now = At(x, value=True, slope=True, matrix=True)
            return [now, At(np.zeros_like(x), value=True)] if origin else [now]
        case Trials(x=x, second=second, third=third, reference=reference):
            trials = [point for point in (x, second, third) if point is not None]
            points = [At(point, value=True, slope=True) for point in trials]
            return [*points, At(x if reference is None else reference, matrix=True)]
        case Curvature(x=None):
            return []
        # with enough of these H is known, however little of H⁻¹ one of them discloses
        case Decrement(x=x, origin=origin):
            now = At(x, value=True, matrix=True)
            return [now, At(np.zeros_like(x), value=True)] if origin else [now]
        case Curvature(x=x) | Direction(x=x) | Information(x=x):
            return [At(cast(Array, x), matrix=True)]
        case Value(x=x):
            return [At(x, value=True)]
        case Gradient(x=x) | Descend(x=x):
            return [At(x, value=True, slope=True)]
        case Evaluate(x=x, trial=trial):
            now = At(x, value=True, slope=True)
            return [now] if trial is None else [now, At(trial, value=True)]
    return None


def has_proof(terms: Terms) -> bool:
    """Whether it is known which sums over rows are disclosed at a point."""
    return isinstance(terms, LinearTerms | MultinomialTerms)


def unpadded(terms: Terms) -> RowTerms:
    """The terms of one client without rows of weight zero.

    Raises
    ------
    RequestError
        For a cost that is no sum over rows, such as a partial likelihood: what a row adds to it
        depends on the others.
    """
    if not has_proof(terms):
        raise RequestError(
            "its cost is no sum over its rows: no bound is known on what answers disclose of one, "
            "and its rules allow none without it"
        )
    own = cast(RowTerms, terms)
    used = own.w[0] > 0
    if used.all():
        return own
    rows = {name: getattr(own, name)[:, used] for name in ("b", "w", "o") if hasattr(own, name)}
    return replace(own, design=own.design.chosen(np.flatnonzero(used)[None]), **rows)


def values_of(terms: RowTerms, eta: Array) -> list[Array]:
    """What each row has of the value, (n,), at a predictor."""
    match terms:
        case LinearTerms(phi=phi, b=b, w=w):
            return [w[0] * phi.value(eta[0], b[0])]
        case MultinomialTerms(phi=phi, b=b, w=w):
            predictors = eta.reshape(terms.classes - 1, -1).T
            return [w[0] * phi.value(predictors, b[0])]


def slopes_of(terms: RowTerms, eta: Array) -> list[Array]:
    """What each row's a_i is multiplied by in the gradient, each (n,)."""
    match terms:
        case LinearTerms():
            return [terms.slopes(eta)[0]]
        case MultinomialTerms():
            return list(terms.slopes(eta.reshape(1, terms.classes - 1, -1))[0])


def weights_of(terms: RowTerms, eta: Array) -> list[Array]:
    """What each row's a_i a_iᵀ is multiplied by in the Hessian, or its blocks, each (n,)."""
    match terms:
        case LinearTerms():
            return [terms.curvature(eta)[0]]
        case MultinomialTerms(w=w, b=b):
            slopes = terms.slopes(eta.reshape(1, terms.classes - 1, -1))[0]
            own = b[0] == np.arange(1, terms.classes)[:, None]
            p = slopes / np.where(w[0] > 0, w[0], 1.0) + own
            p = np.clip(np.vstack([1.0 - p.sum(axis=0), p]), 0.0, 1.0)
            pairs = [(c, e) for c in range(terms.classes) for e in range(c)]
            return [w[0] * p[c] * p[e] for c, e in pairs]


def of_survey(frame: pd.DataFrame, plan: Plan) -> list[RowSum]:
    """Which rows are complete, and those of each level."""
    one = np.ones((len(frame), 1))
    columns = [one[:, 0]]
    for name in plan.types:
        if name in plan.categorical:
            codes = frame[name].cat.codes.to_numpy()
            columns += [(codes == code).astype(np.float64) for code in np.unique(codes)]
    return [RowSum(np.column_stack(columns), one)]


def of_points(
    question: CostQuestion | None, points: Sequence[At], terms: RowTerms, j: int
) -> list[RowSum]:
    """Values, gradients and Hessians of client j at points."""
    A = terms.A[0]
    sums = []
    for at in points:
        x = at.point if at.point.ndim == 1 else at.point[j if len(at.point) > 1 else 0]
        eta = terms.eta(x[None])
        if at.value:
            values = np.column_stack(values_of(terms, eta))
            sums.append(RowSum(values, np.ones((len(values), 1))))
        if at.slope:
            sums.append(RowSum(np.column_stack(slopes_of(terms, eta)), A))
        if at.matrix:
            sums += [RowSum(A, weights=weights) for weights in weights_of(terms, eta)]
    if isinstance(question, ModifiedScore):
        slopes, weights = jeffreys(terms, question.x[None], unpacked(question.metric)).of_rows
        sums.append(RowSum(slopes[0][:, None], A))
        if question.augmented:
            sums.append(RowSum(A, weights=weights[0]))
    return sums
