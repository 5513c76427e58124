"""What the end of the rounds means in the units of a table: standard errors, deviances, bounds.

A certificate is about the problem that the clients hold: columns that were computed, centred,
scaled and combined in float64. Each of these numbers is off by a few roundings of the terms that it
is the sum of, which shows where large terms nearly cancel; how far that can have moved a fit from
that of the numbers in the files is bounded too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from fedsplit.arrays import EPS, Array, add_diagonal
from fedsplit.clients.questions import ProofScalars
from fedsplit.clients.stacked import QUIET
from fedsplit.dialogue import Dialogue
from fedsplit.loop.certificate import Certificate, Facts, ScaledHessian, near
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.client.design import Calibration, products_among
from fedsplit.regression.client.questions import SumAnswer, SumQuestion
from fedsplit.regression.client.statistics import (
    LEAST_CLUSTERS,
    CalibrationCounts,
    CostAlong,
    ExpectedInformation,
    LogLikelihood,
    PearsonSquares,
    ScoreProducts,
    with_ridge,
)
from fedsplit.regression.server.agreement import Agreement
from fedsplit.regression.server.clustered import (
    ClusteredCovariance,
    clustered_covariance,
    summed_covariance,
)
from fedsplit.regression.server.federation import InTrace
from fedsplit.regression.server.problem import FitProblem, inverse
from fedsplit.regression.server.report import (
    Estimates,
    FitCertificate,
    FitStatistics,
    PooledMoments,
    fingerprint_of,
)
from fedsplit.regression.server.separation import regular
from fedsplit.statistic import Statistic, Values

SUMMATION = 16.0
"""Roundings in sums over the rows of a client, which are added up pairwise or in blocks."""


class ColumnRounding(NamedTuple):
    """How far the entries of the p columns of a design are off, since they were computed."""

    roundings: Array  # (p,): of the entry itself, which differ from row to row
    # (p,): of numbers beside it, such as the mean that ``scale`` subtracts, in units of the column
    shifts: Array
    # (p, p): column k is off by shared[j, k] times column j in every row, in roundings: a mean that
    # is off moves the coefficient of another column, or the intercept, and nothing else
    shared: Array


def column_rounding(problem: FitProblem) -> ColumnRounding:
    """The rounding of products, powers and functions, by the names of columns."""
    pool, state = problem.pool, problem.rows.plan.state
    # between the factors of a term, and not inside of one
    factors = [re.compile(r":(?![^(\[{]*[)\]}])").split(name) for name in pool.names]
    if pool.intercept is not None:
        factors[pool.intercept] = []
    kept = np.flatnonzero(problem.columns).tolist()
    places = {frozenset(factors[k]): k for k in kept}
    p = len(factors)
    roundings, shifts, shared = np.zeros(p), np.zeros(p), np.zeros((p, p))
    for k, own in enumerate(factors):
        # a category has ones and zeros, and a column that is quoted is no operation
        computed = [each for each in own if not each.endswith(("]", "`"))]
        operations = len(re.findall(r"[-+*/^]", "".join(computed)))
        # a function such as log is good to about four roundings of its value
        functions = 4 * sum(each.count("(") for each in computed)
        roundings[k] = max(0, len(computed) - 1) + operations + functions
        for at, each in enumerate(own):
            agreed = state.get(each, {})
            if "center" not in agreed:
                continue
            [centre], [scale] = agreed["center"], agreed.get("scale", [1.0])
            shift = SUMMATION * abs(centre / scale)
            shared[k, k] += SUMMATION  # of the scale
            others = own[:at] + own[at + 1 :]
            other = places.get(frozenset(others))
            if other is not None:
                shared[other, k] += shift
                continue
            singles = [places.get(frozenset([factor])) for factor in others]
            sizes = [pool.sizes[k] if single is None else pool.sizes[single] for single in singles]
            shifts[k] += shift * math.prod(sizes)
    if problem.frame.precise:  # then products of two columns have all their digits
        pairs = products_among(pool.names)
        exact = [roundings[i] + roundings[j] for i, j in pairs.values()]
        roundings[list(pairs)] = exact
    return ColumnRounding(roundings, shifts, shared)


def column_errors(problem: FitProblem, evaluation: ColumnRounding, H: Array) -> Array:
    """√Σ wφ''E², (d,), of the errors E in each column, in roundings; H is Σ wφ'' y yᵀ."""
    frame, kept = problem.frame, problem.columns
    r = int(kept.sum())
    whiten: Array = np.eye(r) if frame.whiten is None else frame.whiten[kept]
    unwhiten = np.linalg.inv(whiten)
    # two for centring and scaling, and one for each term of the sum
    terms = 2.0 + np.count_nonzero(whiten, axis=0)
    # an entry is its scaled one and the centre, both in units of the scale
    centre, scale, *_ = frame.scaling
    far = (evaluation.roundings * np.abs(centre / scale) + evaluation.shifts / scale)[kept]
    errors = []
    for c in range(problem.predictors):
        block = H[c * r : (c + 1) * r, c * r : (c + 1) * r]
        scaled = np.sqrt(np.maximum(np.diag(unwhiten.T @ block @ unwhiten), 0.0))
        combined = np.zeros(r) if frame.precise else terms * (scaled @ np.abs(whiten))
        # no column that is centred is longer than that of ones by much, if there is one
        computed = evaluation.roundings[kept] * scaled + far * scaled.max()
        errors.append(combined + computed @ np.abs(whiten))
    errors.append(np.zeros(len(H) - r * problem.predictors))
    return np.asarray(np.maximum(np.concatenate(errors), 2.0 * np.sqrt(np.diag(H))))


def gradient_error(
    problem: FitProblem, evaluation: ColumnRounding, H: Array, x: Array, scalars: ProofScalars
) -> float:
    """A bound on the error of the gradient at x in the norm of H⁻¹; nan if H is singular.

    With errors E in the columns Y, slopes φ' and curvatures φ'', the gradient is off by
    Eᵀwφ' + Yᵀwφ''Ex. The second term is no longer than Ex is in the norm of wφ''; the first is at
    most √Σ wφ''E² · √Σ wφ'²/φ'' in each entry, by Cauchy's inequality. The last sum is taken to be
    the deviance, or the weight of all rows, of targets without a unit, where that is larger.
    Sums, slopes and targets are off by a few roundings of their own.
    """
    sizes = np.sqrt(np.diag(H))
    if not np.isfinite(H).all() or (sizes == 0).any():
        return math.nan
    correlated = np.abs(inverse(H / np.outer(sizes, sizes)))
    deviance = max(0.0, 2.0 * float(np.sum(scalars.value - scalars.floor)))
    weight = 0.0 if problem.family.has_units else problem.pool.weight
    residual = math.sqrt(max(deviance, weight))
    errors = column_errors(problem, evaluation, H)
    relative = errors / sizes
    fitted = math.sqrt(max(0.0, float(x @ H @ x)))
    parts = [
        np.abs(x) @ (errors + len(x) * sizes),
        # of offsets, targets, means and slopes, in units of the predictor
        32.0 * sizes.max() + 4.0 * residual,
        residual * math.sqrt(relative @ correlated @ relative),
        SUMMATION * (residual + fitted) * math.sqrt(correlated.sum()),
    ]
    return EPS / 2.0 * float(sum(parts))


def conversion_error(problem: FitProblem, evaluation: ColumnRounding, x: Array) -> Array:
    """A bound on what rounding adds to every coefficient but by the gradient, (q,).

    It is that of the way back to the units of the files, and of numbers that all rows share.
    """
    # the sizes of the terms whose sums x is multiplied by
    terms = np.abs(problem.back)
    if not problem.frame.precise:
        terms = np.abs(problem.unscaling) @ np.abs(problem.basis)
    added = (len(x) + 5.0) * (terms @ np.abs(x)) + np.abs(problem.origin)
    of_columns = problem.predictors * len(problem.columns)
    coef = np.abs(problem.coefficients(x))[:of_columns].reshape(problem.predictors, -1)
    added[:of_columns] += (coef @ evaluation.shared.T).ravel()
    return EPS / 2.0 * np.asarray(added)


LEAST_DISPERSION = 1e-6
"""Of a target in units of its deviation: the tolerance is in standard errors of at least this φ.

