"""Regressions with a log link over clients: counts and positive amounts."""

from __future__ import annotations

from typing import Any, ClassVar

from fedsplit.checks import number
from fedsplit.estimators.regressor import PositiveRegressor


class FedPoissonRegressor(PositiveRegressor):
    """Poisson regression with a log link over clients, as PoissonRegressor on the pooled rows.

    min Σ w_i (e^{η_i} - y_i η_i) / Σ w_i + ½ alpha ‖β‖² where η_i = x_iᵀβ + β₀

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    _family: ClassVar = "poisson"
    _power: ClassVar[int] = 1

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_rounds: int = 500,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds

    def _penalty(self, weight: float) -> dict[str, Any]:
        return {"ridge": weight * number("alpha", self.alpha, strict=False)}


class FedGammaRegressor(PositiveRegressor):
    """Gamma regression with a log link over clients, as GammaRegressor on the pooled rows.

    min Σ w_i (y_i e^{-η_i} + η_i) / Σ w_i + ½ alpha ‖β‖² where η_i = x_iᵀβ + β₀

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    _family: ClassVar = "gamma"
    _power: ClassVar[int] = 2

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_rounds: int = 500,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds

    def _penalty(self, weight: float) -> dict[str, Any]:
        return {"ridge": weight * number("alpha", self.alpha, strict=False)}
