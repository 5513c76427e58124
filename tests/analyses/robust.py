"""Standard errors that hold under heteroscedasticity: HC0 to HC3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.dialogue import Dialogue
from fedsplit.federation.dialogues import DialogueAnalysis
from fedsplit.losses.linear import LinearLoss
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.statistics import FitRows
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import agree
from fedsplit.regression.server.federation import sums_of
from fedsplit.regression.server.glm import glm
from fedsplit.statistic import RowSum, Shape, Statistic, StatisticPart, Sums

POWERS = {"HC0": 0.0, "HC1": 0.0, "HC2": 0.5, "HC3": 1.0}
"""δ of each correction; HC1 has a factor n/(n - d) as well, which no client knows."""


@dataclass(frozen=True)
class SquaredScores(Statistic):
    """Σ s_i² a_i a_iᵀ with s_i = w_i φ'(η_i)/(1 - h_i)^δ: ``meat``, (p, p).

    h_i = w_i φ''(η_i) a_iᵀH⁻¹a_i is the leverage of a row in the fit.

    Attributes
    ----------
    x : (p,) array
        Coefficients in the units of the files.
    inverse : (p, p) array
        H⁻¹ over all clients.
    power : float
        δ.
    """

    x: Array
    inverse: Array
    power: float

    matrices = 1

    def shapes(self, plan: Plan) -> Mapping[str, Shape]:
        return {"meat": Sums(plan.width, None)}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design = rows.design
        slope, curvature = derivatives(rows, self.x)
        h = curvature * np.einsum("ij,jk,ik->i", design.A, self.inverse, design.A)
        # a row of leverage 1 fits itself, and HC2 and HC3 do not exist
        scores = slope / (1.0 - h) ** self.power
        return {"meat": RowSum(design.A, weights=scores**2)}


def derivatives(rows: FitRows, x: Array) -> tuple[Array, Array]:
    """w φ'(η) and w φ''(η) of every row, (n,), at coefficients in the units of the files."""
    design = rows.design
    loss = design.family.loss()
    assert isinstance(loss, LinearLoss)
    b, eta = design.family.labels(design.b), design.predictor(x)
    return design.w * loss.slope(eta, b), design.w * loss.curvature(eta, b)


def robust(formula: str, family: str = "gaussian", correction: str = "HC1", **options: Any) -> Any:
    """Fit a regression with the sandwich H⁻¹(Σ s_i² a_i a_iᵀ)H⁻¹ as its covariance."""

    def dialogue(settings: Settings) -> Dialogue[pd.DataFrame]:
        agreement = yield from agree(formula, replace(settings, family=family, **options))
        report = yield from glm(agreement)
        fit, dispersion = report.estimates, report.fit.dispersion
        assert fit.covariance is not None
        assert dispersion is not None
        inverse: Array = fit.covariance / dispersion
        statistic = SquaredScores(fit.values, inverse, POWERS[correction])
        meat = (yield from sums_of(agreement.rows, {"": statistic}))[""]["meat"]
        if correction == "HC1":
            n = sum(each.n for each in agreement.moments)
            meat = meat * n / (n - len(fit.values))
        errors = np.sqrt(np.diag(inverse @ meat @ inverse))
        return pd.DataFrame({"coef": fit.values, "se": errors}, index=list(fit.names))

    return dialogue


@dataclass(frozen=True, kw_only=True)
class Robust(DialogueAnalysis):
    """Robust errors as a study."""

    name: ClassVar[str] = "robust"

    formula: str
    family: str = "gaussian"
    correction: str = "HC1"

    @property
    def models(self) -> Mapping[str, str]:
        return {self.formula: self.family}

    def dialogue(self) -> Any:
        return robust(self.formula, self.family, self.correction)
