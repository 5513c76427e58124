"""The questions about directions: the cost along some, and whether it falls for ever along one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import NOT_FINITE
from fedsplit.clients.questions import Evaluate, Information
from fedsplit.clients.sums import rounded_products
from fedsplit.errors import RequestError
from fedsplit.regression.client.guards.points import NO_DIRECTIONS, At
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.sums_of_entries import add_entries, read_entries
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class Course(NamedTuple):
    """A client's cost at a point, along some directions.

    Attributes
    ----------
    value : float
        f_j(x).
    slope : (k,) array
        Dᵀ∇f_j(x).
    curvature : (k, k) array or None
        Dᵀ∇²f_j(x)D, where it was asked for.
    """

    value: float
    slope: Array
    curvature: Array | None = None


@dataclass(frozen=True)
class Along(FitQuestion):
    """The cost at a point x of the rounds, (d,), along the k columns D of ``directions``, (d, k).

    Attributes
    ----------
    m : int
        The number of all clients, among whom a ridge is divided.
    curved : bool
        Whether the curvature is wanted too.
    """

    x: Array
    directions: Array
    m: int
    curved: bool = False

    answer_type = list[Course]
    kind = "end"
    adds = True

    def for_sums(self, m: int) -> Self:
        return replace(self, m=m)

    def add(self, to: Summands, entry: Course) -> None:
        add_entries(to, entry.value)
        add_entries(to, entry.slope)
        if entry.curvature is not None:
            add_entries(to, entry.curvature)

    def read(self, total: Total) -> Course:
        k = self.directions.shape[1]
        [value] = read_entries(total, 1)
        slope = read_entries(total, k)
        curvature = None
        if self.curved:
            curvature = read_entries(total, k, k)
        return Course(float(value), slope, curvature)

    @property
    def matrices(self) -> int:
        return int(self.curved)

    def answer(self, cohort: DatasetCohort, key: str) -> list[Course]:
        clients = cohort.among(key, self.m)
        shape = self.directions.shape
        d = clients.d
        if self.x.shape != (d,) or len(shape) != 2 or shape[0] != d or shape[1] > d:
            raise RequestError(f"the server sent a point and directions of {shape}, where d is {d}")
        points = [At(self.x, value=True, slope=True, matrix=self.curved)]
        cohort.check_size(key, points)
        cohort.state_points(key, points)
        evaluated = cohort.rounded(key, Evaluate(self.x), clients.ask(Evaluate(self.x)).parts)
        values, gradients = evaluated["value"], evaluated["gradient"]
        slopes = gradients @ self.directions
        if not self.curved:
            return [Course(float(f), slope) for f, slope in zip(values, slopes, strict=True)]
        hessians = clients.ask(Information(self.x)).rows
        if cohort.guarded:
            hessians = rounded_products(hessians)
        hessians = self.directions.T @ hessians @ self.directions
        found = zip(values, slopes, hessians, strict=True)
        return [Course(float(f), slope, H) for f, slope, H in found]

    def check(self, entry: Course) -> str:
        k = self.directions.shape[1]
        parts = [np.array(entry.value), entry.slope]
        if entry.slope.shape != (k,) or self.curved != (entry.curvature is not None):
            return "a course along other directions"
        if entry.curvature is not None:
            if entry.curvature.shape != (k, k):
                return "a course along other directions"
            parts.append(entry.curvature)
        return NOT_FINITE if any(np.isnan(part).any() for part in parts) else ""


class Receding(NamedTuple):
    """What directions of recession do to a client's rows.

    Attributes
    ----------
    against : bool
        Whether the loss of some row rises.
    some : bool
        Whether that of some row falls for ever.
    rows : int
        How many rows' losses fall to their infimum.
    """

    against: bool
    some: bool
    rows: int


@dataclass(frozen=True)
class Recede(FitQuestion):
    """Whether losses fall for ever along directions, (k, d), the first of which goes furthest."""

    directions: Array

    answer_type = list[Receding]
    kind = "certificate"
    adds = True

    def add(self, to: Summands, entry: Receding) -> None:
        to.add([entry.against, entry.some, entry.rows])

    def read(self, total: Total) -> Receding:
        against, some = (total.count() > 0 for _ in range(2))
        return Receding(against, some, total.count())

    def answer(self, cohort: DatasetCohort, key: str) -> list[Receding]:
        if cohort.guarded:
            raise RequestError(NO_DIRECTIONS)
        frame = cohort.frame(key)
        if self.directions.shape[1:] != frame.ridge.shape:
            raise RequestError("the server sent directions of another number of coefficients")
        answers = []
        for rows in cohort.scaled(key):
            least, most = rows.margins(frame.whiten, self.directions)
            against, some = bool((least < 0).any()), bool((most > 0).any())
            answers.append(Receding(against, some, int((least > 0).sum())))
        return answers