A better fit has standard errors so small that rounding shows in them.
"""

MOST_ROUNDING = 1e-6
"""In standard errors: a fit that the arithmetic may have moved further is not converged."""


@dataclass(frozen=True)
class Point:
    """What the clients answered at x: what that proves, and how well the model fits there."""

    problem: FitProblem
    x: Array  # (d,)
    gradients: Array  # (m, d)
    information: Array  # (m, d, d): Hessians, each with its share of the penalty's ridge
    scalars: ProofScalars
    proved: Certificate  # in the coordinates of the rounds
    # (d, k): an orthonormal basis of the directions that nothing determines in the limit of a fit
    # whose coefficients grow without bound; None where there are none
    kernel: Array | None = None
    # the sums of what is known of the fit, by statistic and part; empty where none is needed
    fit: Mapping[str, Values] = field(default_factory=dict)
    # how many rows of each client the model is without; empty if it is of all
    receding: Sequence[int] = ()

    @classmethod
    def of(
        cls,
        problem: FitProblem,
        x: Array,
        gradients: Array,
        information: Array,
        scalars: ProofScalars,
        penalty: FitPenalty | None = None,
        subgradient: Array | None = None,
        least: Array | None = None,
        kernel: Array | None = None,
    ) -> Self:
        """What follows from answers at x, which are without the penalty.

        Along a kernel F is constant, but for rounding, and the proof is about all other directions.
        ``subgradient`` is one of the penalty at x, (d,), and ``least``, (d, d), at most the Hessian
        of the sum, where that is not known.
        """
        H = information.sum(axis=0) if least is None else least.copy()
        if penalty is not None:
            information = add_diagonal(information.copy(), penalty.l2 / len(gradients))
            add_diagonal(H[None], penalty.l2)
        slope = gradients.sum(axis=0)
        if subgradient is not None:
            slope = slope + subgradient
        proved = Facts(x, slope, scalars, penalty).certificate(regular(H, kernel))
        return cls(problem, x, gradients, information, scalars, proved, kernel)

    @property
    def hessian(self) -> Array:
        """The information of all clients, (d, d), made regular along the kernel."""
        return regular(self.information.sum(axis=0), self.kernel)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many rows of each client the model is of."""
        rows = self.problem.rows
        gone = self.receding or [0] * len(rows.names)
        counts = zip(rows.names, rows.moments, gone, strict=True)
        return {name: each.n - without for name, each, without in counts}

    def total(self, statistic: str) -> float | None:
        """The total of a statistic over all clients; None if it was not asked for."""
        return float(self.fit[statistic]["total"][0, 0]) if statistic in self.fit else None

    @property
    def n(self) -> int:
        return sum(self.sizes.values())

    @property
    def deviance(self) -> float:
        """Twice the loss above that of the saturated model, in the coordinates of the rounds."""
        problem, scalars = self.problem, self.scalars
        ridge = 0.5 * float(np.sum(problem.frame.ridge * self.x * self.x))
        above = float(np.sum(scalars.value - scalars.floor))
        return 2.0 * max(0.0, above - problem.pool.floor / problem.unit - ridge)

    @cached_property
    def dispersion(self) -> float:
        """φ in the coordinates of the rounds."""
        family = self.problem.family
        if not family.dispersed:
            return 1.0
        freedom = max(1, self.n - self.problem.d)
        if not family.has_pearson:
            return self.deviance / freedom
        return (self.total("pearson") or 0.0) / freedom

    @cached_property
    def observed(self) -> Array:
        """The inverse of the observed information, (d, d)."""
        return inverse(self.hessian)

    @cached_property
    def expected(self) -> Array:
        """The inverse of the expected information in the coordinates of the rounds, (d, d)."""
        problem = self.problem
        if problem.family.information == "hessian":
            return self.observed
        if problem.family.information == "rows":
            return inverse(self.fit["expected"]["information"])
        if problem.settings.biased is None:
            return inverse(problem.pool.weight * np.eye(problem.d))
        products = problem.pool.products(problem.frame.scaling)
        return inverse(problem.basis.T @ products @ problem.basis)

    @cached_property
    def per_radius(self) -> float:
        """The bound on |coefficient - pooled|/SE per unit of the distance in the Hessian's norm."""
        phi = max(self.dispersion, LEAST_DISPERSION)
        back = self.problem.back[self.problem.kept]
        with np.errstate(divide="ignore", **QUIET):
            bound = np.diag(back @ self.observed @ back.T)
            errors = phi * np.diag(back @ self.expected @ back.T)
            worst = float(np.sqrt(np.max(bound / errors)))
        return math.inf if math.isnan(worst) else worst

    @property
    def distance(self) -> float:
        """The proved bound on |coefficient - pooled|/SE of every coefficient; inf without one."""
        radius = self.proved.radius
        return math.inf if radius is None else radius * self.per_radius

    @cached_property
    def arithmetic(self) -> float:
        """A bound on |coefficient - that of exact arithmetic|/SE; inf if there is none."""
        problem, x = self.problem, self.x
        evaluation = column_rounding(problem)
        if self.kernel is not None:  # how far out the limit is does not matter
            x = x - self.kernel @ (self.kernel.T @ x)
        with np.errstate(divide="ignore", **QUIET):
            nu = gradient_error(problem, evaluation, self.hessian, x, self.scalars)
            # how far the minimiser moves with the gradient, in the norm of H
            moved = near(nu, ScaledHessian(self.hessian).least(), self.scalars).radius
            phi = max(self.dispersion, LEAST_DISPERSION)
            errors = np.sqrt(phi * np.diag(problem.back @ self.expected @ problem.back.T))
            converted = conversion_error(problem, evaluation, x)
            worst = np.max((converted / errors)[problem.kept])
            bound = float(moved * self.per_radius + worst)
        return math.inf if math.isnan(bound) else bound

    @property
    def certificate(self) -> FitCertificate:
        """What is proved, in the units of the files."""
        phi = max(self.dispersion, EPS**2)
        return FitCertificate(
            gap=None if self.proved.gap is None else self.problem.unit * self.proved.gap,
            # a proof about some directions alone bounds no coefficient
            standard_errors=self.distance if math.isfinite(self.distance) else None,
            reason=self.proved.reason,
            arithmetic=self.arithmetic if math.isfinite(self.arithmetic) else None,
            inflation=math.sqrt(max(phi, LEAST_DISPERSION) / phi),
        )


