"""Which sums over rows an answer discloses that is not made of a statistic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedsplit.arrays import unpacked
from fedsplit.clients.local_models import ModifiedScore
from fedsplit.clients.question import CostQuestion
from fedsplit.losses.jeffreys import jeffreys
from fedsplit.regression.client.guards.points import (
    At,
    RowTerms,
    slopes_of,
    values_of,
    weights_of,
)
from fedsplit.regression.client.plan import Plan
from fedsplit.statistic import RowSum


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
    question: CostQuestion | None,
    points: Sequence[At],
    terms: RowTerms,
    j: int,
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
