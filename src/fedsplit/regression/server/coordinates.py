"""The coordinates of the rounds, and the way back to coefficients in the units of the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from fedsplit.arrays import Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.regression.client.design import Scaling
from fedsplit.regression.client.precise import combine
from fedsplit.regression.families.family import Block
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import CodedRows
from fedsplit.regression.server.orthogonal import check_independent, orthogonalise
from fedsplit.regression.server.pool import Pool


@dataclass(frozen=True)
class Coordinates:
    """How x of the rounds, (d,), is related to the q coefficients.

    Coefficients come in named blocks. Those of the linear predictors have one coefficient for each
    of the p columns; after them come those that belong to no column, such as thresholds.

    Attributes
    ----------
    blocks : tuple of Block
    scaling : Scaling
        Of the columns and the target.
    symmetric : bool
        Whether x treats all classes alike.
    whiten : (p, r) array or None
        What the scaled columns are multiplied by: without a penalty they are made orthonormal.
    precise : bool
        Whether that is done in twice the working precision.
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

    blocks: tuple[Block, ...]
    scaling: Scaling
    symmetric: bool
    whiten: Array | None
    precise: bool
    kept: Mask
    basis: Array
    unscaling: Array
    back: Array
    origin: Array

    @property
    def columns(self) -> Mask:
        """Which of the p columns are not aliased."""
        return self.kept[: len(self.scaling.scale)]

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
    rows: CodedRows, pool: Pool, settings: Settings, blocks: Sequence[Block]
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
            precise = found.cancelling
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
    return Coordinates(
        tuple(blocks),
        scaling,
        symmetric,
        whiten,
        precise,
        np.concatenate([np.tile(kept, predictors), np.ones(own, dtype=bool)]),
        basis,
        unscaling,
        back,
        origin,
    )


def _unscaled(scaling: Scaling, intercept: int | None) -> Array:
    """Takes the coefficients of one predictor to the units of the files, (p, p)."""
    centre, scale, unit, _ = scaling
    matrix = np.diag(unit / scale)
    if intercept is not None:
        matrix[intercept] -= unit * centre / scale
    return matrix