def statistics_of(point: Point, last: bool) -> dict[str, Statistic]:
    """What is asked about how well the model of a point fits; see ``ask_fit``."""
    problem = point.problem
    family, plan = problem.family, problem.rows.plan
    x = problem.basis @ point.x
    asked: dict[str, Statistic] = {}
    if family.has_likelihood:
        phi = 1.0
        if family.dispersed:
            deviance = problem.unit * point.deviance
            phi = family.likelihood_dispersion(deviance, problem.pool.n, problem.pool.weight)
        asked["likelihood"] = LogLikelihood(x, phi)
        asked["null"] = CostAlong(problem.intercept_alone, problem.intercepts)
    # X² of single trials of two classes is about their number, whatever the model
    if family.has_pearson or plan.parsed.grouped is not None or plan.shares:
        asked["pearson"] = PearsonSquares(x)
    if last and family.binary:
        asked["calibration"] = CalibrationCounts(x)
    if family.information == "rows":
        asked["expected"] = ExpectedInformation(x, problem.d)
    if problem.settings.biased is None and problem.rows.clusters >= LEAST_CLUSTERS:
        asked["scores"] = ScoreProducts(point.x)
    return asked


def ask_fit(point: Point, last: bool) -> Dialogue[Point]:
    """Ask how well the model of a proof fits, unless that is known.

    Before the ``last`` point only what a distance in standard errors needs is asked for, if
    anything; the calibration of a classifier at the end alone.
    """
    family = point.problem.family
    if point.fit and (not (last and family.binary) or "calibration" in point.fit):
        return point
    asked = statistics_of(point, last)
    needed = family.dispersion == "pearson" or family.information == "rows"
    if not needed and not (last and ("null" in asked or "scores" in asked)):
        return point
    return replace(point, fit=_pooled((yield SumQuestion(asked))))


