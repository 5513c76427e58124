"""Logistic regression over clients, of two classes or more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from fedsplit.arrays import Array
from fedsplit.checks import number, one_of, share
from fedsplit.errors import InputError, listed
from fedsplit.estimators.federated import Federated
from fedsplit.losses.multinomial import all_classes
from fedsplit.penalties.class_elastic_net import ClassElasticNet
from fedsplit.penalties.penalty import Penalty


@dataclass(eq=False, repr=False)
class FedLogisticRegression(ClassifierMixin, Federated):  # type: ignore[misc]  # untyped base
    """Logistic regression over clients, of two classes or more, as LogisticRegression on the pool.

    min C Σ w_i (log Σ_c e^{η_ic} - η_{i,y_i}) + l1_ratio ‖β‖₁ + ½ (1 - l1_ratio) ‖β‖²
    where η_ic = x_iᵀβ_c + β₀_c

    Of K > 2 classes each has its β_c; with l1_ratio = 0 they sum to zero. Of two classes the first
    has β = 0. A client need not have rows of every class.

    Parameters
    ----------
    penalty : str or None
        "elasticnet", which ``l1_ratio`` describes, "l1" and "l2", which are its ends, or None.
    C : float
        Inverse weight of the penalty. ``inf`` is no penalty; separable classes are then refused.
    l1_ratio : float
        Share of ‖β‖₁ in the penalty, between 0 and 1.
    class_weight : dict or "balanced", optional
        The weight of the rows of each class, beside their ``sample_weight``: 1 for a class that the
        dict has not. "balanced" is Σw / (K Σ_{class} w) over the rows of all clients.
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

    _remedy: ClassVar[str] = "lower C"

    penalty: str | None = "elasticnet"
    _: KW_ONLY
    C: float = 1.0
    l1_ratio: float = 0.0
    class_weight: Mapping[Any, float] | str | None = None

    def _fit(self, X: Any, y: Array, w: Array, groups: Any) -> None:
        check_classification_targets(y)
        # Rows without weight bring no class; their own class may not be among those that count.
        self.classes_ = np.unique(y[w > 0])
        K = len(self.classes_)
        if K < 2:
            raise InputError(
                f"every row is of one class, {self.classes_.tolist()}: there is nothing to fit"
            )
        codes = np.searchsorted(self.classes_, np.where(w > 0, y, self.classes_[0]))
        totals: Array = np.bincount(codes, w).astype(np.float64, copy=False)
        w = w * self._class_weights(totals)[codes]
        l1, ridge = self._strengths()
        if l1 and K > 2:
            ridge = 0.0  # it is part of the ClassElasticNet
        family = "logistic" if K == 2 else "multinomial"
        self.intercept_, self.coef_ = self._solve(
            family, X, codes.astype(np.float64), w, groups, K, l1=l1, ridge=ridge
        )
        if K > 2:
            self._treat_classes_alike()

    def decision_function(self, X: object) -> Array:
        """η: (n,) of the second of two classes, or (n, K)."""
        eta = self._predictor(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

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
        return all_classes(eta) if eta.shape[1] == 1 else eta

    def _strengths(self) -> tuple[float, float]:
        """The weights of ‖β‖₁ and of ½‖β‖², beside the sum over the rows."""
        ratio = share("l1_ratio", self.l1_ratio, zero=True)
        inverse = 0.0
        strength = self.C
        if strength != math.inf:
            inverse = 1.0 / number("C", strength)
        if self.penalty is None:
            return 0.0, 0.0
        # of ‖β‖₁ in the penalties that have no l1_ratio
        shares = {"l1": 1.0, "l2": 0.0}
        one_of("penalty", self.penalty, ("elasticnet", *shares))
        l1 = shares.get(self.penalty, ratio)
        if ratio not in (0.0, l1):
            raise InputError(
                f"l1_ratio={self.l1_ratio!r} goes with penalty='elasticnet', not {self.penalty!r}"
            )
        return inverse * l1, inverse * (1.0 - l1)

    def _class_weights(self, totals: Array) -> Array:
        """The weight of each class, (K,), where its rows at all clients weigh ``totals``."""
        given = self.class_weight
        if given is None:
            return np.ones(len(totals))
        if isinstance(given, str):
            one_of("class_weight", given, ("balanced",))
            balanced: Array = totals.sum() / (len(totals) * totals)
            return balanced
        if not isinstance(given, Mapping):
            raise InputError(
                f"class_weight must be 'balanced' or a dict of class to weight, not {given!r}"
            )
        classes = self.classes_.tolist()
        unknown = [label for label in given if label not in classes]
        if unknown:
            raise InputError(
                f"class_weight: no row has the class {listed(map(repr, unknown))}; "
                f"there are {listed(map(repr, classes))}"
            )
        return np.array([number(f"class_weight[{c!r}]", given.get(c, 1.0)) for c in classes])

    def _net(self, l1: float, first: Array, second: Array) -> Penalty | None:
        K = len(self.classes_)
        if not l1 or K == 2:
            return super()._net(l1, first, second)
        _, ridge = self._strengths()
        return ClassElasticNet(l1 * first, ridge * second, K)

    def _treat_classes_alike(self) -> None:
        """Coefficients of all K > 2 classes, from those relative to the first."""
        self.intercept_ = _centred(self.intercept_)
        l1, ridge = self._strengths()
        if not l1:
            self.coef_ = _centred(self.coef_)
            return
        ones = np.ones(self.coef_.shape[1])
        net = ClassElasticNet(l1 * ones, ridge * ones, len(self.classes_))
        self.coef_ = net.of_all_classes(self.coef_)


def _centred(values: Array) -> Array:
    """Values of all classes with mean zero, from those of all but the first, whose are zero."""
    every = np.concatenate([np.zeros_like(values[:1]), values])
    centred: Array = every - every.mean(axis=0)
    return centred
