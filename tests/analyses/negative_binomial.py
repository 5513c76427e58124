"""Counts whose variance is μ + μ²/θ: negative binomial regression, θ given or estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import digamma, gammaln, polygamma, xlogy

from fedsplit.arrays import Array, Mask
from fedsplit.checks import number
from fedsplit.dialogue import Dialogue
from fedsplit.federation.dialogues import DialogueAnalysis
from fedsplit.losses.linear import LinearLoss
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.statistics import FitRows
from fedsplit.regression.families.family import LOG, Family
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import agree
from fedsplit.regression.server.federation import sums_of
from fedsplit.regression.server.glm import glm
from fedsplit.statistic import RowSum, Shape, Statistic, StatisticPart, Sums


@dataclass(frozen=True)
class NegativeBinomial(LinearLoss):
    """φ(η, b) = (b + θ) log(θ + e^η) - bη, convex in η."""

    theta: float

    # the third derivative over the second is 1 - 2μ/(θ + μ), between -1 and 1
    concordance = 1.0

    def value(self, eta: Array, b: Array) -> Array:
        loss: Array = (b + self.theta) * np.logaddexp(np.log(self.theta), eta) - b * eta
        return loss

    def slope(self, eta: Array, b: Array) -> Array:
        return self.theta * (np.exp(eta) - b) / (self.theta + np.exp(eta))

    def curvature(self, eta: Array, b: Array) -> Array:
        mu = np.exp(eta)
        return (b + self.theta) * self.theta * mu / (self.theta + mu) ** 2

    def floor(self, b: Array) -> Array:
        least: Array = (b + self.theta) * np.log(b + self.theta) - xlogy(b, b)
        return least


@dataclass(frozen=True)
class NegativeBinomialFamily(Family):
    """Counts b of mean μ = e^η and variance μ + μ²/θ."""

    theta: float = 1.0

    name = "negative binomial"
    link = LOG
    target = "a count of at least zero"

    def __post_init__(self) -> None:
        number("theta", self.theta)

    def invalid(self, b: Array) -> Mask:
        return b < 0

    def loss(self, classes: int = 0, symmetric: bool = False) -> NegativeBinomial:
        return NegativeBinomial(self.theta)

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        theta = self.theta
        constant = gammaln(b + theta) - gammaln(theta) - gammaln(b + 1) + theta * np.log(theta)
        logs: Array = w * (constant - NegativeBinomial(theta).value(eta, b))
        return logs

    def variance(self, mu: Array) -> Array:
        return mu + mu**2 / self.theta

    def pearson(self, b: Array, mu: Array) -> Array:
        return np.square(b - mu) / np.where(b == mu, 1.0, self.variance(mu))

    def margin(self, b: Array, t: Array) -> Array:
        return np.where(b > 0, -np.abs(t), -t)


@dataclass(frozen=True)
class ThetaScore(Statistic):
    """The first two derivatives of the log-likelihood in θ at μ = e^{Ax}: ``derivatives``.

    Attributes
    ----------
    x : (p,) array
    theta : float
    """

    x: Array
    theta: float

    def shapes(self, plan: Plan) -> Mapping[str, Shape]:
        return {"derivatives": Sums(1, 2)}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design, theta = rows.design, self.theta
        b, mu = design.b, np.exp(design.predictor(self.x))
        share = (b + theta) / (mu + theta)
        first = digamma(b + theta) - digamma(theta) + np.log(theta / (mu + theta)) + 1 - share
        second = polygamma(1, b + theta) - polygamma(1, theta) + 1 / theta
        second = second - (2 - share) / (mu + theta)
        return {"derivatives": RowSum(design.w[:, None], np.column_stack([first, second]))}


def negative_binomial(formula: str, theta: float | None = None) -> Any:
    """Fit counts by ``formula``, and θ by the likelihood where it is None."""

    def dialogue(settings: Settings) -> Dialogue[pd.DataFrame]:
        found = 1.0 if theta is None else theta
        reached: Mapping[str, float] = {}
        while True:
            family = NegativeBinomialFamily(found)
            agreement = yield from agree(formula, replace(settings, family=family))
            report = yield from glm(agreement, reached)
            fit = report.estimates
            if theta is not None:
                break
            before = found
            while True:  # Newton's method in log θ, at the means of the fit
                score = ThetaScore(fit.values, found)
                sums = yield from sums_of(agreement.rows, {"": score})
                first, second = sums[""]["derivatives"][0].tolist()
                curvature = -(found**2 * second + found * first)
                move = found * first / curvature if curvature > 0 else math.copysign(1.0, first)
                found *= math.exp(max(-1.0, min(1.0, move)))
                if abs(move) < 1e-7:
                    break
            reached = dict(zip(fit.names, fit.values.tolist(), strict=True))
            if abs(math.log(found / before)) < 1e-7:
                break
        table = pd.DataFrame({"coef": fit.values, "se": fit.errors}, index=list(fit.names))
        table.attrs = {"theta": found, "llf": report.fit.llf}
        return table

    return dialogue


@dataclass(frozen=True, kw_only=True)
class NegativeBinomialAnalysis(DialogueAnalysis):
    """Counts of a variance above their mean as a study."""

    name: ClassVar[str] = "negative binomial"

    formula: str
    theta: float | None = None

    @property
    def models(self) -> Mapping[str, str]:
        return {self.formula: NegativeBinomialFamily.name}

    def dialogue(self) -> Any:
        return negative_binomial(self.formula, self.theta)