def _pooled(answers: Sequence[SumAnswer]) -> dict[str, dict[str, Array]]:
    """The sums over all clients, by statistic and part."""
    return {
        name: {part: np.sum([each.values[name][part] for each in answers], axis=0) for part in own}
        for name, own in answers[0].values.items()
    }


def ask_closing(before: Point, x: Array) -> Dialogue[Point | None]:
    """A proof at x, together with how well the model of x fits: one exchange.

    None where the dispersion, and with it the log-likelihood, is known after the proof alone.
    """
    problem = before.problem
    if problem.family.dispersed or not problem.family.has_likelihood:
        return None
    asked = statistics_of(replace(before, x=x), last=True)
    asked["round"] = CostAlong(x, np.eye(problem.d), curved=True)
    answers: list[SumAnswer] = yield InTrace(SumQuestion(asked))
    share = problem.frame.ridge / problem.m
    costs = [with_ridge(each.values["round"], x, share) for each in answers]
    values, slopes, information = (
        np.stack([each[part] for each in costs]) for part in ("value", "slope", "curvature")
    )
    unknown = np.zeros(len(costs))
    scalars = before.scalars._replace(  # the others do not depend on x
        value=values[:, 0, 0], leverage=unknown + np.inf, steady=unknown
    )
    gradients = slopes[:, :, 0]
    point = Point.of(problem, x, gradients, information, scalars)
    return replace(point, fit=_pooled(answers))


