"""How well a model fits: all that a table needs beside coefficients and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.regression.client.design import BINS
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.rows import FitRows
from fedsplit.statistic import AnswerLimit, Computed, Part, RowSum, Shape, Statistic, Sums

MOST_CALIBRATIONS = 5
"""How often a client under rules counts the predictions of targets with the same column: where a
count changes is a number of one row."""


@dataclass(frozen=True)
class LogLikelihood(Statistic):
    """The log-likelihood at a point x of the scaled columns, ``total``.

    Attributes
    ----------
    x : (p,) array
    dispersion : float
        Its φ.
    """

    x: Array
    dispersion: float

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"total": Sums(finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        design = rows.design
        # by rows is much faster for many small clients
        logs = design.log_likelihood_parts(self.x, self.dispersion, not rows.rules.refuse)
        total = float(np.sum(logs)) + (design.groups.log_choices if design.groups else 0.0)
        # of a quadratic loss it follows from the moments
        sums = [] if design.family.quadratic else [_total(logs)]
        most = np.array([[max(abs(total), design.rows)]])
        return {"total": Computed(np.array([[total]]), sums, most)}


@dataclass(frozen=True)
class PearsonSquares(Statistic):
    """Pearson's X² at a point x of the scaled columns, ``total``: of amounts, counts and groups."""

    x: Array

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"total": Sums(nonnegative=True, finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        parts = rows.design.pearson_parts(self.x)
        # X² of single trials of two classes is about their number, whatever the model
        return {"total": Computed(np.zeros((1, 1))) if parts is None else _total(parts)}


@dataclass(frozen=True)
class ExpectedInformation(Statistic):
    """Σ_i w_i (dμ_i/dη_i)²/V(μ_i) a_i a_iᵀ at x: ``information`` of the columns of the rounds.

    Attributes
    ----------
    x : (p,) array
        Of the scaled columns.
    r : int
        How many columns the rounds have.
    """

    x: Array
    r: int

    matrices = 1

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"information": Sums(self.r, None, finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        design = rows.design
        weights = design.w * design.family.expected_weights(design.predictor(self.x))
        return {"information": RowSum(rows.whitened(), weights=weights)}


@dataclass(frozen=True)
class CalibrationCounts(Statistic):
    """Rows, predictions and events between ``BINS`` of predicted probabilities, (3, bins).

    Of targets with the same column a client under rules answers few: the others have no counts.
    """

    x: Array

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"bins": Sums(3, len(BINS) - 1, nonnegative=True)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        design = rows.design
        cells, p, told = design.binned(self.x, rows.withheld)
        inside = (cells[:, None] == np.arange(len(told))) & told
        return {"bins": RowSum(np.column_stack(design.counted(p)), inside.astype(np.float64))}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        return [
            AnswerLimit(f"calibration of {column}", MOST_CALIBRATIONS)
            for column in plan.parsed.target_columns
        ]


def _total(parts: Array) -> RowSum:
    """The sum of numbers of each row, (n,)."""
    return RowSum(parts[:, None], np.ones((len(parts), 1)))
