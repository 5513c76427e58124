"""The question how large residuals are, from which their robust deviation follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


@dataclass(frozen=True)
class ResidualSizes(FitQuestion):
    """How many rows have a residual |b - η| of which size at a point x of the scaled columns.

    Attributes
    ----------
    unit : float
        The residual of size 1, in the unit of the files.
    sizes : Histogram
        Of their logarithms to the base 2.
    """

    x: Array
    unit: float
    sizes: Histogram

    answer_type = list[Array]
    vectors = ("x",)
    kind = "setup"
    adds = True

    def add(self, to: Summands, entry: Array) -> None:
        self.sizes.add(to, entry)

    def read(self, total: Total) -> Array:
        return self.sizes.read(total)

    def answer(self, cohort: DatasetCohort, key: str) -> list[Array]:
        return [cohort.residual_sizes(each, self, key) for each in cohort.scaled(key)]

    def of(self, b: Array, eta: Array) -> Array:
        """The logarithms of the sizes, (n,); -inf of a residual of 0."""
        with np.errstate(divide="ignore"):
            sizes: Array = np.log2(np.abs(b - eta) / self.unit)
        return sizes

    def check(self, entry: Array) -> str:
        return self.sizes.check(entry)
