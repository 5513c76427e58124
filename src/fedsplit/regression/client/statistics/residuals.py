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
from fedsplit.statistic import Limit, Part, Shape, Statistic

MOST_RESIDUAL_COUNTS = 5
"""How often a client under rules counts the residuals of targets with the same column: where a
count changes is a number of one row."""


@dataclass(frozen=True)
class ResidualSizes(Statistic):
    """How many rows have a residual |b - η| of which size at a point x of the scaled columns.

    Small counts are withheld; of targets with the same column a client under rules answers few.

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
        rows.check_point(self.x)
        design = rows.design
        with np.errstate(divide="ignore"):  # a residual of 0 has size -inf
            sizes = np.log2(np.abs(design.b - design.predictor(self.x)) / self.unit)
        return {"counts": self.sizes.part(sizes, rows.withheld)}

    def limits(self, plan: Plan) -> list[Limit]:
        return [
            Limit(f"residuals of {column}", MOST_RESIDUAL_COUNTS)
            for column in plan.parsed.target_columns
        ]
