"""What the pooled moments reveal of the columns, and in which combinations they are orthonormal.

Moments have about 15 digits, and so has the squared length of what other columns leave of a column:
they cannot tell a column that differs from others by 1e-8 from one that does not. In coordinates in
which that difference is a column of its own, moments can. So where they are poor, clients are asked
for moments once more, in the coordinates that follow from the first ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from fedsplit.arrays import Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.design import Moments, Scaling
from fedsplit.regression.client.statistics import CombinedProducts
from fedsplit.regression.server.federation import CodedRows, sums_of


class Pool:
    """The moments of all clients, of the same p columns, and what they reveal about these.

    The loss may have a constant beside the columns, such as thresholds: they are ``centred`` then,
    as with an intercept.
    """

    # overflow is reported below, by the name of the column
    @np.errstate(over="ignore", invalid="ignore")
    def __init__(
        self, moments: Sequence[Moments], intercept: int | None, centred: bool = False
    ) -> None:
        def each(part: str) -> Array:
            """A part of the moments of all clients, (m, ...)."""
            return np.array([getattr(own, part) for own in moments])

        self.intercept = intercept  # which column is the constant term, if there is one
        self.centred = centred or intercept is not None
        self.names = list(moments[0].names)
        self.n = int(each("n").sum())
        weights, means, targets, nets = map(each, ("weight", "mean", "target_mean", "net_mean"))
        self.weight = float(weights.sum())
        shares = weights / self.weight
        # of the columns, as in ``Moments``
        self.mean: Array = shares @ means
        between = np.sqrt(shares * self.weight)[:, None] * (means - self.mean)
        self.scatter: Array = each("scatter").sum(axis=0) + between.T @ between
        # mean and standard deviation of the target
        self.target = float(shares @ targets)
        target_between = self.weight * float(shares @ np.square(targets - self.target))
        target_scatter = float(each("target_scatter").sum()) + target_between
        self.spread = math.sqrt(target_scatter / self.weight)
        # as ``net_mean`` and ``cross`` in ``Moments``
        self.net_target = float(shares @ nets)
        self.cross: Array = each("cross").sum(axis=0)
        if self.cross.size:
            self.cross = self.cross + (shares * (nets - self.net_target)) @ means * self.weight
        # the logarithm of the mean of e^offset
        self.log_exposure = float(logsumexp(each("log_exposed")) - np.log(self.weight))
        self.classes = each("classes").sum(axis=0)  # rows of each class
        self.floor = float(each("floor").sum())
        squares = zip(self.names, np.diag(self.scatter), strict=True)
        for name, value in [("the target", self.spread), *squares]:
            if not np.isfinite(value):
                raise InputError(
                    f"{name}: the squares of its values are beyond float64, use another unit"
                )

    @property
    def constant(self) -> Mask:
        """Which columns have the same value in every row, (p,)."""
        variance = np.diag(self.scatter) / self.weight
        size = np.maximum(np.square(self.mean), np.finfo(np.float64).tiny)
        # a deviation that is a smaller share of the mean is rounding
        same: Mask = variance <= 1e-13**2 * size
        return same

    @property
    def sizes(self) -> Array:
        """The root mean square of every column, (p,)."""
        return np.asarray(np.hypot(np.sqrt(np.diag(self.scatter) / self.weight), self.mean))

    @property
    def empty(self) -> Mask:
        """Which columns are zero, or constant beside a constant of the model, (p,)."""
        empty: Mask = self.sizes == 0
        if self.centred:
            empty = empty | self.constant
        if self.intercept is not None:
            empty[self.intercept] = False
        return empty

    @property
    def deviation(self) -> float:
        """The target's standard deviation from its mean, or from zero without a constant."""
        return self.spread if self.centred else float(np.hypot(self.spread, self.target))

    @property
    def target_varies(self) -> bool:
        """Whether the target has anything to fit beside the intercept."""
        return self.deviation > 1e-13 * abs(self.target)

    def scaling(self, has_units: bool) -> Scaling:
        """Columns of unit deviation, centred beside a constant; constant ones unchanged.

        The same holds for the target, if it has units.
        """
        constant = self.constant
        second = np.diag(self.scatter) / self.weight
        centre = np.zeros_like(self.mean)
        if not self.centred:
            second = second + np.square(self.mean)
        else:
            centre = np.where(constant, 0.0, self.mean)
        scale = np.where(constant | (second == 0), 1.0, np.sqrt(second))
        if not has_units:
            return Scaling(centre, scale, 1.0)
        origin = 0.0 if self.intercept is None else self.target
        return Scaling(centre, scale, self.deviation, origin)

    def products(self, scaling: Scaling) -> Array:
        """Σ w a aᵀ of the scaled columns, (p, p)."""
        mean = (self.mean - scaling.centre) / scaling.scale
        centred = self.scatter / np.outer(scaling.scale, scaling.scale)
        return centred + self.weight * np.outer(mean, mean)

    def target_products(self, scaling: Scaling) -> Array:
        """Σ w a y of the scaled columns and the scaled target, (p,), of a quadratic loss."""
        mean = (self.mean - scaling.centre) / scaling.scale
        target = (self.net_target - scaling.origin) / scaling.unit
        return self.cross / (scaling.scale * scaling.unit) + self.weight * target * mean


class Orthonormal(NamedTuple):
    """The columns whose coefficients the data determine, and how the rounds combine them."""

    kept: Mask  # (p,): every column that is not aliased
    # (p, r): what the scaled columns are multiplied by to be orthonormal; 0 for aliased ones
    whiten: Array
    # for each aliased column, a combination of the scaled columns, (p,), that is next to zero, with
    # a factor of 1 for the column itself; all zero if the column is constant, or zero
    aliased: Mapping[int, Array]


def orthogonalise(rows: CodedRows, pool: Pool, scaling: Scaling) -> Dialogue[Orthonormal]:
    """Find the aliased columns, and make the others orthonormal over all clients.

    Clients are asked for moments only if those of the pool are poor.
    """
    p = len(pool.names)
    # R's glm too calls a column aliased if those before it leave no more of its length
    limits = 1e-11 * pool.sizes / scaling.scale
    empty = pool.empty
    aliased = {i: np.zeros(p) for i in np.flatnonzero(empty).tolist()}
    directions = np.eye(p)
    directions[:, empty] = 0.0
    G = pool.products(scaling) / pool.weight
    G[empty] = 0.0
    G[:, empty] = 0.0
    for left in reversed(range(6)):  # what moments cannot resolve by then counts as aliased
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


class Elimination(NamedTuple):
    """What one pass over the products of p combinations of columns shows."""

    kept: Mask  # (p,): combinations that are independent of those before them
    poor: Mask  # (p,): those of which the products cannot say that
    residuals: Array  # (p, p): what the kept ones leave of each, of about unit length
    lengths: Array  # (p,): by what the combination itself was divided for that


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
        # products of columns of unit length are off by about 1e-15
        rounding = 1e-15 * (1.0 + np.abs(weights).sum()) ** 2
        length = np.sqrt(max(share, rounding))
        lengths[i] = length * sizes[i]
        residuals[kept, i] = -weights / (sizes[kept] * length)
        residuals[i, i] = 1.0 / lengths[i]
        poor[i] = share <= 1e4 * rounding
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
