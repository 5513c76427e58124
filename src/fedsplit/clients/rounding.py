"""What a client's answers would tell of single rows, rounded away before it leaves the client.

The longest row, the row nearest to a kink, or the worst of a direction: a maximum or minimum over
rows is a number of one person. Each leaves a client only as the next power of two on the side on
which a proof stays a proof, and a margin only by its sign.

The last digits of a sum are rounding errors, of the sum and of what each row adds to it. A server
that chooses the coordinates chooses where a row is rounded: a condition on single rows, which no
guard can see in the columns. So a sum Σ_i u_i v_i leaves a client under rules only as a multiple of
2^-44 times the power of two above ‖u‖‖v‖, which is the most that it could be.
"""

from __future__ import annotations

import math

import numpy as np

from fedsplit.arrays import Array, namespace
from fedsplit.losses.costs import Costs, Evaluation


@np.errstate(over="ignore")
def rounded_up(x: Array) -> Array:
    """The least powers of two that are not below x; 0, inf and nan stay."""
    fraction, exponent = np.frexp(x)  # x = fraction·2^exponent, and ½ ≤ fraction < 1
    power = np.ldexp(1.0, exponent)
    usual = np.isfinite(x) & (x > 0) & (fraction > 0.5)  # at ½, x is a power of two itself
    return np.where(usual, power, x)


def rounded_down(x: Array) -> Array:
    """The greatest powers of two that are not above x; 0, inf and nan stay."""
    _, exponent = np.frexp(x)
    power = np.ldexp(1.0, exponent - 1)
    return np.where(np.isfinite(x) & (x > 0), power, x)


def all_positive(margin: Array) -> Array:
    """1 where a margin is positive, -1 where it is not, nan where there is none."""
    xp = namespace(margin)
    sign: Array = xp.where(margin > 0, 1.0, -xp.ones_like(margin))
    result: Array = xp.where(xp.isnan(margin), margin, sign)
    return result


def separated(at: Evaluation) -> Array:
    """1 where every row of a client is on its side of the plane at x, -1 where some row is not.

    nan where the loss has no classes, and where a ridge gives every cost a minimiser anyway.
    """
    if not at.costs.terms.classifies or at.costs.most_ridge > 0:
        return math.nan * at.X[:, 0]
    return all_positive(at.margin())


def sign_along(costs: Costs, x: Array, at_rest: float = 1e-6) -> Array:
    """1 where all rows of a client gain along x, 0 where none loses, -1 where some row does.

    Below a share ``at_rest`` of the largest margin, one is zero but for rounding.
    """
    lowest = costs.at(x).margin()
    highest = -costs.at(-x).margin()  # the largest b_i a_iᵀx is less the smallest at -x
    xp = namespace(lowest)
    none = lowest >= -at_rest * xp.clip(highest, 0.0, None)
    result: Array = xp.where(none & ~(lowest > 0), 0.0, all_positive(lowest))
    return result


GRID = 2.0**-44
"""The grid, relative to the most that a sum could be. It is 2^9 roundings of float64, and more than
the part of a column of length 1 that counts as being in the span of others. Coefficients move by
1e-11 standard errors on RAND, and by 4e-10 with 500,000 rows and correlations of 0.995."""


@np.errstate(invalid="ignore", divide="ignore", over="ignore")
def rounded(sums: Array, bounds: Array) -> Array:
    """Sums as multiples of GRID times the power of two that is not below their bounds.

    Bounds that are 0 or not finite, and their sums, stay.
    """
    grids = GRID * rounded_up(bounds)  # powers of two, so that the division is exact
    found = grids * np.rint(sums / grids)
    return np.where((grids > 0) & np.isfinite(found), found, sums)


def rounded_products(P: Array) -> Array:
    """The products of columns, (..., d, d): each is at most √(P_kk P_ll)."""
    lengths = np.sqrt(np.maximum(np.diagonal(P, axis1=-2, axis2=-1), 0.0))
    return rounded(P, lengths[..., :, None] * lengths[..., None, :])
