"""Estimators for scikit-learn: ``fit(X, y, groups)`` fits over clients what the same estimator fits to the pool."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.errors import InputError
from fedsplit.losses.multinomial import all_classes
from fedsplit.regression.client.dataset import Plan
from fedsplit.regression.client.design import Design, Moments
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.result.model import FitCertificate
from fedsplit.regression.server.federation import FederatedRows
from fedsplit.regression.server.fit import certified
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.task import Task
from fedsplit.rounds.solve import STANDSTILL


class _Federated(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """From rows and groups to coefficients, and from those to the linear predictor."""

    fit_intercept: bool
    tol: float
    max_rounds: int

    def _solve(
        self,
        family: str,
        X: Array,
        y: Array,
        w: Array,
        groups: Any,
        classes: Sequence[str] = (),
        **penalty: Any,
    ) -> tuple[Array, Array]:
        """Intercepts, (k,), and coefficients, (k, p), of k = 1 predictor, or of one for each class but the first."""
        shared: dict[str, Any] = {
            "intercept": self.fit_intercept,
            "tol": self.tol,
            "rounds": self.max_rounds,
        }
        settings = Settings(family=family, **penalty, **shared)
        if not (w > 0).any():
            raise InputError("every sample_weight is zero: there is nothing to fit")
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
        self.clients_, rows = _by_client(settings, X, y, w, groups, names, len(classes))
        intercept = 0 if self.fit_intercept else None
        rows, moments, spread = _independent(rows, intercept, settings.biased is not None)
        pool = Pool(moments, intercept)
        if pool.names and (not FAMILIES[family].has_units or pool.target_varies):
            here = FederatedRows.here(Plan("", family, {}, tuple(classes)), False, rows, moments)
            found = self._rounds(Task(here, moments, settings, intercept, classes))
        else:
            found = self._no_rounds(pool, max(1, len(classes) - 1))
        found = found.reshape(max(1, len(classes) - 1), -1) @ spread.T
        return (found[:, 0], found[:, 1:]) if self.fit_intercept else (np.zeros(len(found)), found)

    def _rounds(self, task: Task) -> Array:
        found = task.run(task.penalty(task.settings.l1))
        self.certificate_, self.n_iter_ = certified(task, found), len(found.trace)
        moves = found.trace.residual[np.isfinite(found.trace.residual)]
        still = moves[-1] <= STANDSTILL * np.linalg.norm(found.state.iterate)
        self.converged_ = found.converged or bool(still)
        if not self.converged_:
            advice = "raise max_rounds or tol, or scale the columns"
            text = f"{type(self).__name__} did not converge in {self.n_iter_} rounds: {advice}"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)
        coefficients: Array = task.back @ found.x
        return coefficients

    def _no_rounds(self, pool: Pool, copies: int) -> Array:
        """Zero, but for the intercept, where no column tells anything or the target is the same in every row."""
        self.certificate_ = FitCertificate(0.0, 0.0, "no column can tell anything of the target")
        self.n_iter_, self.converged_ = 0, True
        found = np.zeros((copies, len(pool.names)))
        found[:, :1] = pool.target if self.fit_intercept else 0.0
        return found

    def _predictor(self, X: object) -> Array:
        check_is_fitted(self)
        eta: Array = (
            validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_.T + self.intercept_
        )
        return eta


class _Regressor(RegressorMixin, _Federated):  # type: ignore[misc]  # scikit-learn has no types
    """A target with one predictor."""

    _family: ClassVar = "gaussian"

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit over clients: ``groups`` says whose row each is, by any labels; None is one client."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        penalty = self._penalty(float(w.sum()))
        intercept, coef = self._solve(self._family, X, y.astype(np.float64), w, groups, **penalty)
        self.intercept_, self.coef_ = float(intercept[0]), coef[0]
        return self

    def predict(self, X: object) -> Array:
        """The expected target of every row."""
        return FAMILIES[self._family].link.mean(self._predictor(X))

    def _penalty(self, weight: float) -> dict[str, Any]:
        """What ``Settings`` has of the penalty, beside a sum over rows of this weight in all."""
        return {}


class FedLinearRegression(_Regressor):
    """Ordinary least squares over clients: min ½ Σ w_i (x_iᵀβ + β₀ - y_i)², as LinearRegression on the pool.

    Where columns depend on each other, the shortest of the minimisers.

    Parameters
    ----------
    fit_intercept : bool
        Whether there is a β₀, which no penalty touches.
    tol : float
        The proved largest |coefficient - pooled coefficient| in standard errors.
    max_rounds : int
        The most rounds, 10 or more. A fit that needs more ends with a ConvergenceWarning.

    Attributes
    ----------
    coef_, intercept_ : (p,) array, float
        β and β₀.
    clients_ : (m,) array
        The labels in ``groups``.
    certificate_ : FitCertificate
        What is proved about the distance to the pooled fit.
    n_iter_ : int
        The rounds.
    converged_ : bool
        Whether they ended because the tolerance is proved, or because nothing moves but rounding.
    """

    def __init__(
        self, *, fit_intercept: bool = True, tol: float = 1e-9, max_rounds: int = 500
    ) -> None:
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds


class FedElasticNet(_Regressor):
    """The elastic net over clients, as ElasticNet on the pool.

    min Σ w_i (x_iᵀβ + β₀ - y_i)² / (2 Σ w_i) + alpha (l1_ratio ‖β‖₁ + ½ (1 - l1_ratio) ‖β‖²); the other parameters,
    and the attributes, are those of ``FedLinearRegression``.
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
        if not 0 <= number("l1_ratio", self.l1_ratio, strict=False) <= 1:
            raise InputError(f"l1_ratio must be between 0 and 1, not {self.l1_ratio!r}")
        size = weight * number("alpha", self.alpha, strict=False)
        return {"l1": size * self.l1_ratio, "ridge": size * (1.0 - self.l1_ratio)}


