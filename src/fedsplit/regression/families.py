"""The families of models: each a convex loss, and what a regression table says beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, gammaln, logit, softmax, xlogy

from fedsplit.arrays import Array, Mask
from fedsplit.losses.gamma import Gamma
from fedsplit.losses.huber import Huber
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.logistic import Logistic
from fedsplit.losses.multinomial import Multinomial, all_classes
from fedsplit.losses.poisson import Poisson
from fedsplit.losses.terms import Loss

LogLikelihood = Callable[[Array, Array, Array, float], Array]
"""Of each observation, from b, η, the weights and the dispersion."""


@dataclass(frozen=True)
class Family:
    """A family with its link.

    Attributes
    ----------
    name, link : str
        As they are printed.
    loss : callable
        The loss, from δ (used by huber) and the number of classes (used by multinomial).
    target : str
        What the target must be, and ``wrong``, which of its values are not.
    mean, linked : callable
        μ from η, and η from μ. For multinomial η is (n, K - 1) and μ, the classes' probabilities, (n, K); ``linked``
        takes those of one row.
    dispersion : "one", "deviance" or "pearson"
        Whether φ is 1, or estimated by the deviance or Pearson's X² over n - p.
    log_likelihood : callable, optional
        None where there is no likelihood, and so no model-based standard error.
    """

    name: str
    link: str
    loss: Callable[[float, int], Loss]
    target: str
    wrong: Callable[[Array], Mask]
    mean: Callable[[Array], Array]
    linked: Callable[[Array], Array]
    dispersion: Literal["one", "deviance", "pearson"]
    log_likelihood: LogLikelihood | None

    @property
    def classifies(self) -> bool:
        return self.link == "logit"

    @property
    def per_class(self) -> bool:
        """Whether every class but the first has coefficients of its own."""
        return self.name == "multinomial"

    @property
    def has_units(self) -> bool:
        """Whether the target's unit is that of η, so that the target may be scaled."""
        return self.link == "identity"

    @property
    def canonical(self) -> bool:
        """Whether the Hessian of the loss is the expected information too."""
        return self.name != "gamma"


def _gaussian(b: Array, eta: Array, w: Array, phi: float) -> Array:
    logs: Array = 0.5 * np.log(w / (2 * np.pi * phi)) - w * np.square(b - eta) / (2 * phi)
    return logs


def _logistic(b: Array, eta: Array, w: Array, phi: float) -> Array:
    return -w * Logistic().value(eta, np.where(b == 1, 1.0, -1.0))


def _poisson(b: Array, eta: Array, w: Array, phi: float) -> Array:
    logs: Array = -w * (Poisson().value(eta, b) + gammaln(b + 1))
    return logs


def _multinomial(b: Array, eta: Array, w: Array, phi: float) -> Array:
    logs: Array = -w * Multinomial(eta.shape[1] + 1).value(eta, b)
    return logs


def _probabilities(eta: Array) -> Array:
    probabilities: Array = softmax(all_classes(eta), axis=1)
    return probabilities


def _gamma(b: Array, eta: Array, w: Array, phi: float) -> Array:
    k = w / phi
    logs: Array = xlogy(k, k * b) - np.log(b) - gammaln(k) - k * Gamma().value(eta, b)
    return logs


def _never(b: Array) -> Mask:
    return np.zeros(b.shape, dtype=bool)


def _same(eta: Array) -> Array:
    return eta


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "gaussian", "identity", lambda delta, classes: LeastSquares(), "a number", _never,
            _same, _same, "deviance", _gaussian,
        ),
        Family(
            "logistic", "logit", lambda delta, classes: Logistic(), "0 or 1", lambda b: (b != 0) & (b != 1),
            expit, logit, "one", _logistic,
        ),
        Family(
            "poisson", "log", lambda delta, classes: Poisson(), "a count of at least zero", lambda b: b < 0,
            np.exp, np.log, "one", _poisson,
        ),
        Family(
            "gamma", "log", lambda delta, classes: Gamma(), "above zero", lambda b: b <= 0,
            np.exp, np.log, "pearson", _gamma,
        ),
        Family(
            "multinomial", "logit", lambda delta, classes: Multinomial(classes), "a class", _never,
            _probabilities, lambda mu: np.log(mu[1:] / mu[0]), "one", _multinomial,
        ),
        Family(
            "huber", "identity", lambda delta, classes: Huber(delta), "a number", _never,
            _same, _same, "deviance", None,
        ),
    )
}  # fmt: skip
"""Every family by name, as the command line, the documentation and the tests know it."""
