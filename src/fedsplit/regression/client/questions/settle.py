"""The question that prepares the costs of the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsplit.arrays import Array
from fedsplit.regression.client.coding import Coding, Frame
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.statistics.moments import DesignMoments
from fedsplit.remote.channel import Request
from fedsplit.statistic import Shape, Values
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


@dataclass(frozen=True)
class Settle(FitQuestion):
    """Make the costs of the rounds; the answer is the moments of the rows that they are made of."""

    coding: Coding
    frame: Frame

    answer_type = list[Mapping[str, Array]]
    prepares = True
    kind = "setup"
    adds = True

    def answer(self, cohort: DatasetCohort, request: Request) -> list[Values]:
        return cohort.settle(self.coding, self.frame)

    @property
    def _shapes(self) -> Mapping[str, Shape]:
        return DesignMoments().shapes(self.coding.plan)

    def check(self, entry: Values) -> str:
        return DesignMoments().check(entry, self._shapes)

    def add(self, to: Summands, entry: Values) -> None:
        for name, shape in self._shapes.items():
            shape.add(to, entry[name])

    def read(self, total: Total) -> Values:
        return {name: shape.read(total) for name, shape in self._shapes.items()}
