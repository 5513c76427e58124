"""A regression over all clients, from coded rows to the numbers of its table: a dialogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.dialogue import Dialogue
from fedsplit.errors import listed
from fedsplit.methods import parse
from fedsplit.methods.method import Method
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.client.design import Recession
from fedsplit.regression.client.guards.rules import in_lines
from fedsplit.regression.client.questions import SumAnswer, SumQuestion
from fedsplit.regression.client.statistics import ResidualSizes
from fedsplit.regression.server.agreement import Agreement
from fedsplit.regression.server.federation import AboutCosts, about
from fedsplit.regression.server.firth import FirthPoint, firth
from fedsplit.regression.server.inference import (
    MOST_ROUNDING,
    Point,
    ask_fit,
    estimates_of,
    fit_of,
    null_deviance,
)
from fedsplit.regression.server.minimise import PROOF, Minimum, minimise
from fedsplit.regression.server.problem import FitProblem, inverse, set_up
from fedsplit.regression.server.report import (
    Estimates,
    FitCertificate,
    FitStatistics,
    PenalisedLikelihood,
)
from fedsplit.regression.server.separation import Limit

SIZES = Histogram(first=-14.0, step=1 / 6, cells=100)
"""Residuals of 2^-14 to 6.3 units, each cell an eighth wider than the one below."""


def spread_at(problem: FitProblem, x: Array, unit: float) -> Dialogue[float]:
    """The robust deviation of the residuals at x, (d,), rounded to two digits in a unit.

    That is to be in proportion to the target: so the unit of the target changes nothing. It is the
    unit if all counts of residuals were withheld.
    """
    question = ResidualSizes(problem.basis @ x, unit, SIZES)
    answers: list[SumAnswer] = yield AboutCosts(problem, SumQuestion({"sizes": question}))
    counts = np.sum([each.values["sizes"]["counts"][0] for each in answers], axis=0)
    if not counts.any():
        return unit
    below = counts.cumsum() / counts.sum()
    median = 2.0 ** float(np.interp(0.5, below, np.append(SIZES.edges, SIZES.edges[-1])))
    # 0.6745 is the median of |z|: deviations are comparable with those of a normal z
    return unit * float(f"{median / 0.6745:.1e}")


@dataclass(frozen=True)
class FitReport:
    """What a regression comes to."""

    problem: FitProblem
    found: Minimum  # where the rounds ended
    estimates: Estimates
    fit: FitStatistics
    certificate: FitCertificate
    converged: bool  # whether the tolerance is proved, and the arithmetic allows for it
    warnings: list[str]  # what is not proved, or not determined


def glm(agreement: Agreement, reached: Mapping[str, float] | None = None) -> Dialogue[FitReport]:
    """Fit a regression to the rows that clients have agreed on.

    It starts from coefficients ``reached``, by name: those of a run that lost a client.
    """
    problem = yield from set_up(agreement.rows, agreement.settings)
    problem = yield from in_robust_units(problem)
    return (yield from fit_problem(problem, agreement, reached or {}))


def in_robust_units(problem: FitProblem) -> Dialogue[FitProblem]:
    """The problem with the deviation of its residuals agreed on, where its family needs one.

    They are those of a fit without a penalty, first of least squares, then with δ in units of the
    residuals before, until these shrink no more: gross errors take a few fits to lose their weight.
    """
    if not problem.family.robust:
        return problem
    # of which residuals are only counted; whatever the tolerance of the model, it has the same δ
    plain = problem.with_penalties(0.0, 0.0, tol=1e-6)
    before = problem.pool.deviation
    x = plain.least_squares
    # with about as many coefficients as rows the residuals of a fit say little
    if x is None or problem.pool.n < 2 * problem.d:
        alone = plain.intercept_alone
        return problem.with_spread((yield from spread_at(plain, alone, before)))
    spread = yield from spread_at(plain, x, before)
    rounding = 1e-9 * before
    for _ in range(20):
        before, plain = spread, plain.with_spread(spread)
        x = (yield from estimate(plain, None, x)).point.x
        after = yield from spread_at(plain, x, before)
        if after < rounding:
            break
        spread = after
        if after > 0.95 * before:  # they have stopped to shrink
            break
    return problem.with_spread(spread)


def fit_problem(
    problem: FitProblem, agreement: Agreement, reached: Mapping[str, float]
) -> Dialogue[FitReport]:
    """Find the minimum of a regression, and all numbers of its table."""
    settings = problem.settings
    start = problem.start(reached)
    penalised: FirthPoint | None = None
    if settings.firth:
        found, penalised = yield from about(problem, firth(problem, start))
    else:
        found = yield from estimate(problem, problem.penalty(settings.l1), start)
    point = yield from about(problem, ask_fit(found.point, last=True))
    null = yield from about(problem, null_deviance(point))
    made = FitReport(
        problem,
        found,
        estimates_of(point),
        fit_of(point, null, agreement),
        point.certificate,
        found.converged and point.arithmetic <= MOST_ROUNDING,
        [],
    )
    if penalised is not None:
        made = with_firth(made, penalised)
    if found.limit is not None:
        made = with_limit(made, found.limit)
    made.warnings.extend(warnings_of(made, point))
    return made


def estimate(
    problem: FitProblem, penalty: FitPenalty | None, start: Array, last: Minimum | None = None
) -> Dialogue[Minimum]:
    """The minimum under a penalty of the server, from a start or from what is known at the last."""
    method: Method[Any] = parse(problem.settings.method)
    if penalty is not None:
        method = method.with_penalty(penalty)
    return (yield from about(problem, minimise(problem, method, start, last)))


def follow(
    problem: FitProblem, penalties: Sequence[tuple[float, float]], last: Minimum | None = None
) -> Dialogue[list[Minimum]]:
    """The minima for one pair of l1 and ridge after the other.

    Each search resumes from the state, gradients and Hessians of the one before it, the first one
    from ``last``.
    """
    minima = []
    for l1, ridge in penalties:
        last = yield from estimate(problem, problem.penalty(l1, ridge), problem.start({}), last)
        minima.append(last)
    return minima


def with_firth(made: FitReport, point: FirthPoint) -> FitReport:
    """The numbers of R's logistf: standard errors by the augmented information."""
    problem = made.problem
    back = np.where(problem.kept[:, None], problem.back, np.nan)
    # of the coordinates, and of the ways to choose the successes of groups
    volume = float(np.linalg.slogdet(problem.back[problem.kept])[1])
    constant = (made.fit.llf or 0.0) + float(made.found.point.scalars.value.sum())
    df = problem.d - (problem.pool.intercept is not None)
    value = constant - point.objective - volume
    penalised = PenalisedLikelihood(value, _penalised_null(problem, constant - volume), df)
    covariance = back @ inverse(point.augmented) @ back.T
    return replace(
        made,
        estimates=replace(made.estimates, covariance=covariance, robust=None),
        fit=replace(made.fit, penalised=penalised),
        certificate=replace(made.certificate, stationary=point.distance),
    )


