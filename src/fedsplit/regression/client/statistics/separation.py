"""Whether losses fall for ever along directions: separation of classes, counts of zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import RequestError
from fedsplit.regression.client.rows import FitRows
from fedsplit.statistic import Part, RowSum, Shape, Statistic, Sums

NO_DIRECTIONS = "its rules allow no question about a direction of the server's choice"


@dataclass(frozen=True)
class RowsAlong(Statistic):
    """What directions, (k, d), the first of which goes furthest, do to the losses of rows.

    ``rows`` counts those whose loss rises, those some of whose comparisons fall for ever, and those
    whose loss falls to its infimum, (1, 3).
    """

    directions: Array

    kind = "certificate"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"rows": Sums(1, 3, nonnegative=True)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        if not rows.directions and not rows.design.family.quadratic:
            raise RequestError(NO_DIRECTIONS)
        if rows.frame is None or self.directions.shape[1:] != rows.frame.ridge.shape:
            raise RequestError("the server sent directions of another number of coefficients")
        least, most = rows.design.margins(rows.frame.whiten, self.directions)
        counted = np.column_stack([least < 0, most > 0, least > 0]).astype(np.float64)
        return {"rows": RowSum(np.ones((len(counted), 1)), counted)}
