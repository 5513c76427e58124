"""Losses: what a client minimises."""

from collections.abc import Callable

from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.multinomial import Multinomial
from fedsplit.losses.scalar import Gamma, Huber, Logistic, Poisson

LOSSES: dict[str, Callable[..., LinearLoss | Multinomial]] = {
    "least-squares": LeastSquares,
    "logistic": Logistic,
    "multinomial": Multinomial,
    "poisson": Poisson,
    "gamma": Gamma,
    "huber": Huber,
}
"""Every built-in loss by name, as the documentation and the conformance tests know it."""
