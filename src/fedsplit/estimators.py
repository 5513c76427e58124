"""Estimators for scikit-learn.

``fit(X, y, groups)`` gives over clients what scikit-learn's estimator gives on the pooled rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
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
from fedsplit.regression.client.design import Design
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.fit import certified
from fedsplit.regression.options import Settings
from fedsplit.regression.result.model import FitCertificate
from fedsplit.regression.server.federation import FederatedRows
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.task import Task
from fedsplit.rounds.stopping import STANDSTILL


class _Federated(BaseEstimator):  # type: ignore[misc]  # untyped base
    """What all estimators share: the fit over clients, and the linear predictor."""

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
        labels: Sequence[str] = (),
        **penalty: Any,
    ) -> tuple[Array, Array]:
        """Fit, and set the attributes that all estimators have but the coefficients.

        Parameters
        ----------
        family : str
            A key of ``FAMILIES``.
        X, y, w : (n, p), (n,) and (n,) arrays
            Rows, targets and weights.
        groups : sequence or None
            The client of each row.
        labels : sequence of str
            The classes of a classifier.
        **penalty
            Options of ``Settings``.

        Returns
        -------
        intercepts, coefficients : (k,) and (k, p) arrays
            Of k = 1 predictor, or of one for each class but the first.
        """
        settings = Settings(
            family=family,
            intercept=self.fit_intercept,
            tol=self.tol,
            rounds=self.max_rounds,
            **penalty,
        )
        if not (w > 0).any():
            raise InputError("every sample_weight is zero: there is nothing to fit")
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
        self.clients_, designs = _by_client(settings, X, y, w, groups, names, len(labels))
        intercept = None
        if self.fit_intercept:
            intercept = 0
        designs, spread = _independent(designs, intercept, settings.biased is not None)
        moments = [design.moments() for design in designs]
        pool = Pool(moments, intercept)
        predictors = max(1, len(labels) - 1)
        coef: Array = np.zeros((predictors, len(pool.names)))
        if pool.names and (not FAMILIES[family].has_units or pool.target_varies):
            plan = Plan("", family, {}, tuple(labels))
            rows = FederatedRows.here(plan, False, designs, moments)
            task = Task(rows, moments, settings, intercept, labels)
            coef = self._run(task).reshape(coef.shape)
        else:
            self.certificate_ = FitCertificate(0.0, 0.0, "no column can explain the target")
            self.n_iter_ = 0
            self.converged_ = True
            if self.fit_intercept:
                coef[:, 0] = pool.target
        every = coef @ spread.T
        if self.fit_intercept:
            return every[:, 0], every[:, 1:]
        return np.zeros(predictors), every

    def _run(self, task: Task) -> Array:
        """The coefficients after the rounds, in the units of X."""
        found = task.run(task.penalty(task.settings.l1))
        self.certificate_ = certified(task, found)
        self.n_iter_ = len(found.trace)
        moves = found.trace.residual[np.isfinite(found.trace.residual)]
        still = moves[-1] <= STANDSTILL * np.linalg.norm(found.state.iterate)
        self.converged_ = found.converged or bool(still)
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} did not converge in {self.n_iter_} rounds: raise "
                "max_rounds or tol, or scale the columns",
                ConvergenceWarning,
                stacklevel=4,
            )
        return task.coefficients(found.x)

    def _predictor(self, X: object) -> Array:
        """The linear predictor, (n,) or (n, K)."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        eta: Array = rows @ self.coef_.T + self.intercept_
        return eta


class _Regressor(RegressorMixin, _Federated):  # type: ignore[misc]  # untyped base
    """What the regressors share."""

    _family: ClassVar = "gaussian"

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit over clients.

        Parameters
        ----------
        X : (n, p) array or DataFrame
        y : (n,) array
        groups : sequence, optional
            The client of each row, by any label; without it there is one client.
        sample_weight : (n,) array, optional
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        penalty = self._penalty(float(w.sum()))
        intercept, coef = self._solve(self._family, X, y.astype(np.float64), w, groups, **penalty)
        self.intercept_ = float(intercept[0])
        self.coef_ = coef[0]
        return self

    def predict(self, X: object) -> Array:
        """The expected target of every row, (n,)."""
        return FAMILIES[self._family].link.mean(self._predictor(X))

    def _penalty(self, weight: float) -> dict[str, Any]:
        """The penalty as options of ``Settings``, on a sum over rows of this total weight."""
        return {}


class FedLinearRegression(_Regressor):
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


class FedElasticNet(_Regressor):
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
        if not 0 <= number("l1_ratio", self.l1_ratio, strict=False) <= 1:
            raise InputError(f"l1_ratio must be between 0 and 1, not {self.l1_ratio!r}")
        size = weight * number("alpha", self.alpha, strict=False)
        return {"l1": size * self.l1_ratio, "ridge": size * (1.0 - self.l1_ratio)}


class FedLasso(_Regressor):
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


class FedPoissonRegressor(_Regressor):
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


