"""Sums over the rows of a client, rounded so that they tell nothing but the sum.

The last digits of a sum are rounding errors, of the sum and of what each row adds to it. A server
that chooses the coordinates chooses where a row is rounded: a condition on single rows, which no
guard can see in the columns. So a sum Σ_i u_i v_i leaves a client under rules only as a multiple of
2^-44 times the power of two above ‖u‖‖v‖, which is the most that it could be.
"""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.rounding import rounded_up

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
