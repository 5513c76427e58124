"""Least squares over clients: plain, and with the penalties of scikit-learn's estimators."""

from __future__ import annotations

from typing import Any

from fedsplit.checks import number
from fedsplit.errors import InputError
from fedsplit.estimators.regressor import Regressor


class FedLinearRegression(Regressor):
    """Ordinary least squares over clients, as LinearRegression on the pooled rows.

    min ½ Σ w_i (x_iᵀβ + β₀ - y_i)²; where columns are linearly dependent, the shortest minimiser.

    Parameters
    ----------
    fit_intercept : bool
        Include β₀, which is not penalised.
    tol : float
        Proved upper bound, in standard errors, on the distance of every coefficient from the
        pooled fit.
    max_rounds : int
        Maximum number of rounds, at least 10. A fit that needs more ends with a
        ConvergenceWarning.

    Attributes
    ----------
    coef_, intercept_ : (p,) array, float
        β and β₀.
    clients_ : (m,) array
        The labels in ``groups``.
    certificate_ : FitCertificate
        What is proved about the distance to the pooled fit.
    n_iter_ : int
        Number of rounds.
    converged_ : bool
        Whether the rounds ended because the tolerance is proved, or because nothing moves but
        rounding.
    """

    def __init__(
        self, *, fit_intercept: bool = True, tol: float = 1e-9, max_rounds: int = 500
    ) -> None:
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds


class FedRidge(Regressor):
    """Ridge regression over clients, as Ridge on the pooled rows.

    min Σ w_i (x_iᵀβ + β₀ - y_i)² + alpha ‖β‖²

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_rounds: int = 500,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds

    def _penalty(self, weight: float) -> dict[str, Any]:
        return {"ridge": number("alpha", self.alpha, strict=False)}


class FedElasticNet(Regressor):
    """The elastic net over clients, as ElasticNet on the pooled rows.

    min Σ w_i (x_iᵀβ + β₀ - y_i)² / (2 Σ w_i) + alpha (l1_ratio ‖β‖₁ + ½ (1 - l1_ratio) ‖β‖²)

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    l1_ratio : float
        Share of ‖β‖₁ in the penalty, between 0 and 1.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_rounds: int = 500,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds

    def _penalty(self, weight: float) -> dict[str, Any]:
        ratio = check_ratio(self.l1_ratio)
        size = weight * number("alpha", self.alpha, strict=False)
        return {"l1": size * ratio, "ridge": size * (1.0 - ratio)}


class FedLasso(Regressor):
    """The lasso over clients, as Lasso on the pooled rows.

    min Σ w_i (x_iᵀβ + β₀ - y_i)² / (2 Σ w_i) + alpha ‖β‖₁

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_rounds: int = 500,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds

    def _penalty(self, weight: float) -> dict[str, Any]:
        return {"l1": weight * number("alpha", self.alpha, strict=False)}


def check_ratio(l1_ratio: object) -> float:
    """The share of ‖β‖₁ in a penalty as a float; InputError unless it is between 0 and 1."""
    ratio = number("l1_ratio", l1_ratio, strict=False)
    if ratio > 1:
        raise InputError(f"l1_ratio must be between 0 and 1, not {l1_ratio!r}")
    return ratio
