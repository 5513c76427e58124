"""Robust regression over clients."""

from __future__ import annotations

from typing import Any, ClassVar

from fedsplit.estimators.regressor import Regressor


class FedHuberRegressor(Regressor):
    """Robust regression over clients, with the loss φ of ``fedsplit.Huber``.

    min Σ w_i φ(x_iᵀβ + β₀ - y_i) + ½ ridge ‖β‖²

    scikit-learn's HuberRegressor estimates a scale of the residuals together with β, and so has
    another minimiser: ``delta`` here is epsilon · scale_ there.

    Parameters
    ----------
    delta : float
        Residual, in units of y, at which φ turns from quadratic to linear.
    ridge : float
        Weight of the penalty.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    _family: ClassVar = "huber"

    def __init__(
        self,
        delta: float = 1.345,
        *,
        ridge: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_rounds: int = 500,
    ) -> None:
        self.delta = delta
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds

    def _penalty(self, weight: float) -> dict[str, Any]:
        return {"delta": self.delta, "ridge": self.ridge}
