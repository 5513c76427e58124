"""How large residuals are, from which their robust deviation follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.rows import FitRows
from fedsplit.statistic import AnswerLimit, Part, RowSum, Shape, Statistic

MOST_RESIDUAL_COUNTS = 5
"""How often a client under rules counts the residuals of targets with the same column: where a
count changes is a number of one row."""


@dataclass(frozen=True)
class ResidualSizes(Statistic):
    """How many rows have a residual |b - η| of which size at a point x of the scaled columns.

    Under rules small counts are added to neighbouring ones, a client of few rows merges cells, and
    of targets with the same column it answers few. Rows are not left out: residuals near 0 fall
    into many cells, and without them the median would be that of larger ones. Without rules the
    counts of all clients are those of their rows together, however these are split.

    Attributes
    ----------
    x : (p,) array
    unit : float
        The residual of size 1, in the unit of the files.
    sizes : Histogram
        Of their logarithms to the base 2.
    """

    x: Array
    unit: float
    sizes: Histogram

    kind = "setup"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"counts": self.sizes.shape}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_shape(self.x)  # counts tell no more of rows whose predictors are far out
        design = rows.design
        with np.errstate(divide="ignore"):  # a residual of 0 has size -inf
            sizes = np.log2(np.abs(design.b - design.predictor(self.x)) / self.unit)
        if rows.rules.refuse:
            return {"counts": self.sizes.joined(sizes, rows.withheld)}
        return {"counts": RowSum(np.ones((len(sizes), 1)), self.sizes.every(sizes))}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        return [
            AnswerLimit(f"residuals of {column}", MOST_RESIDUAL_COUNTS)
            for column in plan.parsed.target_columns
        ]
