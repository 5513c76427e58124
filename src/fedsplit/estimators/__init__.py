"""Estimators for scikit-learn.

``fit(X, y, groups=groups)`` gives over clients what scikit-learn's estimator gives on the pooled
rows.
"""

from fedsplit.estimators.huber import FedHuberRegressor
from fedsplit.estimators.least_squares import (
    FedElasticNet,
    FedLasso,
    FedLinearRegression,
    FedRidge,
)
from fedsplit.estimators.log_link import FedGammaRegressor, FedPoissonRegressor
from fedsplit.estimators.logistic import FedLogisticRegression

__all__ = [
    "FedElasticNet",
    "FedGammaRegressor",
    "FedHuberRegressor",
    "FedLasso",
    "FedLinearRegression",
    "FedLogisticRegression",
    "FedPoissonRegressor",
    "FedRidge",
]
