"""The questions of a fit beside those of its rounds: the handshake, and how well the model fits.

Each one has the type of its answer and the check of what comes back. A new one is one class here
and one line of ``FIT_QUESTIONS``.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import NOT_FINITE, Question
from fedsplit.clients.questions import Evaluate
from fedsplit.clients.sums import rounded, rounded_products, rounded_total
from fedsplit.data.formula.formula import Formula
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.data.types import Type, level_form
from fedsplit.errors import RequestError
from fedsplit.regression.client.description import ColumnRequest, Description
from fedsplit.regression.client.design import (
    BINS,
    Calibration,
    Design,
    Moments,
    Recession,
    Scaling,
)
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.guards.points import PointGuard
from fedsplit.regression.client.guards.told import NO_DIRECTIONS, At
from fedsplit.regression.client.introduction import Introduction, first_statistics
from fedsplit.regression.client.measuring import Measured, check_measured
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.schema import Wanted
from fedsplit.regression.families import FAMILIES
from fedsplit.remote import codec
from fedsplit.rounds.trace import Kind

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


@dataclass(frozen=True)
class Coding:
    """How clients code their rows as numbers.

    Attributes
    ----------
    plan : Plan
        What all clients agreed on.
    strict : bool
        Whether to refuse answers that could disclose single rows.
    names : tuple of str
        The clients of the cohort that take part.
    recessions : tuple of Recession
        Only rows that are at rest along each of these directions take part.
    """

    plan: Plan
    strict: bool
    names: tuple[str, ...]
    recessions: tuple[Recession, ...] = ()


@dataclass(frozen=True)
class Frame:
    """The coordinates of the rounds, and what a client's cost is in them.

    Attributes
    ----------
    scaling : Scaling
        Of the columns and the target.
    whiten : (p, r) array or None
        What the scaled columns are multiplied by, so that they are orthonormal over all clients, or
        so that r of them are left.
    delta : float
        Of Huber's loss, in the target's unit.
    symmetric : bool
        Whether the coefficients are those of all classes, centred.
    ridge : (d,) array
        Of the whole objective.
    precise : bool
        Whether the products with ``whiten`` are formed in twice the working precision, because
        large terms nearly cancel in them.
    """

    scaling: Scaling
    whiten: Array | None
    delta: float
    symmetric: bool
    ridge: Array
    precise: bool = False

    def without_ridge(self) -> Frame:
        """Everything that the data depend on."""
        return replace(self, ridge=np.zeros(0))


def key_of(coding: Coding, frame: Frame) -> str:
    """The name of what clients are prepared with, by its content."""
    return hashlib.sha256(codec.encode((coding, frame))).hexdigest()


class FitQuestion(Question):
    """A question about the rows of a cohort, answered by a list with one entry per client.

    Attributes
    ----------
    kind : str
        Of the row that it has in a trace.
    """

    kind: ClassVar[Kind] = "handshake"

    @abstractmethod
    def answer(self, cohort: DatasetCohort, key: str) -> list[Any]:
        """The entry of every client; ``key`` names what the cohort was prepared with."""

    def check(self, entry: Any) -> str:
        """What is wrong with one client's entry: an empty text if nothing is."""
        return ""


@dataclass(frozen=True)
class Columns(FitQuestion):
    """What all columns can be read as, and whatever else can be told before that is decided."""

    wanted: Wanted

    answer_type = list[Introduction]

    def answer(self, cohort: DatasetCohort, key: str) -> list[Introduction]:
        rules = cohort.rules.asked(self.wanted.strict)
        return [dataset.introduce(self.wanted, rules) for dataset in cohort.datasets.values()]

    def check(self, entry: Introduction) -> str:
        if entry.description is None:
            return ""
        if entry.request is None:
            return "a description that nobody has asked for"
        wrong = Describe(entry.request).check(entry.description)
        if wrong or entry.measured is None:
            return wrong
        return check_measured(entry.measured, first_statistics(Formula(self.wanted.formula)))


