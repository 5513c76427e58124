"""How well a model fits: all that a table needs of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import NOT_FINITE
from fedsplit.clients.sums import rounded, rounded_products, rounded_total
from fedsplit.errors import RequestError
from fedsplit.regression.client.design import BINS, Calibration, Design
from fedsplit.regression.client.guards.statements import of_fit
from fedsplit.regression.client.questions.along import Along, Course
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.sums_of_entries import (
    add_calibration,
    add_entries,
    add_number,
    read_calibration,
    read_entries,
    read_number,
)
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class GoodnessOfFit(NamedTuple):
    """How well a model fits a client's rows.

    Attributes
    ----------
    log_likelihood : float or None
        None where the family has none.
    calibration : Calibration or None
        Of a binary classifier, at the end.
    pearson : float or None
        Pearson's X², of amounts, counts and groups of trials.
    expected : (r, r) array or None
        The expected information of the r columns of the rounds, where the Hessian is another.
    null : Course or None
        Along the intercepts, from where the model without covariates is, or is searched from.
    scores : (d, d) array or None
        The product of the gradient with itself, in sums over many clients.
    clusters : int or None
        How many clients ``scores`` is of.
    round : Course or None
        The cost at the point itself, with gradient and Hessian, where the question is a round too.
    """

    log_likelihood: float | None
    calibration: Calibration | None = None
    pearson: float | None = None
    expected: Array | None = None
    null: Course | None = None
    scores: Array | None = None
    clusters: int | None = None
    round: Course | None = None


LEAST_CLUSTERS = 10
"""The products of gradients are added up over so many clients at least: gradients of few clients,
which add up to zero, all but follow from it."""


@dataclass(frozen=True)
class Fitted(FitQuestion):
    """How well a model fits, at a point x of the scaled columns: all that a table needs of it.

    Attributes
    ----------
    dispersion : float
        The φ of the log-likelihood.
    null : Along or None
        The model without covariates.
    calibrate : bool
        Whether a binary classifier counts its predictions: at the end, and not at points before.
    expected : bool
        Whether the expected information is wanted, where the Hessian is another.
    clustered : Along or None
        The gradient whose product with itself is wanted, for a covariance clustered by client.
    round : Along or None
        The point in all directions, with curvatures: with it the question is a round as well.
    """

    x: Array
    dispersion: float
    null: Along | None = None
    calibrate: bool = True
    expected: bool = False
    clustered: Along | None = None
    round: Along | None = None

    answer_type = list[GoodnessOfFit]
    vectors = ("x",)
    kind = "end"
    adds = True

    @property
    def matrices(self) -> int:
        parts = (each.matrices for each in (self.null, self.round) if each is not None)
        return sum(parts) + self.expected

    def for_sums(self, m: int) -> Self:
        null, clustered, own = (
            None if each is None else each.for_sums(m)
            for each in (self.null, self.clustered, self.round)
        )
        return replace(self, null=null, clustered=clustered, round=own)

    def add(self, to: Summands, entry: GoodnessOfFit) -> None:
        add_number(to, entry.log_likelihood)
        add_number(to, entry.pearson)
        add_calibration(to, entry.calibration)
        if self.null is not None and entry.null is not None:
            self.null.add(to, entry.null)
        if entry.expected is not None:
            add_entries(to, entry.expected)
        if entry.scores is not None:
            add_entries(to, entry.scores)
            to.add([entry.clusters or 0])
        if self.round is not None and entry.round is not None:
            self.round.add(to, entry.round)

    def read(self, total: Total) -> GoodnessOfFit:
        log_likelihood, pearson = read_number(total), read_number(total)
        calibration = read_calibration(total)
        null = expected = None
        if self.null is not None:
            null = self.null.read(total)
            if self.expected:
                expected = read_entries(total, *2 * self.null.x.shape)
        found = GoodnessOfFit(log_likelihood, calibration, pearson, expected, null)
        if self.clustered is not None:
            scores = read_entries(total, *2 * self.clustered.x.shape)
            found = found._replace(scores=scores, clusters=total.count())
        if self.round is not None:
            found = found._replace(round=self.round.read(total))
        return found

    def answer(self, cohort: DatasetCohort, key: str) -> list[GoodnessOfFit]:
        rows = cohort.scaled(key)
        courses: Sequence[Course | None] = [None] * len(rows)
        if self.null is not None:
            courses = self.null.answer(cohort, key)
        scores: Sequence[Array | None] = [None] * len(rows)
        clusters: Sequence[int | None] = [None] * len(rows)
        if self.clustered is not None:
            if self.clustered.m < LEAST_CLUSTERS:
                raise RequestError(f"products of gradients are for {LEAST_CLUSTERS} clients on")
            slopes = [each.slope for each in self.clustered.answer(cohort, key)]
            scores = [np.outer(slope, slope) for slope in slopes]
            # in a limit the gradient of rows that have all receded is 0, and no cluster
            clusters = [int(slope.any()) for slope in slopes]
        for design in rows:
            cohort.check_predictor(design, self.x)
            cohort.state(design, partial(of_fit, design, self.x, self.dispersion, self.expected))
        rounds: Sequence[Course | None] = [None] * len(rows)
        if self.round is not None:
            rounds = self.round.answer(cohort, key)
        found = zip(rows, courses, scores, clusters, rounds, strict=True)
        return [
            self._of(cohort, key, design, course)._replace(
                scores=products, clusters=cluster, round=own
            )
            for design, course, products, cluster, own in found
        ]

    def _of(
        self, cohort: DatasetCohort, key: str, design: Design, course: Course | None
    ) -> GoodnessOfFit:
        family = design.family
        log_likelihood = calibration = pearson = expected = None
        if family.log_likelihood is not None:
            log_likelihood = design.log_likelihood(self.x, self.dispersion)
        if family.binary and self.calibrate:
            calibration = cohort.calibration(design, self.x, key)
        squares = design.pearson_parts(self.x)
        if squares is not None:
            pearson = float(np.sum(squares))
        if self.expected:
            expected = design.expected_information(self.x, cohort.frame(key).whiten)
        found = GoodnessOfFit(log_likelihood, calibration, pearson, expected, course)
        if cohort.refuses:
            return _rounded(found, design.rows)
        return found

    def check(self, entry: GoodnessOfFit) -> str:
        if entry.log_likelihood is not None and math.isnan(entry.log_likelihood):
            return "a log-likelihood that is nan"
        if entry.pearson is not None and math.isnan(entry.pearson):
            return NOT_FINITE
        if (self.null is None) != (entry.null is None):
            return "the model without covariates was asked for, or not"
        if (self.round is None) != (entry.round is None):
            return "the cost at the point was asked for, or not"
        if self.expected != (entry.expected is not None):
            return "an information matrix was asked for, or not"
        wrong = self._check_expected(entry.expected)
        if self.null is not None and entry.null is not None:
            wrong = wrong or self.null.check(entry.null)
        if self.round is not None and entry.round is not None:
            wrong = wrong or self.round.check(entry.round)
        for part in entry.calibration or ():
            if part.shape != (len(BINS) - 1,):
                return "a calibration of the wrong shape"
            if not np.isfinite(part).all() or (part < 0).any():
                return "a calibration with negative or infinite counts"
        return wrong

    def _check_expected(self, H: Array | None) -> str:
        if H is None:
            return ""
        if H.shape != (len(H), len(H)) or not 0 < len(H) <= len(self.x):
            return "an information matrix of the wrong shape"
        return NOT_FINITE if np.isnan(H).any() else ""


def _rounded(found: GoodnessOfFit, n: int) -> GoodnessOfFit:
    """The sums of n rows without their rounding errors."""
    log_likelihood, calibration, pearson, expected, *_ = found
    if log_likelihood is not None:
        log_likelihood = rounded_total(log_likelihood, n)
    if calibration is not None:
        predicted = rounded(calibration.predicted, calibration.rows)
        calibration = calibration._replace(predicted=predicted)
    if pearson is not None:
        pearson = rounded_total(pearson)
    if expected is not None:
        expected = rounded_products(expected)
    return found._replace(
        log_likelihood=log_likelihood, calibration=calibration, pearson=pearson, expected=expected
    )