def _penalised_null(problem: FitProblem, constant: float) -> float | None:
    """The penalised log-likelihood of the intercept alone; None if there is an offset.

    All rows have the same μ, and columns that are orthonormal over all clients the information
    Wμ(1 - μ)I: the penalty is as good as d more trials, half of them with an event.
    """
    plan = problem.rows.plan
    if plan.offset is not None or plan.parsed.has_offset:
        return None
    weight = problem.pool.weight
    events = weight * problem.pool.target
    mu = problem.null_mean(float(problem.d))
    likelihood = events * np.log(mu) + (weight - events) * np.log1p(-mu)
    return float(constant + likelihood + 0.5 * problem.d * np.log(weight * mu * (1.0 - mu)))


def warnings_of(made: FitReport, point: Point) -> Iterator[str]:
    """What is to be said of the numbers of a fit."""
    problem, found, certificate = made.problem, made.found, made.certificate
    if found.undetermined:
        weak = listed(found.undetermined, 4)
        remedy = "add a ridge, or leave it out"
        if problem.family.robust:  # whose curvature is that of rows with residuals below it
            remedy = "choose a larger delta, add a ridge, or leave it out"
        yield f"the data hardly determine the coefficient of {weak}: {remedy}"
    if found.converged and point.arithmetic > MOST_ROUNDING:
        by = certificate.arithmetic
        moved = "any number of" if by is None else f"{by:.1g}"
        yield (
            f"columns nearly cancel: rounding can have moved coefficients by up to {moved} "
            "standard errors; centre them, or leave one out"
        )
    if not found.converged:
        bound = certificate.bound
        proved = "nothing is proved"
        if bound is not None:
            proved = f"{bound:.1g} standard errors are proved"
        advice = "rounding leaves no better bound; if it will do, set a larger tol"
        if found.rounds + PROOF >= problem.settings.rounds:
            advice = "allow more rounds"
        yield f"{proved}, not the tolerance of {problem.settings.tol:g}: {advice}"


def with_limit(made: FitReport, limit: Limit) -> FitReport:
    """The report of a fit in which some coefficients grow without bound."""
    problem = made.problem
    lost = limit.not_estimable(problem)
    plural = "s" * (len(lost) > 1)
    instead = "; firth gives all of them finite estimates" * problem.family.binary
    warning = (
        f"the data do not determine the coefficient{plural} of {listed(lost, 4)}, which would grow "
        f"without bound: the others are those of the fit without the rows that say so{instead}"
    )
    x = made.found.point.x
    recessions: tuple[Recession, ...] = ()
    if len(problem.blocks) == 1:
        # a prediction is a limit: how far out this one was computed must not show in it
        x = x - limit.kernel @ (limit.kernel.T @ x)
        scaling, whiten = problem.frame.scaling, tuple(map(tuple, problem.basis.tolist()))
        units = tuple(scaling.centre.tolist()), tuple(scaling.scale.tolist())
        recessions = tuple(Recession(*units, whiten, tuple(way.tolist())) for way in limit.ways)
    estimates = replace(
        made.estimates.without(lost),
        not_estimable=dict(lost),
        recessions=recessions,
        limit=np.where(problem.kept, problem.coefficients(x), np.nan),
        lost_directions=limit.kernel.shape[1],
    )
    warnings = [*in_lines(limit.findings(problem.rows.names)), warning]
    return replace(made, estimates=estimates, warnings=warnings)
