"""The coordinates of the rounds, and the way back to coefficients in the units of the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.regression.client.design import Scaling
from fedsplit.regression.client.precise import combine
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import CodedRows
from fedsplit.regression.server.orthogonal import check_independent, orthogonalise
from fedsplit.regression.server.pool import Pool


@dataclass(frozen=True)
class Coordinates:
    """How x of the rounds, (d,), is related to the q coefficients.

    Coefficients come in blocks, one for each linear predictor, and a block has one for each of the
    p columns.

    Attributes
    ----------
    blocks : tuple of str
        The blocks by name: the classes but the first, or one without a name.
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

    blocks: tuple[str, ...]
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
        return self.kept[: len(self.kept) // len(self.blocks)]

    def in_blocks(self, values: Array) -> Array:
        """One value for each column, (p,), as one for each coefficient that is fitted, (d,)."""
        repeated: Array = np.tile(values, len(self.blocks))
        return repeated[self.kept]

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
    rows: CodedRows, pool: Pool, settings: Settings, blocks: Sequence[str]
) -> Dialogue[Coordinates]:
    """Make columns orthonormal over all clients, unless a penalty acts on them as they are.

    Clients are asked for moments once more, if those of the pool are poor.
    """
    family = FAMILIES[settings.family]
    p = len(pool.names)
    scaling = pool.scaling(family.has_units)
    symmetric = family.has_reference and settings.symmetric
    whiten: Array | None = None
    precise = False
    kept: Mask = np.ones(p, dtype=bool)
    columns: Array = np.eye(p)
    if not settings.ridge and not settings.l1:
        found = yield from orthogonalise(rows, pool, scaling)
        if settings.aliased == "refuse":
            check_independent(pool, found)
        kept = found.kept
        columns = columns[:, kept]
        if not settings.nonnegative:
            columns = found.whiten
            precise = found.cancelling
        if not settings.nonnegative or found.aliased:
            whiten = columns
    # the predictors of a row are combinations of the blocks of x
    mix = family.mix(len(blocks) + 1, symmetric) if family.has_reference else np.eye(1)
    basis: Array = np.kron(mix, columns)
    unscaling: Array = np.kron(np.eye(len(blocks)), _unscaled(scaling, pool.intercept))
    back: Array = unscaling @ basis
    origin: Array = np.zeros(len(back))
    if pool.intercept is not None:
        origin[pool.intercept] = scaling.origin
        if precise:
            # large terms nearly cancel in the intercept too
            row = np.eye(1, p, pool.intercept)
            means = combine(row, scaling.centre, scaling.scale, columns)
            back[pool.intercept :: p] = np.kron(mix, scaling.unit * means)
    return Coordinates(
        tuple(blocks),
        scaling,
        symmetric,
        whiten,
        precise,
        np.tile(kept, len(blocks)),
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
