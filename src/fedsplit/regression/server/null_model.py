"""The model without covariates, which null deviances are of."""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients

MOST_STEPS = 50
"""Of Newton's method in the intercepts alone, halved steps included."""

STEEP = 1e-12
"""A slope below this share of the weight of all rows is rounding."""

SMALL = 1e-20
"""A squared Newton decrement below this share of the objective moves no digit of a deviance."""


def null_value(clients: Clients, x: Array, intercepts: Array, weight: float) -> float:
    """The least value of the objective over the intercepts.

    As in R, the model without covariates keeps its offsets, and its intercept if it has one. Where
    the server knows that model from the moments, one question is enough.

    Parameters
    ----------
    clients : Clients
    x : (d,) array
        Where to start.
    intercepts : (d, k) array
        The directions to minimise over, each of which adds 1 to a predictor of every row; k is 0
        without an intercept.
    weight : float
        Of all rows.
    """
    least = np.inf
    step = np.zeros(intercepts.shape[1])
    for _ in range(MOST_STEPS):
        found = clients.evaluate(x)
        value = float(found.parts["value"].sum())
        if not value <= least:
            # a full step may be too long from a start far away
            step *= 0.5
            x = x + intercepts @ step
            continue
        least = value
        slope = found.parts["gradient"].sum(axis=0) @ intercepts
        if (np.abs(slope) <= STEEP * weight).all():
            break
        H = intercepts.T @ clients.information(x).rows.sum(axis=0) @ intercepts
        step = np.linalg.solve(H, slope)
        if slope @ step <= SMALL * abs(value):
            break
        x = x - intercepts @ step
    return least
