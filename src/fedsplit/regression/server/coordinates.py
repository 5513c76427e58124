"""The coordinates of the rounds, and the way back to coefficients in the units of the files.

The pooled moments say which columns those before them determine, and in which coordinates the
others are orthonormal.

Moments have about 15 digits, and so has the squared length of what other columns leave of a column:
they cannot tell a column that differs from others by 1e-8 from one that does not. In coordinates in
which that difference is a column of its own, moments can. So where they are poor, clients are asked
for moments once more, in the coordinates that follow from the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, solve_triangular
from scipy.special import logsumexp

from fedsplit.arrays import Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.coding import Frame
from fedsplit.regression.client.design import Moments, Scaling, combine
from fedsplit.regression.client.statistics import CombinedProducts
from fedsplit.regression.families.family import CoefficientBlock
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import CodedRows, sums_of


class Pool:
    """The moments of all clients, of the same p columns, and what they reveal about these.

    The loss may have a constant beside the columns, such as thresholds: they are ``centred`` then,
    as with an intercept.

    Attributes
    ----------
    n, weight : int, float
        Rows, and the sum of their weights.
    mean, scatter : (p,) and (p, p) arrays
        Of the columns, as in ``Moments``.
    target, spread : float
        Mean and standard deviation of the target.
    net_target, cross : float, (p,) array
        As ``net_mean`` and ``cross`` in ``Moments``.
    log_exposure : float
        The logarithm of the mean of e^offset.
    classes : (K,) array
        Rows of each class; empty unless the target is a class.
    floor : float
        Of all clients, as in ``Moments``.
    """

    # overflow is reported below, by the name of the column
    @np.errstate(over="ignore", invalid="ignore")
    def __init__(
        self, moments: Sequence[Moments], intercept: int | None, centred: bool = False
    ) -> None:
        self.intercept = intercept
        self.centred = centred or intercept is not None
        self.names = list(moments[0].names)
        self.n = sum(each.n for each in moments)
        self.weight = sum(each.weight for each in moments)
        shares = np.array([each.weight for each in moments]) / self.weight
        means = np.stack([each.mean for each in moments])
        self.mean: Array = shares @ means
        between = np.sqrt(shares * self.weight)[:, None] * (means - self.mean)
        within = np.sum([each.scatter for each in moments], axis=0)
        self.scatter: Array = within + between.T @ between
        targets = np.array([each.target_mean for each in moments])
        self.target = float(shares @ targets)
        target_within = sum(each.target_scatter for each in moments)
        target_between = self.weight * float(shares @ np.square(targets - self.target))
        self.spread = float(np.sqrt((target_within + target_between) / self.weight))
        nets = np.array([each.net_mean for each in moments])
        self.net_target = float(shares @ nets)
        self.cross: Array = np.sum([each.cross for each in moments], axis=0)
        if self.cross.size:
            self.cross = self.cross + (shares * (nets - self.net_target)) @ means * self.weight
        exposed = logsumexp([each.log_exposed for each in moments])
        self.log_exposure = float(exposed - np.log(self.weight))
        self.classes = np.sum([each.classes for each in moments], axis=0)
        self.floor = sum(each.floor for each in moments)
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
        sizes: Array = np.hypot(np.sqrt(np.diag(self.scatter) / self.weight), self.mean)
        return sizes

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
        if not self.centred:
            return float(np.hypot(self.spread, self.target))
        return self.spread

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
        origin = 0.0
        if self.intercept is not None:
            origin = self.target
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


CANCELLING = 1e4
"""Terms so many times larger than their sum are added up in twice the working precision."""


class Orthonormal(NamedTuple):
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


@dataclass(frozen=True)
class Coordinates:
    """How x of the rounds, (d,), is related to the q coefficients.

    Coefficients come in named blocks. Those of the linear predictors have one coefficient for each
    of the p columns; after them come those that belong to no column, such as thresholds.

    Attributes
    ----------
    blocks : tuple of CoefficientBlock
    frame : Frame
        By which clients make these coordinates, without a ridge.
    kept : (q,) array of bool
        The coefficients that are not aliased.
    basis : (q, d) array
        Takes x to coefficients of the scaled columns; those that are aliased are 0.
    unscaling : (q, q) array
        Takes these to the units of the files.
    back : (q, d) array
        Takes x to coefficients in the units of the files, but for the origin of the target.
    origin : (q,) array
        What is added to them for that.
    """

    blocks: tuple[CoefficientBlock, ...]
    frame: Frame
    kept: Mask
    basis: Array
    unscaling: Array
    back: Array
    origin: Array

    @property
    def columns(self) -> Mask:
        """Which of the p columns are not aliased."""
        return self.kept[: len(self.frame.scaling.scale)]

    @property
    def predictors(self) -> int:
        """How many blocks have a coefficient for each column."""
        return sum(block.of_columns for block in self.blocks)

    @property
    def own(self) -> int:
        """How many coefficients belong to no column."""
        return sum(len(block.own) for block in self.blocks)

    def for_each(self, values: Array, own: float) -> Array:
        """One value for each coefficient, (q,): that of its column, or ``own`` if it has none."""
        each: Array = np.concatenate([np.tile(values, self.predictors), np.full(self.own, own)])
        return each

    def coefficients(self, x: Array) -> Array:
        """The coefficients in the units of the files, (..., q), at x, (..., d); aliased ones 0."""
        coef: Array = x @ self.back.T + self.origin
        return coef

    def point(self, coef: Array) -> Array:
        """x at which the coefficients are these, (q,); those that are aliased do not matter."""
        return np.linalg.solve(self.back[self.kept], (coef - self.origin)[self.kept])

    def point_of_scaled(self, coef: Array) -> Array:
        """x at which those of the scaled columns are these, (q,) or (q, k)."""
        return np.linalg.solve(self.basis[self.kept], coef[self.kept])


def find_coordinates(
    rows: CodedRows, pool: Pool, settings: Settings, blocks: Sequence[CoefficientBlock]
) -> Dialogue[Coordinates]:
    """Make columns orthonormal over all clients, unless a penalty acts on them as they are.

    Clients are asked for moments once more, if those of the pool are poor.
    """
    family = settings.chosen_family
    p = len(pool.names)
    scaling = pool.scaling(family.has_units)
    predictors = sum(block.of_columns for block in blocks)
    own = sum(len(block.own) for block in blocks)
    symmetric = predictors > 1 and settings.symmetric
    whiten: Array | None = None
    precise = False
    kept: Mask = np.ones(p, dtype=bool)
    columns: Array = np.eye(p)
    if not settings.ridge and not settings.l1:
        found = yield from orthogonalise(rows, pool, scaling)
        if settings.aliased == "refuse":
            check_independent(rows, pool, found)
        kept = found.kept
        columns = columns[:, kept]
        if not settings.nonnegative:
            columns = found.whiten
            # whether terms nearly cancel in the combinations
            precise = bool(np.abs(columns).sum(axis=0).max(initial=0.0) > CANCELLING)
        if not settings.nonnegative or found.aliased:
            whiten = columns
    # the predictors of a row are combinations of the blocks of x
    mix = family.mix(predictors + 1, symmetric)
    basis: Array = block_diag(np.kron(mix, columns), np.eye(own))
    one = _unscaled(scaling, pool.intercept)
    unscaling: Array = block_diag(np.kron(np.eye(predictors), one), np.eye(own))
    follows = [np.full(len(block.own), block.follows) for block in blocks]
    unscaling[p * predictors :, :p] = np.outer(
        np.concatenate(follows), scaling.unit * scaling.centre / scaling.scale
    )
    back: Array = unscaling @ basis
    origin: Array = np.zeros(len(back))
    if pool.intercept is not None:
        origin[pool.intercept] = scaling.origin
        if precise:
            # large terms nearly cancel in the intercept too
            row = np.eye(1, p, pool.intercept)
            means = combine(row, scaling.centre, scaling.scale, columns)
            back[pool.intercept : p * predictors : p] = np.kron(mix, scaling.unit * means)
    kept = np.concatenate([np.tile(kept, predictors), np.ones(own, dtype=bool)])
    frame = Frame(scaling, whiten, 1.0, symmetric, np.zeros(basis.shape[1]), precise)
    return Coordinates(tuple(blocks), frame, kept, basis, unscaling, back, origin)


def _unscaled(scaling: Scaling, intercept: int | None) -> Array:
    """Takes the coefficients of one predictor to the units of the files, (p, p)."""
    centre, scale, unit, _ = scaling
    matrix = np.diag(unit / scale)
    if intercept is not None:
        matrix[intercept] -= unit * centre / scale
    return matrix
