"""Which columns those before them determine, and coordinates in which the others are orthonormal.

Moments have about 15 digits, and so has the squared length of what other columns leave of a column:
they cannot tell a column that differs from others by 1e-8 from one that does not. In coordinates in
which that difference is a column of its own, moments can. So where they are poor, clients are asked
for moments once more, in the coordinates that follow from the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from fedsplit.arrays import Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.design import Scaling
from fedsplit.regression.client.moments import CombinedProducts
from fedsplit.regression.server.federation import CodedRows, sums_of
from fedsplit.regression.server.pool import Pool

ALIASED = 1e-11
"""A column is aliased if the columns before it leave no more than this share of its length.

It is the tolerance of R's ``glm``.
"""

ROUNDING = 1e-15
"""About how far products of columns of unit length are off."""

POOR = 1e4
"""A squared length below so many times its rounding is not used."""

MOST_PASSES = 6
"""What moments cannot resolve after so many times counts as aliased."""

CANCELLING = 1e4
"""Terms so many times larger than their sum are added up in twice the working precision."""


@dataclass(frozen=True)
class Orthonormal:
    """The columns whose coefficients the data determine, and how the rounds combine them.

    Attributes
    ----------
    kept : (p,) array of bool
        Every column that is not aliased.
    whiten : (p, r) array
        What the scaled columns are multiplied by to be orthonormal; rows of aliased ones are zero.
    aliased : mapping of int to (p,) array
        Of each aliased column, a combination of the scaled columns that is next to zero, with a
        factor of 1 for the column itself. All zero if the column is constant, or zero.
    """

    kept: Mask
    whiten: Array
    aliased: Mapping[int, Array]

    @property
    def cancelling(self) -> bool:
        """Whether terms nearly cancel in the combinations."""
        return bool(np.abs(self.whiten).sum(axis=0).max(initial=0.0) > CANCELLING)


def orthogonalise(rows: CodedRows, pool: Pool, scaling: Scaling) -> Dialogue[Orthonormal]:
    """Find the aliased columns, and make the others orthonormal over all clients.

    Parameters
    ----------
    rows : CodedRows
        Whose clients are asked for moments only if those of the pool are poor.
    pool : Pool
        The moments of all clients.
    scaling : Scaling
        Of the columns.
    """
    p = len(pool.names)
    limits = ALIASED * pool.sizes / scaling.scale
    empty = pool.empty
    aliased = {i: np.zeros(p) for i in np.flatnonzero(empty).tolist()}
    directions = np.eye(p)
    directions[:, empty] = 0.0
    G = pool.products(scaling) / pool.weight
    G[empty] = 0.0
    G[:, empty] = 0.0
    for left in reversed(range(MOST_PASSES)):
        step = _eliminate(G, limits)
        if not step.poor.any() or not left:
            break
        directions = directions @ step.residuals
        limits = limits / step.lengths
        sums = yield from sums_of(rows, {"": CombinedProducts(scaling, directions)})
        G = sums[""]["products"] / pool.weight
    if not step.kept.any():
        raise InputError(
            "every column is zero in every row of every client: there is nothing to fit"
        )
    for i in np.flatnonzero(~step.kept & ~empty).tolist():
        combination = directions @ step.residuals[:, i]
        aliased[i] = combination / combination[i]
    L = np.linalg.cholesky(G[np.ix_(step.kept, step.kept)])
    inverse = solve_triangular(L, np.eye(len(L)), lower=True).T
    # in C order, as clients elsewhere receive it: products have other bits in another order
    whiten = np.ascontiguousarray(directions[:, step.kept] @ inverse)
    return Orthonormal(step.kept, whiten, dict(sorted(aliased.items())))


@dataclass(frozen=True)
class Elimination:
    """What one pass over the products of p combinations of columns shows.

    Attributes
    ----------
    kept, poor : (p,) arrays of bool
        Combinations that are independent of those before them, and those of which the products
        cannot say that.
    residuals : (p, p) array
        What the kept ones leave of each, of about unit length.
    lengths : (p,) array
        By what the combination itself was divided for that.
    """

    kept: Mask
    poor: Mask
    residuals: Array
    lengths: Array


def _eliminate(G: Array, limits: Array) -> Elimination:
    """Gram-Schmidt on the products G, (p, p), in the order of the columns.

    A column is dependent if no more than its limit is left of it, (p,).
    """
    p = len(G)
    sizes = np.sqrt(np.diag(G))
    kept: list[int] = []
    poor = np.zeros(p, dtype=bool)
    residuals = np.eye(p)
    lengths = np.ones(p)
    # The correlations of the kept ones are LLᵀ. The squared length of a new row of L is the share
    # of the column's squared length that they explain.
    L = np.zeros((p, p))
    for i in range(p):
        if sizes[i] <= limits[i]:
            continue
        k = len(kept)
        row = np.zeros(0)
        weights = np.zeros(0)
        if k:
            correlations = G[i, kept] / (sizes[i] * sizes[kept])
            row = solve_triangular(L[:k, :k], correlations, lower=True)
            weights = solve_triangular(L[:k, :k].T, row)
        share = 1.0 - float(row @ row)
        rounding = ROUNDING * (1.0 + np.abs(weights).sum()) ** 2
        length = np.sqrt(max(share, rounding))
        lengths[i] = length * sizes[i]
        residuals[kept, i] = -weights / (sizes[kept] * length)
        residuals[i, i] = 1.0 / lengths[i]
        poor[i] = share <= POOR * rounding
        if not poor[i] and lengths[i] > limits[i]:
            L[k, : k + 1] = [*row, length]
            kept.append(i)
    chosen = np.zeros(p, dtype=bool)
    chosen[kept] = True
    return Elimination(chosen, poor, residuals, lengths)


def check_independent(rows: CodedRows, pool: Pool, found: Orthonormal) -> None:
    """Raise InputError for the first column that is aliased."""
    for i, combination in found.aliased.items():
        if not combination.any():
            where = f"{pool.mean[i]:g} in every row of every client"
            if rows.plan.chosen_family.absorbs == "a constant of each client":
                where = f"the same in all rows of a client, which {rows.plan.family} cannot tell"
            raise InputError(f"column {pool.names[i]} is {where}: leave it out, or add a ridge")
        others = np.abs(combination) > 1e-6
        others[i] = False
        if pool.intercept is not None:
            others[pool.intercept] = False
        raise InputError(
            f"column {pool.names[i]} is a combination of "
            f"{listed(pool.names[j] for j in np.flatnonzero(others))} over all clients: "
            "leave one of them out, or add a ridge"
        )
