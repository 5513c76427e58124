"""Regressions over clients: least squares and its penalties, counts, positive amounts, Huber's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from fedsplit.arrays import Array
from fedsplit.checks import number, share
from fedsplit.errors import InputError
from fedsplit.estimators.federated import Federated
from fedsplit.regression.families import FAMILIES


class Regressor(RegressorMixin, Federated):  # type: ignore[misc]  # untyped base
    """A regression on one linear predictor."""

    _family: ClassVar = "gaussian"

    def _fit(self, X: Any, y: Array, w: Array, groups: Any) -> None:
        family = FAMILIES[self._family]
        wrong = np.flatnonzero(family.invalid(y) & (w > 0))
        if wrong.size:
            raise InputError(
                f"y must be {family.target} for {type(self).__name__}: "
                f"row {wrong[0]} has {y[wrong[0]]:g}"
            )
        penalty = self._penalty(float(w.sum()))
        intercept, coef = self._solve(self._family, X, y.astype(np.float64), w, groups, **penalty)
        self.intercept_ = float(intercept[0])
        self.coef_ = coef[0]

    def predict(self, X: object) -> Array:
        """The expected target of every row, (n,)."""
        return FAMILIES[self._family].link.mean(self._predictor(X))

    def _penalty(self, weight: float) -> dict[str, Any]:
        """The penalty as options of ``Settings``, on a sum over rows of this total weight."""
        return {}


@dataclass(eq=False, repr=False)
class PenalisedRegressor(Regressor):
    """A regression with a penalty of weight ``alpha`` on the mean over the rows."""

    _l1: ClassVar[float] = 0.0  # the share of ‖β‖₁ in the penalty

    alpha: float = 1.0

    def _penalty(self, weight: float) -> dict[str, Any]:
        size = weight * number("alpha", self.alpha, strict=False)
        ratio = share("l1_ratio", getattr(self, "l1_ratio", self._l1), zero=True)
        return {"l1": size * ratio, "ridge": size * (1.0 - ratio)}


@dataclass(eq=False, repr=False)
class PositiveRegressor(PenalisedRegressor):
    """A regression with a log link, whose score is the share of the deviance explained."""

    _remedy: ClassVar[str] = "raise alpha"
    _power: ClassVar[int]  # of the mean, in the variance

    alpha: float = field(default=1.0, kw_only=True)

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """D², the share of the deviance that is explained."""
        mean = self.predict(X)
        return float(d2_tweedie_score(y, mean, sample_weight=sample_weight, power=self._power))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


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


@dataclass(eq=False, repr=False)
class FedRidge(PenalisedRegressor):
    """Ridge regression over clients, as Ridge on the pooled rows.

    min Σ w_i (x_iᵀβ + β₀ - y_i)² + alpha ‖β‖²

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    def _penalty(self, weight: float) -> dict[str, Any]:
        return super()._penalty(1.0)  # of the sum over the rows


@dataclass(eq=False, repr=False)
class FedElasticNet(PenalisedRegressor):
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

    l1_ratio: float = field(default=0.5, kw_only=True)


@dataclass(eq=False, repr=False)
class FedLasso(PenalisedRegressor):
    """The lasso over clients, as Lasso on the pooled rows.

    min Σ w_i (x_iᵀβ + β₀ - y_i)² / (2 Σ w_i) + alpha ‖β‖₁

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``, which has the same attributes.
    """

    _l1: ClassVar[float] = 1.0


@dataclass(eq=False, repr=False, kw_only=True)
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


@dataclass(eq=False, repr=False, kw_only=True)
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


@dataclass(eq=False, repr=False)
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

    delta: float = 1.345
    ridge: float = field(default=0.0, kw_only=True)

    def _penalty(self, weight: float) -> dict[str, Any]:
        return {"delta": self.delta, "ridge": self.ridge}
