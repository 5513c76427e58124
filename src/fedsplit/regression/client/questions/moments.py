"""The questions about the moments of coded rows, from which the coordinates follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.regression.client.design import Moments, Scaling
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions.coding import Coding, Frame
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.sums_of_entries import (
    add_moments,
    add_warnings,
    read_moments,
    read_warnings,
)
from fedsplit.regression.families import FAMILIES
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class Coded(NamedTuple):
    """What a client answers to ``Code``.

    Attributes
    ----------
    moments : Moments
        Of its coded rows.
    warnings : sequence of Finding
        What they could disclose.
    matrices : bool
        Whether the client tells a matrix in every round.
    directions : bool
        Whether the client tells what a direction of the server's choice does to its rows.
    """

    moments: Moments
    warnings: Sequence[Finding]
    matrices: bool = True
    directions: bool = True


@dataclass(frozen=True)
class Code(FitQuestion):
    """Code the rows as agreed; the answer is their moments."""

    coding: Coding

    answer_type = list[Coded]
    adds = True

    def answer(self, cohort: DatasetCohort, key: str) -> list[Coded]:
        return cohort.code(self.coding)

    def add(self, to: Summands, entry: Coded) -> None:
        add_moments(to, entry.moments)
        to.add([not entry.matrices, not entry.directions])
        add_warnings(to, entry.warnings)

    def read(self, total: Total) -> Coded:
        moments = moments_of(total, self.coding.plan)
        matrices, directions = not total.count(), not total.count()
        return Coded(moments, read_warnings(total), matrices, directions)

    def check(self, entry: Coded) -> str:
        """Squares beyond float64 are allowed here: they have a message of their own."""
        moments = entry.moments
        plan = self.coding.plan
        p = len(moments.names)
        classes = FAMILIES[plan.family].count_classes(plan.classes)
        crossed = p * FAMILIES[plan.family].quadratic
        found = (moments.mean, moments.scatter, moments.cross)
        shapes = (*(part.shape for part in found), len(moments.classes))
        if shapes != ((p,), (p, p), (crossed,), classes):
            return "moments of the wrong shape"
        if (
            not (moments.n > 0 and 0 < moments.weight < math.inf)
            or min(moments.classes, default=0) < 0
        ):
            return "negative counts, or weights that are not positive"
        if not 0 <= moments.floor < math.inf:
            return "a loss of the saturated model that cannot be"
        means = [*moments.mean, moments.target_mean, moments.net_mean]
        if not (np.isfinite(means).all() and moments.log_exposed < math.inf):
            return "means that are not finite"
        if (np.diag(moments.scatter) < 0).any() or moments.target_scatter < 0:
            return "negative sums of squares"
        return ""


@dataclass(frozen=True)
class Settle(FitQuestion):
    """Make the costs of the rounds; the answer is the moments of the rows that they are made of."""

    coding: Coding
    frame: Frame

    answer_type = list[Moments]
    prepares = True
    kind = "setup"
    adds = True

    def add(self, to: Summands, entry: Moments) -> None:
        add_moments(to, entry)

    def read(self, total: Total) -> Moments:
        return moments_of(total, self.coding.plan)

    def answer(self, cohort: DatasetCohort, key: str) -> list[Moments]:
        return cohort.settle(self.coding, self.frame)


@dataclass(frozen=True)
class Products(FitQuestion):
    """Σ w y yᵀ of combinations y = Dᵀa of the scaled columns a, (k, k): moments once more."""

    coding: Coding
    scaling: Scaling
    directions: Array

    answer_type = list[Array]
    adds = True

    def add(self, to: Summands, entry: Array) -> None:
        to.add(entry)

    def read(self, total: Total) -> Array:
        k = self.directions.shape[1]
        return total.take(k, k)

    def answer(self, cohort: DatasetCohort, key: str) -> list[Array]:
        return cohort.products(self.coding, self.scaling, self.directions)

    def check(self, entry: Array) -> str:
        k = self.directions.shape[1]
        if entry.shape != (k, k):
            return "products of the wrong shape"
        if not np.isfinite(entry).all() or (np.diag(entry) < 0).any():
            return "products that are not finite, or squares below zero"
        return ""


def moments_of(total: Total, plan: Plan) -> Moments:
    """The moments of rows that are coded as planned, of all clients."""
    family = FAMILIES[plan.family]
    classes = family.count_classes(plan.classes)
    return read_moments(total, plan.names, classes, family.quadratic)
