"""The model without covariates, which null deviances are of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedsplit.arrays import Array
from fedsplit.regression.client.questions.along import Course

MOST_STEPS = 50
"""Of Newton's method in the intercepts alone, halved steps included."""

STEEP = 1e-12
"""A slope below this share of the weight of all rows is rounding."""

SMALL = 1e-20
"""A squared Newton decrement below this share of the objective moves no digit of a deviance."""


def null_value(
    start: Array,
    intercepts: Array,
    weight: float,
    told: Sequence[Course],
    ask: Callable[[Array], Sequence[Course]],
) -> float:
    """The least value of the objective over the intercepts.

    As in R, the model without covariates keeps its offsets, and its intercept if it has one. Where
    the server knows that model from the moments, nobody is asked again.

    Parameters
    ----------
    start : (d,) array
        Where the clients told ``told``.
    intercepts : (d, k) array
        The directions to minimise over, each of which adds 1 to a predictor of every row; k is 0
        without an intercept.
    weight : float
        Of all rows.
    told : sequence of Course
        Of every client, along the intercepts.
    ask : callable
        Given a point, the same there, with curvatures.
    """
    least, slope = _sums(told)
    if (np.abs(slope) <= STEEP * weight).all():
        return least
    x = start
    least = np.inf
    step: Array = np.zeros(intercepts.shape[1])
    for _ in range(MOST_STEPS):
        told = ask(x)
        value, slope = _sums(told)
        if not value <= least:
            # a full step may be too long from a start far away
            step *= 0.5
            x = x + intercepts @ step
            continue
        least = value
        if (np.abs(slope) <= STEEP * weight).all():
            break
        H = sum(each.curvature for each in told if each.curvature is not None)
        step = np.linalg.solve(H, slope)
        if slope @ step <= SMALL * abs(value):
            break
        x = x - intercepts @ step
    return least


def _sums(told: Sequence[Course]) -> tuple[float, Array]:
    """F, and its slope along the intercepts."""
    value = float(np.sum([each.value for each in told]))
    return value, np.asarray(np.sum([each.slope for each in told], axis=0))
