"""What the regressors share."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import _check_sample_weight, validate_data

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.estimators.federated import Federated, by_name
from fedsplit.regression.families import FAMILIES


class Regressor(RegressorMixin, Federated):  # type: ignore[misc]  # untyped base
    """A regression on one linear predictor."""

    _family: ClassVar = "gaussian"

    @by_name
    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit over clients.

        Parameters
        ----------
        X : (n, p) array, DataFrame or sparse array
            A sparse one is never made dense.
        y : (n,) array
        groups : (n,) or (n, 1) array, optional
            The client of each row, by any label; without it there is one client.
        sample_weight : (n,) array, optional
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, accept_sparse="csr")
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
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
        return self

    def predict(self, X: object) -> Array:
        """The expected target of every row, (n,)."""
        return FAMILIES[self._family].link.mean(self._predictor(X))

    def _penalty(self, weight: float) -> dict[str, Any]:
        """The penalty as options of ``Settings``, on a sum over rows of this total weight."""
        return {}


class PositiveRegressor(Regressor):
    """A regression with a log link, whose score is the share of the deviance explained."""

    _remedy: ClassVar[str] = "raise alpha"
    _power: ClassVar[int]  # of the mean, in the variance

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """D², the share of the deviance that is explained."""
        mean = self.predict(X)
        return float(d2_tweedie_score(y, mean, sample_weight=sample_weight, power=self._power))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
