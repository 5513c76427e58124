"""The one question of a fit with differential privacy: sums with noise at a public point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import NOT_FINITE
from fedsplit.errors import RequestError
from fedsplit.regression.client.privacy.privacy import Privacy
from fedsplit.regression.client.privacy.scores import bounds_of
from fedsplit.regression.client.privacy.sums import (
    Noise,
    RowVectors,
    length_of,
    source_of,
    split,
)
from fedsplit.regression.client.questions.coding import Coding
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class NoisedSum(NamedTuple):
    """A sum with noise, on a grid: the sum of two arrays, (k,), which are exact.

    Attributes
    ----------
    high, low : (k,) arrays
    """

    high: Array
    low: Array


@dataclass(frozen=True)
class NoisySums(FitQuestion):
    """Gradient and Hessian at a point, with noise: all that a fit with dp ever asks.

    Attributes
    ----------
    coding : Coding
        Whose plan has nothing in it but what the study declares.
    privacy : Privacy
    delta : float
        Of Huber's loss.
    number : int
        Of the question, from 1 to ``privacy.rounds``.
    x : (p,) array
        The point, in coefficients of the declared columns.
    shares : int
        Among how many clients the noise is shared; 1 where each adds all of it.
    """

    coding: Coding
    privacy: Privacy
    delta: float
    number: int
    x: Array
    shares: int = 1

    answer_type = list[NoisedSum]
    kind = "round"
    adds = True
    repeatable = False

    @property
    def length(self) -> int:
        """How many numbers the answer has."""
        return length_of(len(self.coding.plan.names), self.number == self.privacy.rounds)

    def for_sums(self, m: int) -> Self:
        return replace(self, shares=max(1, m - self.privacy.colluding))

    def add(self, to: Summands, entry: NoisedSum) -> None:
        to.add_exactly(entry.high, entry.low)

    def read(self, total: Total) -> NoisedSum:
        return NoisedSum(total.take(self.length), np.zeros(self.length))

    def answer(self, cohort: DatasetCohort, key: str) -> list[NoisedSum]:
        if not 1 <= self.number <= self.privacy.rounds:
            raise RequestError(f"question {self.number} of {self.privacy.rounds}")
        if self.x.shape != (len(self.coding.plan.names),) or not np.isfinite(self.x).all():
            raise RequestError("the server sent a point of another size, or not finite")
        family = self.coding.plan.family
        bounds = bounds_of(family, self.privacy, self.delta)
        vectors = RowVectors(family, self.delta, self.privacy, bounds, self.number, self.x)
        noise = Noise.of(self.privacy, self.shares)
        found = []
        rows = cohort.bounded(self.coding, self.privacy)
        for name, own in zip(self.coding.names, rows, strict=True):
            cohort.datasets[name].state(lambda: [])  # noise bounds what is disclosed
            drawn = noise.draw(self.length, source_of(self.privacy, name, self.number))
            sums = vectors.total(own, noise.step)
            noisy = [a + b for a, b in zip(sums, drawn, strict=True)]
            found.append(NoisedSum(*split(noisy, noise.step)))
        return found

    def check(self, entry: NoisedSum) -> str:
        if any(part.shape != (self.length,) for part in entry):
            return "sums of the wrong length"
        return "" if np.isfinite(entry).all() else NOT_FINITE
