"""Estimators for scikit-learn.

``fit(X, y, groups=groups)`` gives over clients what scikit-learn's estimator gives on the pooled
rows.
"""

from fedsplit.estimators.logistic import FedLogisticRegression
from fedsplit.estimators.regressors import (
    FedElasticNet,
    FedGammaRegressor,
    FedHuberRegressor,
    FedLasso,
    FedLinearRegression,
    FedPoissonRegressor,
    FedRidge,
)

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
