"""A treatment effect by inverse probability weighting: two fits, the weights never leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.formula.formula import Formula
from fedsplit.dialogue import Dialogue
from fedsplit.federation.dialogues import DialogueAnalysis
from fedsplit.regression.client.plan import DerivedColumn, Plan
from fedsplit.regression.client.statistics import TableRows
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import agree
from fedsplit.regression.server.federation import sums_of
from fedsplit.regression.server.glm import FitReport, glm
from fedsplit.statistic import RowSum, Shape, Statistic, StatisticPart, Sums

PROPENSITY = "propensity"
"""The derived column of predicted treatment probabilities e, as weights name it."""


@dataclass(frozen=True)
class StackedScores(Statistic):
    """What errors need of two fits, the first of which makes the weights of the second.

    With the scores s₁ = (e - t)a₁ of the treatment and s₂ = w(e)(η₂ - y)a₂ of the outcome:
    ``meat`` has the products of (s₁, s₂), and ``sensitivity`` is
    ∂s₂/∂x₁ = (η₂ - y) a₂ (∂w/∂η₁) a₁ᵀ, where ∂w/∂η₁ = (1 - t)e/(1 - e) - t(1 - e)/e.

    Attributes
    ----------
    x : (d₂,) array
        Coefficients of the outcome.
    """

    x: Array

    of_table = True

    def shapes(self, plan: Plan) -> Mapping[str, Shape]:
        d1, d2 = plan.derived[PROPENSITY].plan.width, plan.width
        return {"meat": Sums(d1 + d2, None), "sensitivity": Sums(d2, d1)}

    def sums(self, rows: TableRows) -> Mapping[str, StatisticPart]:
        plan, frame = rows.plan, rows.frame.frame
        treatment = plan.derived[PROPENSITY].plan
        first, _ = treatment.design(frame, rows.name)
        second, o = plan.design(frame, rows.name)
        t, e = treatment.parsed.response(frame), plan.numbers(PROPENSITY, frame)
        slope = second @ self.x + o - plan.parsed.response(frame, plan.schema)
        w = plan.numbers(str(plan.weights), frame)
        both = np.hstack([(e - t)[:, None] * first, (w * slope)[:, None] * second])
        # ∂e/∂η₁ = e(1 - e) cancels one factor of the squares in the denominators
        change = (1 - t) * e / (1 - e) - t * (1 - e) / e
        return {
            "meat": RowSum(both),
            "sensitivity": RowSum(second, first, weights=slope * change),
        }


def inverse_propensity(treatment: str) -> str:
    """The weights t/e + (1 - t)/(1 - e) of a model of the treatment, as an expression."""
    t = Formula(treatment).target
    return f"{t}/{PROPENSITY} + (1 - {t})/(1 - {PROPENSITY})"


def weighted(treatment: str, outcome: str) -> Any:
    """Fit an outcome by least squares with weights t/e + (1 - t)/(1 - e).

    The propensity e of the treatment t is a plan and coefficients, from which every client computes
    its own weights. Standard errors are those of both fits stacked, as the weights are estimated.
    """

    def dialogue(settings: Settings) -> Dialogue[pd.DataFrame]:
        agreement = yield from agree(treatment, replace(settings, family="logistic"))
        first = yield from glm(agreement)
        t = Formula(treatment).target
        # an expression for the clients to evaluate: neither probabilities nor weights are asked for
        of_outcome = replace(
            settings,
            weights=inverse_propensity(treatment),
            columns=tuple(agreement.plan.columns),
            types={**agreement.plan.types, **settings.declared},
            # which has classes in the first model alone
            levels={name: own for name, own in settings.declared_levels.items() if name != t},
        )
        column = DerivedColumn.of(agreement.plan, first.estimates.values)
        agreement = yield from agree(outcome, of_outcome, derived={PROPENSITY: column})
        second = yield from glm(agreement)
        fit = second.estimates
        sums = (yield from sums_of(agreement.rows, {"": StackedScores(fit.values)}))[""]
        # the Jacobian of both scores: those of the outcome depend on both
        d1 = len(first.estimates.values)
        H1, H2 = _information(first), _information(second)
        J = np.block([[H1, np.zeros((d1, len(H2)))], [sums["sensitivity"], H2]])
        inverse = np.linalg.inv(J)
        errors = np.sqrt(np.diag(inverse @ sums["meat"] @ inverse.T))[d1:]
        return pd.DataFrame({"coef": fit.values, "se": errors}, index=list(fit.names))

    return dialogue


def _information(report: FitReport) -> Array:
    covariance, dispersion = report.estimates.covariance, report.fit.dispersion
    assert covariance is not None
    assert dispersion is not None
    return np.asarray(np.linalg.inv(covariance / dispersion))


@dataclass(frozen=True, kw_only=True)
class Weighted(DialogueAnalysis):
    """A treatment effect as a study."""

    name: ClassVar[str] = "weighted"

    treatment: str
    outcome: str

    @property
    def models(self) -> Mapping[str, str]:
        return {self.treatment: "logistic", self.outcome: "gaussian"}

    @property
    def extra(self) -> Sequence[str]:
        return [inverse_propensity(self.treatment)]

    def dialogue(self) -> Any:
        return weighted(self.treatment, self.outcome)