class FedLasso(_Regressor):
    """The lasso over clients, as Lasso on the pool: min Σ w_i (x_iᵀβ + β₀ - y_i)² / (2 Σ w_i) + alpha ‖β‖₁.

    The other parameters, and the attributes, are those of ``FedLinearRegression``.
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


class FedPoissonRegressor(_Regressor):
    """Poisson regression with a log link over clients, as PoissonRegressor on the pool.

    min Σ w_i (e^{η_i} - y_i η_i) / Σ w_i + ½ alpha ‖β‖², η_i = x_iᵀβ + β₀; the other parameters, and the attributes,
    are those of ``FedLinearRegression``.
    """

    _family: ClassVar = "poisson"

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

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """D², the share of the deviance that is explained."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class FedHuberRegressor(_Regressor):
    """Robust regression over clients: min Σ w_i φ(x_iᵀβ + β₀ - y_i) + ½ ridge ‖β‖², φ of ``fedsplit.Huber``.

    δ is fixed, in the units of y. scikit-learn's HuberRegressor estimates a scale of the residuals beside β, and so
    has another minimiser: what is ``delta`` here is epsilon · scale_ there. The other parameters, and the attributes,
    are those of ``FedLinearRegression``.
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


class FedLogisticRegression(ClassifierMixin, _Federated):  # type: ignore[misc]  # scikit-learn has no types
    """Logistic regression over clients, of two classes or more, as LogisticRegression on the pool.

    min C Σ w_i (log Σ_c e^{η_ic} - η_{i,y_i}) + ½ ‖β‖², η_ic = x_iᵀβ_c + β₀_c; C = inf is no penalty, and then classes
    that a plane separates are refused. Of K > 2 classes each has its β_c, and they sum to zero; of two classes β is
    that of the second, the first one's is zero. A client need not have every class.

    The other parameters, and the attributes, are those of ``FedLinearRegression``, but for coef_, (1, p) or (K, p),
    intercept_, (1,) or (K,), and classes_, the labels in order.
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_rounds: int = 500,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit over clients: ``groups`` says whose row each is, by any labels; None is one client."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_ = np.unique(y[w > 0])
        K = len(self.classes_)
        if K < 2:
            raise InputError(
                f"every row is of one class, {self.classes_.tolist()}: there is nothing to fit"
            )
        b = np.searchsorted(self.classes_, np.where(w > 0, y, self.classes_[0])).astype(np.float64)
        ridge = 0.0 if np.isposinf(self.C) else 1.0 / number("C", self.C)
        family = "logistic" if K == 2 else "multinomial"
        labels = [str(label) for label in self.classes_]
        self.intercept_, self.coef_ = self._solve(family, X, b, w, groups, labels, ridge=ridge)
        if K > 2:
            self.intercept_, self.coef_ = _centred(self.intercept_), _centred(self.coef_)
        return self

    def decision_function(self, X: object) -> Array:
        """η, (n,) of the second of two classes, or (n, K)."""
        eta = self._predictor(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict(self, X: object) -> Array:
        """The most probable class of every row."""
        winners = np.argmax(self._of_all_classes(X), axis=1)
        labels: Array = self.classes_[winners]
        return labels

    def predict_proba(self, X: object) -> Array:
        """The probabilities of the classes, (n, K)."""
        probabilities: Array = softmax(self._of_all_classes(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: object) -> Array:
        """Their logarithms."""
        logs: Array = log_softmax(self._of_all_classes(X), axis=1)
        return logs

    def _of_all_classes(self, X: object) -> Array:
        """η of all the classes, (n, K): of two, the first one's is zero."""
        eta = self._predictor(X)
        return all_classes(eta) if eta.shape[1] == 1 else eta


def _by_client(
    settings: Settings,
    X: Array,
    y: Array,
    w: Array,
    groups: Any,
    names: Sequence[str],
    classes: int,
) -> tuple[Array, list[Design]]:
    """The clients' labels, in the order of their first rows, and the rows of each that have a weight."""
    labels = pd.Series([0] * len(X) if groups is None else list(groups), dtype=object)
    check_consistent_length(X, labels)
    if labels.isna().any():
        raise InputError(f"groups: row {int(np.argmax(labels.isna()))} has no label")
    used = np.flatnonzero(w > 0)
    codes, found = pd.factorize(labels[used])
    family, columns = FAMILIES[settings.family], ["Intercept"] * settings.intercept + list(names)

    def coded(client: int, at: NDArray[np.intp]) -> Design:
        A = np.column_stack([np.ones((len(at), int(settings.intercept))), X[at]])
        return Design(
            str(found[client]), family, columns, A, y[at], w[at], np.zeros(len(at)), classes
        )

    ends = np.cumsum(np.bincount(codes))[:-1]
    rows = np.split(used[np.argsort(codes, kind="stable")], ends)
    return found.to_numpy(), [coded(client, at) for client, at in enumerate(rows)]


def _independent(
    rows: list[Design], intercept: int | None, penalised: bool
) -> tuple[list[Design], list[Moments], Array]:
    """The rows without columns that tell nothing, their moments, and the matrix from their coefficients to all, (p, r).

    Constant columns tell nothing, and, without a penalty, those that others determine. Where the columns are BM of
    those kept, B, but for constants, β = M⁺b is the shortest that predicts what b does.
    """
    moments = [each.moments() for each in rows]
    pool = Pool(moments, intercept)
    mean, p = pool.mean, len(pool.mean)
    idle = {
        i: weights
        for i, weights in pool.dependent().items()
        if not (penalised and weights.any())
    }
    if not idle:
        return rows, moments, np.eye(p)
    kept = [i for i in range(p) if i not in idle]
    M = np.eye(p)[kept]
    for i, weights in idle.items():
        M[:, i] = weights[kept]
    spread: Array = np.linalg.pinv(M)
    if intercept is not None:
        spread[intercept] += mean[kept] - mean @ spread
    rows = [
        replace(each, columns=[each.columns[i] for i in kept], A=each.A[:, kept]) for each in rows
    ]
    return rows, [each.moments() for each in rows], spread


def _centred(values: Array) -> Array:
    """Of every class, with their mean over the classes taken away, from those of all but the first, whose are zero."""
    every = np.concatenate([np.zeros_like(values[:1]), values])
    centred: Array = every - every.mean(axis=0)
    return centred
