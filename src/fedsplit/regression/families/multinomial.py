"""Multinomial logistic regression: several classes, the first of which is the reference."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from fedsplit.arrays import Array
from fedsplit.losses.multinomial import Multinomial, all_classes
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import Link


def _probabilities(eta: Array) -> Array:
    """Of all K classes, (n, K), from η of all but the first, (n, K - 1)."""
    probabilities: Array = softmax(all_classes(eta), axis=1)
    return probabilities


MULTINOMIAL = Family(
    name="multinomial",
    link=Link(
        "logit",
        eta=lambda mu: np.log(mu[1:] / mu[0]),
        mean=_probabilities,
        slope=lambda eta: _probabilities(eta)[:, 1:] * (1.0 - _probabilities(eta)[:, 1:]),
    ),
    loss=lambda classes, symmetric, delta: Multinomial(classes, symmetric),
    log_likelihood=lambda b, eta, w, phi: -w * Multinomial(eta.shape[1] + 1).value(eta, b),
    target="a class",
    canonical=True,
    takes_offset=False,
    classifies=True,
    has_reference=True,
    mix=lambda classes, symmetric: Multinomial(classes, symmetric).mix,
)
"""b is class c with probability e^{η_c}/Σ_k e^{η_k}, where η_0 = 0."""
