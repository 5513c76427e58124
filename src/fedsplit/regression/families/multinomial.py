"""Multinomial logistic regression: several classes, the first of which is the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from fedsplit.arrays import Array
from fedsplit.losses.multinomial import Multinomial, all_classes
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import Link


def _mean(eta: Array) -> Array:
    """The probabilities of all K classes, (n, K), from η of all but the first, (n, K - 1)."""
    probabilities: Array = softmax(all_classes(eta), axis=1)
    return probabilities


class MultinomialFamily(Family):
    """b is class c with probability e^{η_c}/Σ_k e^{η_k}, where η_0 = 0: (K - 1)·p coefficients."""

    name = "multinomial"
    link = Link(
        "logit",
        eta=lambda mu: np.log(mu[1:] / mu[0]),
        mean=_mean,
        slope=lambda eta: _mean(eta)[:, 1:] * (1.0 - _mean(eta)[:, 1:]),
    )
    target = "a class"
    canonical = True
    takes_offset = False
    classifies = True
    needs_column = True
    has_reference = True

    def loss(self, classes: int, symmetric: bool, delta: float) -> Multinomial:
        return Multinomial(classes, symmetric)

    def count_classes(self, labels: Sequence[object]) -> int:
        return len(labels)

    def coefficient_names(self, terms: Sequence[str], labels: Sequence[str]) -> list[str]:
        return [f"{label}:{term}" for label in labels[1:] for term in terms]

    def mix(self, classes: int, symmetric: bool) -> Array:
        return Multinomial(classes, symmetric).mix

    def predictor(self, A: Array, x: Array, o: Array, unit: float = 1.0) -> Array:
        """η of all classes but the first, (n, K - 1)."""
        return A @ x.reshape(-1, A.shape[1]).T

    def null_predictor(self, mean: float, counts: Array, log_exposure: float) -> Array:
        return self.link.eta(counts)

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = -w * Multinomial(eta.shape[1] + 1).value(eta, b)
        return logs