@dataclass(frozen=True)
class Describe(FitQuestion):
    """What is in the columns that the model uses."""

    request: ColumnRequest

    answer_type = list[Description]

    def answer(self, cohort: DatasetCohort, key: str) -> list[Description]:
        rules = cohort.rules.asked(self.request.strict)
        return [dataset.describe(self.request, rules) for dataset in cohort.datasets.values()]

    def check(self, entry: Description) -> str:
        if set(entry.missing) != set(self.request.types):
            return "a description of other columns"
        if set(entry.levels) != self.request.coded or not set(entry.orders) <= self.request.coded:
            return "levels of other columns"
        if set(entry.sums) != self.request.filled:
            return "sums of other columns"
        for column, levels in entry.levels.items():
            if not all(_is_level(level, self.request.types[column]) for level in levels):
                return "levels that are not of their column's type"
        counts = [entry.rows - entry.kept, entry.kept, *entry.missing.values()]
        counts += [n for n, _ in entry.sums.values()]
        counts += [n for levels in entry.levels.values() for n in levels.values()]
        if min(counts) < 0 or not all(math.isfinite(total) for _, total in entry.sums.values()):
            return "negative counts, or sums that are not finite"
        if any(sum(levels.values()) != entry.kept for levels in entry.levels.values()):
            return "levels of another number of rows"
        return ""


def _is_level(text: str, kind: Type) -> bool:
    """Whether a text is a level in its only form."""
    try:
        return text == level_form(text.strip(), kind)
    except ValueError:
        return False


@dataclass(frozen=True)
class Measure(FitQuestion):
    """Sums over the complete rows that functions such as ``poly(x, 2)`` and ``cut`` depend on.

    Attributes
    ----------
    coding : Coding
        Whose plan lacks the state that is to be agreed.
    statistics : mapping of str to Statistic
        By the text of a function in the formula, what is asked of its column.
    """

    coding: Coding
    statistics: Mapping[str, Statistic]

    answer_type = list[Measured]

    def answer(self, cohort: DatasetCohort, key: str) -> list[Measured]:
        rules = cohort.rules.asked(self.coding.strict)
        return [
            cohort.datasets[name].measure(self.coding.plan, self.statistics, rules)
            for name in self.coding.names
        ]

    def check(self, entry: Measured) -> str:
        return check_measured(entry, self.statistics)


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

    def answer(self, cohort: DatasetCohort, key: str) -> list[Coded]:
        return cohort.code(self.coding)

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


class Receding(NamedTuple):
    """What a direction does to a client's rows.

    Attributes
    ----------
    against : bool
        Whether it raises the loss of some row.
    some, all : bool
        Whether the loss of some row, and of every row, falls for ever.
    """

    against: bool
    some: bool
    all: bool


@dataclass(frozen=True)
class Recede(FitQuestion):
    """Whether the losses fall for ever along a direction, (d,), in the rounds' coordinates."""

    direction: Array

    answer_type = list[Receding]
    kind = "certificate"

    def answer(self, cohort: DatasetCohort, key: str) -> list[Receding]:
        found = []
        if cohort.point_guard(key) is not None:
            raise RequestError(NO_DIRECTIONS)
        for rows in cohort.scaled(key):
            whiten = cohort.frame(key).whiten
            if whiten is None:
                whiten = np.eye(rows.A.shape[1])
            margins = rows.margins(whiten, self.direction)
            recede = margins > 0
            found.append(
                Receding(bool((margins < 0).any()), bool(recede.any()), bool(recede.all()))
            )
        return found


@dataclass(frozen=True)
class Settle(FitQuestion):
    """Make the costs of the rounds; the answer is the moments of the rows that they are made of."""

    coding: Coding
    frame: Frame

    answer_type = list[Moments]
    prepares = True
    kind = "setup"

    def answer(self, cohort: DatasetCohort, key: str) -> list[Moments]:
        return cohort.settle(self.coding, self.frame)


@dataclass(frozen=True)
class Products(FitQuestion):
    """Σ w y yᵀ of combinations y = Dᵀa of the scaled columns a, (k, k): moments once more."""

    coding: Coding
    scaling: Scaling
    directions: Array

    answer_type = list[Array]

    def answer(self, cohort: DatasetCohort, key: str) -> list[Array]:
        return cohort.products(self.coding, self.scaling, self.directions)

    def check(self, entry: Array) -> str:
        k = self.directions.shape[1]
        if entry.shape != (k, k):
            return "products of the wrong shape"
        if not np.isfinite(entry).all() or (np.diag(entry) < 0).any():
            return "products that are not finite, or squares below zero"
        return ""


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

    @property
    def matrices(self) -> int:
        return int(self.curved)

    def answer(self, cohort: DatasetCohort, key: str) -> list[Course]:
        clients = cohort.among(key, self.m)
        shape = self.directions.shape
        d = clients.d
        if self.x.shape != (d,) or len(shape) != 2 or shape[0] != d or shape[1] > d:
            raise RequestError(f"the server sent a point and directions of {shape}, where d is {d}")
        guard = cohort.point_guard(key)
        if guard is not None:
            guard.count([self.x], key)
            guard.check([At(self.x, value=True, slope=True, matrix=self.curved)])
        evaluated = clients.evaluate(self.x).parts
        if guard is not None:
            evaluated = guard.rounded(Evaluate(self.x), evaluated)
        values, gradients = evaluated.values()
        slopes = gradients @ self.directions
        if not self.curved:
            return [Course(float(f), slope) for f, slope in zip(values, slopes, strict=True)]
        hessians = clients.information(self.x).rows
        if guard is not None:
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