def null_deviance(point: Point) -> Dialogue[float | None]:
    """The deviance of the model without covariates, in the units of the files.

    As in R, that model keeps its offsets, and its intercept if it has one. Where the server knows
    it from the moments, nobody is asked again.
    """
    problem = point.problem
    if not problem.family.has_likelihood:
        return None
    x, directions = problem.intercept_alone, problem.intercepts
    cost = point.fit["null"]
    least = float(cost["value"][0, 0])
    steep = 1e-12 * problem.pool.weight  # a smaller slope is rounding
    if (np.abs(cost["slope"]) > steep).any():
        least = math.inf
        step: Array = np.zeros(directions.shape[1])
        for _ in range(50):  # halved steps included
            cost = _pooled((yield SumQuestion({"null": CostAlong(x, directions, True)})))["null"]
            value, slope = float(cost["value"][0, 0]), cost["slope"][:, 0]
            if not value <= least:
                # a full step may be too long from a start far away
                step = 0.5 * step
                x = x + directions @ step
                continue
            least = value
            step = np.linalg.solve(cost["curvature"], slope)
            # so small a squared Newton decrement moves no digit of a deviance
            if (np.abs(slope) <= steep).all() or slope @ step <= 1e-20 * abs(value):
                break
            x = x - directions @ step
    floor = float(np.sum(point.scalars.floor))
    return 2.0 * (problem.unit * (least - floor) - problem.pool.floor)


def estimates_of(point: Point) -> Estimates:
    """The coefficients where the rounds ended, with their covariances."""
    problem, family = point.problem, point.problem.family
    phi = point.dispersion
    back = np.where(problem.kept[:, None], problem.back, np.nan)
    expected = back @ point.expected @ back.T
    unbiased = problem.settings.biased is None
    # as many coefficients as rows leave nothing to estimate φ from
    known = not family.dispersed or point.n > problem.d
    return Estimates(
        names=problem.names,
        values=np.where(problem.kept, problem.coefficients(point.x), np.nan),
        covariance=phi * expected if unbiased and known and family.has_likelihood else None,
        robust=_clustered(point, back) if unbiased else None,
        errors=np.sqrt(phi * np.diag(expected)),
        aliased=[name for name, kept in zip(problem.names, problem.kept, strict=True) if not kept],
    )


