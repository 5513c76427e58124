"""Which vectors over rows an answer discloses the sums of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.arrays import Array, unpacked
from fedsplit.clients.local_models import ModifiedScore
from fedsplit.clients.question import CostQuestion
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.losses.jeffreys import jeffreys
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.ledger import RowSum
from fedsplit.regression.client.guards.points import (
    At,
    RowTerms,
    slopes_of,
    values_of,
    weights_of,
)
from fedsplit.regression.client.plan import Plan


def of_survey(frame: pd.DataFrame, plan: Plan, rows: NDArray[np.intp]) -> list[RowSum]:
    """Which rows are complete, and those of each level."""
    columns = [np.ones(len(frame))]
    for name in plan.types:
        if name in plan.categorical:
            codes = frame[name].cat.codes.to_numpy()
            columns += [(codes == code).astype(np.float64) for code in np.unique(codes)]
    return [RowSum(rows, np.column_stack(columns))]


def of_design(design: Design) -> list[RowSum]:
    """Products of every two of 1, the target and the columns, weighted; and what is beside them."""
    rows, w, o = design.row_ids, design.w[:, None], design.o[:, None]
    one = np.ones_like(w)
    targets = design.b[:, None]
    if design.classes > 2:
        targets = (targets == np.arange(design.classes)).astype(np.float64)
    factors = [targets, design.restored().A]
    others = [one]
    if design.family.quadratic and o.any():
        factors.append(targets - o)
    # as they are computed: a column far from 0 is rounded before its mean is subtracted
    columns = np.hstack(factors)
    columns = np.hstack([one, columns - design.w @ columns / design.w.sum()])
    if o.any():  # an offset beside others, and its part of the sum of exposures
        others += [w * o, w * np.exp(o - o.max())]
    if design.family.quadratic and (w != 1).any():
        others.append(np.log(w))  # of the log-likelihood
    return [RowSum(rows, w, columns, symmetric=True), RowSum(rows, np.hstack(others))]


def of_products(design: Design, w: Array, A: Array) -> list[RowSum]:
    """Products of every two columns of A, (n, k), weighted, as they are computed."""
    return [RowSum(design.row_ids, w[:, None], A, symmetric=True)]


def of_calibration(design: Design, x: Array, limit: Withheld) -> list[RowSum]:
    """The rows of each bin that is counted at x, their predictions, and those of class 1."""
    at, p, disclosed = design.binned(x, limit)
    trials = np.ones_like(p) if design.groups is None else design.w
    columns = [np.zeros(len(p))]
    for j in np.flatnonzero(disclosed):
        inside = (at == j) * trials
        columns += [inside, inside * p, inside * design.b]
    return [RowSum(design.row_ids, np.column_stack(columns))]


def of_fit(design: Design, x: Array, dispersion: float, expected: bool) -> list[RowSum]:
    """Log-likelihood, Pearson's X² and the expected information at x."""
    parts = []
    if design.family.log_likelihood is not None and not design.family.quadratic:
        parts.append(design.log_likelihood_parts(x, dispersion))
    pearson = design.pearson_parts(x)
    if pearson is not None:
        parts.append(pearson)
    sums = [RowSum(design.row_ids, each[:, None]) for each in parts]
    if expected:
        weights = design.w * design.family.expected_weights(design.predictor(x))
        sums.append(RowSum(design.row_ids, weights[:, None], design.A, symmetric=True))
    return sums


def of_points(
    question: CostQuestion | None,
    points: Sequence[At],
    terms: RowTerms,
    j: int,
    rows: NDArray[np.intp],
) -> list[RowSum]:
    """Values, gradients and Hessians of client j at points."""
    A = terms.A[0]
    sums = []
    for at in points:
        x = at.point if at.point.ndim == 1 else at.point[j if len(at.point) > 1 else 0]
        eta = terms.eta(x[None])
        if at.value:
            sums.append(RowSum(rows, np.column_stack(values_of(terms, eta))))
        if at.slope:
            sums.append(RowSum(rows, np.column_stack(slopes_of(terms, eta)), A))
        if at.matrix:
            sums.append(RowSum(rows, np.column_stack(weights_of(terms, eta)), A, symmetric=True))
    if isinstance(question, ModifiedScore):
        slopes, weights = jeffreys(terms, question.x[None], unpacked(question.metric)).of_rows
        sums.append(RowSum(rows, slopes[0][:, None], A))
        if question.augmented:
            sums.append(RowSum(rows, weights[0][:, None], A, symmetric=True))
    return sums


def of_columns(columns: Sequence[Array], rows: NDArray[np.intp]) -> list[RowSum]:
    """Products of every two columns of each function, such as ``poly``, with 1 among them."""
    one = np.ones((len(rows), 1))
    return [RowSum(rows, one, np.hstack([one, each]), symmetric=True) for each in columns]