class FedLogisticRegression(ClassifierMixin, _Federated):  # type: ignore[misc]  # untyped base
    """Logistic regression over clients, of two classes or more, as LogisticRegression on the pool.

    min C Σ w_i (log Σ_c e^{η_ic} - η_{i,y_i}) + ½ ‖β‖² where η_ic = x_iᵀβ_c + β₀_c

    Of K > 2 classes each has its β_c, and they sum to zero. Of two classes the first has β = 0. A
    client need not have rows of every class.

    Parameters
    ----------
    C : float
        Inverse weight of the penalty. ``inf`` is no penalty; separable classes are then refused.
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``.

    Attributes
    ----------
    coef_ : (1, p) or (K, p) array
    intercept_ : (1,) or (K,) array
    classes_ : (K,) array
        The classes, sorted.
    clients_, certificate_, n_iter_, converged_
        As in ``FedLinearRegression``.
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
        """Fit over clients.

        Parameters
        ----------
        X : (n, p) array or DataFrame
        y : (n,) array
            The class of each row.
        groups : sequence, optional
            The client of each row, by any label; without it there is one client.
        sample_weight : (n,) array, optional
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        # Rows without weight bring no class; their own class may not be among those that count.
        self.classes_ = np.unique(y[w > 0])
        K = len(self.classes_)
        if K < 2:
            raise InputError(
                f"every row is of one class, {self.classes_.tolist()}: there is nothing to fit"
            )
        codes = np.searchsorted(self.classes_, np.where(w > 0, y, self.classes_[0]))
        ridge = 0.0
        if not np.isposinf(self.C):
            ridge = 1.0 / number("C", self.C)
        family = "logistic" if K == 2 else "multinomial"
        labels = [str(label) for label in self.classes_]
        intercept, coef = self._solve(
            family, X, codes.astype(np.float64), w, groups, labels, ridge=ridge
        )
        if K > 2:
            intercept = _centred(intercept)
            coef = _centred(coef)
        self.intercept_ = intercept
        self.coef_ = coef
        return self

    def decision_function(self, X: object) -> Array:
        """η: (n,) of the second of two classes, or (n, K)."""
        eta = self._predictor(X)
        if eta.shape[1] == 1:
            return eta[:, 0]
        return eta

    def predict(self, X: object) -> Array:
        """The most probable class of every row, (n,)."""
        winners = np.argmax(self._by_class(X), axis=1)
        labels: Array = self.classes_[winners]
        return labels

    def predict_proba(self, X: object) -> Array:
        """The probability of every class, (n, K)."""
        probabilities: Array = softmax(self._by_class(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: object) -> Array:
        """The logarithm of the probability of every class, (n, K)."""
        logs: Array = log_softmax(self._by_class(X), axis=1)
        return logs

    def _by_class(self, X: object) -> Array:
        """η of every class, (n, K): that of the first of two is zero."""
        eta = self._predictor(X)
        if eta.shape[1] == 1:
            return all_classes(eta)
        return eta


def _by_client(
    settings: Settings,
    X: Array,
    y: Array,
    w: Array,
    groups: Any,
    names: Sequence[str],
    classes: int,
) -> tuple[Array, list[Design]]:
    """The labels of the clients, in the order of their first rows, and the design of each.

    Rows without weight are left out.
    """
    if groups is None:
        groups = [0] * len(X)
    labels = pd.Series(list(groups), dtype=object)
    check_consistent_length(X, labels)
    if labels.isna().any():
        raise InputError(f"groups: row {int(np.argmax(labels.isna()))} has no label")
    used = np.flatnonzero(w > 0)
    codes, clients = pd.factorize(labels[used])
    ends = np.cumsum(np.bincount(codes))[:-1]
    shares = np.split(used[np.argsort(codes, kind="stable")], ends)
    constant = int(settings.intercept)
    designs = []
    for client, at in zip(clients, shares, strict=True):
        design = Design(
            name=str(client),
            family=FAMILIES[settings.family],
            columns=["Intercept"] * constant + list(names),
            A=np.column_stack([np.ones((len(at), constant)), X[at]]),
            b=y[at],
            w=w[at],
            o=np.zeros(len(at)),
            classes=classes,
        )
        designs.append(design)
    return clients.to_numpy(), designs


def _independent(
    designs: list[Design], intercept: int | None, penalised: bool
) -> tuple[list[Design], Array]:
    """Leave out columns that explain nothing: constants and, without a penalty, combinations.

    Returns
    -------
    designs : list of Design
        With r of the p columns.
    spread : (p, r) array
        Takes coefficients of these columns to those of all. If the columns are B M, apart from
        constants, where B are those kept, β = M⁺b is the shortest that predicts what b does.
    """
    pool = Pool([design.moments() for design in designs], intercept)
    p = len(pool.names)
    left_out = {
        i: weights for i, weights in pool.dependent().items() if not (penalised and weights.any())
    }
    if not left_out:
        return designs, np.eye(p)
    kept = [i for i in range(p) if i not in left_out]
    M = np.eye(p)[kept]
    for i, weights in left_out.items():
        M[:, i] = weights[kept]
    spread: Array = np.linalg.pinv(M)
    if intercept is not None:
        # The constants that were left out, and the means of combinations, go into the intercept.
        spread[intercept] += pool.mean[kept] - pool.mean @ spread
    columns = [pool.names[i] for i in kept]
    return [replace(each, columns=columns, A=each.A[:, kept]) for each in designs], spread


def _centred(values: Array) -> Array:
    """Values of all classes with mean zero, from those of all but the first, whose are zero."""
    every = np.concatenate([np.zeros_like(values[:1]), values])
    centred: Array = every - every.mean(axis=0)
    return centred