def fit_of(point: Point, null: float | None, agreement: Agreement) -> FitStatistics:
    """How well the model fits where the rounds ended, in the units of the files.

    ``null`` is the deviance of the model without covariates.
    """
    problem, family, pool = point.problem, point.problem.family, point.problem.pool
    # φ of a perfect fit would make the peak of a likelihood as high as one likes
    saturated = family.dispersed and pool.n <= problem.d
    has_likelihood = family.has_likelihood and not saturated
    phi: float | None = point.dispersion * problem.unit
    if saturated or (family.dispersed and problem.settings.biased is not None):
        phi = None  # n - d counts no degrees of freedom where coefficients are shrunk
    bins = point.fit.get("calibration")
    return FitStatistics(
        clients=contributions(point, agreement.missing),
        dispersion=phi,
        deviance=point.deviance * problem.unit,
        null_deviance=null,
        llf=point.total("likelihood") if has_likelihood else None,
        pearson=point.total("pearson"),
        calibration=None if bins is None else Calibration(*bins["bins"]),
        moments=PooledMoments(pool.names, pool.weight, pool.mean, pool.scatter, pool.target),
        fingerprint=fingerprint_of(
            dict(zip(problem.rows.names, problem.rows.moments, strict=True))
        ),
        missing_values=agreement.missing_values,
        spread=problem.frame.spread if family.robust else None,
    )


def _clustered(point: Point, back: Array) -> ClusteredCovariance | None:
    """The covariance of the coefficients clustered by client, if there is one."""
    problem = point.problem
    summed = problem.rows.clusters  # in secure sums only Σ g_j g_jᵀ is known
    m = summed or sum(n > 0 for n in point.sizes.values())  # in a limit some have no row
    few = m < (LEAST_CLUSTERS if summed else 2)
    if few or point.n <= problem.d or np.isnan(point.observed).any():
        return None
    if not summed:
        return clustered_covariance(point.observed, point.gradients, point.information, back)
    scores = point.fit["scores"]
    clusters = round(float(scores["clusters"][0, 0]))
    return summed_covariance(point.observed, scores["products"], clusters, point.n, back)


def contributions(point: Point, missing: Mapping[str, int]) -> pd.DataFrame:
    """What each client contributes to the answer, to first order.

    Without client j the gradient of the others is -g_j, so that the coefficients move by
    (H - H_j)⁻¹ g_j. There is a row for every client of ``missing``, with the columns of
    ``FitStatistics.clients``; leverage is tr(H⁻¹H_j)/d, and score the length of g_j in the norm of
    the covariance.
    """
    problem = point.problem
    H, V = point.hessian, point.observed
    back = problem.back[problem.kept]
    names = [name for name, kept in zip(problem.names, problem.kept, strict=True) if kept]
    # each client carries its share of the ridge in the rounds; its own part of the answer is that
    # of its rows alone
    share = problem.frame.ridge / problem.m
    gradients = point.gradients - share * point.x
    information = add_diagonal(point.information.copy(), -share)
    dispersion = max(point.dispersion, np.finfo(np.float64).tiny)  # 0 of a perfect fit
    errors = np.sqrt(dispersion * np.diag(back @ V @ back.T))
    rows = {name: (0, left_out, 0.0, 0.0, np.nan, "") for name, left_out in missing.items()}
    for (name, n), g, H_j in zip(point.sizes.items(), gradients, information, strict=True):
        leverage = float(np.sum(V * H_j) / len(V))
        score = float(np.sqrt(g @ V @ g / dispersion))
        shift, coefficient = np.nan, ""
        if len(point.sizes) > 1 and n:
            move = back @ (inverse(H - H_j) @ g) / errors
            if np.isfinite(move).all():
                most = int(np.argmax(np.abs(move)))
                shift, coefficient = float(move[most]), names[most]
        rows[name] = (n, missing[name], leverage, score, shift, coefficient)
    index = pd.Index(list(rows), name="client")
    columns = ["n", "missing", "leverage", "score", "shift", "coefficient"]
    return pd.DataFrame(list(rows.values()), index=index, columns=columns)