class GoodnessOfFit(NamedTuple):
    """How well a model fits a client's rows.

    Attributes
    ----------
    log_likelihood : float or None
        None where the family has none.
    calibration : Calibration or None
        Of a binary classifier, at the end.
    pearson : float or None
        Pearson's X², where φ is estimated by it.
    expected : (r, r) array or None
        The expected information of the r columns of the rounds, where the Hessian is another.
    null : Course or None
        Along the intercepts, from where the model without covariates is, or is searched from.
    """

    log_likelihood: float | None
    calibration: Calibration | None = None
    pearson: float | None = None
    expected: Array | None = None
    null: Course | None = None


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
    """

    x: Array
    dispersion: float
    null: Along | None = None
    calibrate: bool = True
    expected: bool = False

    answer_type = list[GoodnessOfFit]
    vectors = ("x",)
    kind = "end"

    @property
    def matrices(self) -> int:
        null = 0
        if self.null is not None:
            null = self.null.matrices
        return null + self.expected

    def answer(self, cohort: DatasetCohort, key: str) -> list[GoodnessOfFit]:
        rows = cohort.scaled(key)
        courses: Sequence[Course | None] = [None] * len(rows)
        if self.null is not None:
            courses = self.null.answer(cohort, key)
        guard = cohort.point_guard(key)
        if guard is not None:
            guard.count([self.x], key)
            for j, design in enumerate(rows):
                self._check(guard, j, design)
        found = zip(rows, courses, strict=True)
        return [self._of(cohort, key, design, course) for design, course in found]

    def _check(self, guard: PointGuard, j: int, design: Design) -> None:
        """Raise InputError if what is told at x is that of few rows."""
        eta = design.predictor(self.x)
        guard.check_size(j, eta)
        vectors: dict[str, list[Array]] = {"values": [], "weights": []}
        if design.family.log_likelihood is not None:
            vectors["values"].append(design.log_likelihood_parts(self.x, self.dispersion))
        if design.family.pearson is not None:
            vectors["values"].append(design.pearson_parts(self.x))
        if self.expected:
            weights = design.w * design.family.expected_weights(eta)
            guard.check_weights(j, weights)
            vectors["weights"].append(weights)
        guard.admit(j, vectors)

    def _of(
        self, cohort: DatasetCohort, key: str, design: Design, course: Course | None
    ) -> GoodnessOfFit:
        family = design.family
        log_likelihood = calibration = pearson = expected = None
        if family.log_likelihood is not None:
            log_likelihood = design.log_likelihood(self.x, self.dispersion)
        if family.binary and self.calibrate:
            calibration = cohort.calibration(design, self.x, key)
        if family.pearson is not None:
            pearson = design.pearson(self.x)
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
        if self.expected != (entry.expected is not None):
            return "an information matrix was asked for, or not"
        wrong = self._check_expected(entry.expected)
        if self.null is not None and entry.null is not None:
            wrong = wrong or self.null.check(entry.null)
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
    log_likelihood, calibration, pearson, expected, _ = found
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


def strict_is_asked(question: Question) -> bool:
    """Whether a question about rows asks for refusals where answers could disclose single ones."""
    about = (getattr(question, name, None) for name in ("wanted", "request", "coding"))
    return any(getattr(each, "strict", False) for each in about)


FIT_QUESTIONS: Mapping[str, type[FitQuestion]] = {
    question.name(): question
    for question in (
        Columns,
        Describe,
        Measure,
        Code,
        Products,
        Recede,
        Settle,
        Along,
        Fitted,
    )
}
"""Everything that clients of a fit answer beside the questions of the rounds, by name."""
