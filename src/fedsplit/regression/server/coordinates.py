"""The coordinates of the rounds, and the way back to coefficients in the units of the files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.regression.client.design import Recession
from fedsplit.regression.client.precise import combine
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.arithmetic import Design, conversion_error
from fedsplit.regression.server.federation import FederatedRows
from fedsplit.regression.server.orthogonal import check_independent, orthogonalise
from fedsplit.regression.server.pool import Pool


class Coordinates:
    """How x of the rounds, (d,), is related to the q coefficients.

    Parameters
    ----------
    rows : FederatedRows
        Asked for moments once more, if those of the pool are poor.
    pool : Pool
    settings : Settings
    classes : int
        How many classes the target has; 0 unless it is a class.

    Attributes
    ----------
    scaling : Scaling
        Of the columns and the target.
    copies : int
        How many coefficients each column has: one, or one per class but the first.
    symmetric : bool
        Whether x treats all classes alike.
    whiten : (p, r) array or None
        What the scaled columns are multiplied by: without a penalty they are made orthonormal.
    precise : bool
        Whether that is done in twice the working precision.
    kept : (q,) array of bool
        The coefficients that are not aliased.
    nulls : mapping of int to (p,) array
        Of each aliased column, the combination of the scaled ones that is next to zero.
    basis : (q, d) array
        Takes x to coefficients of the scaled columns; those that are aliased are 0.
    unscaling : (q, q) array
        Takes these to the units of the files.
    back : (q, d) array
        Takes x to coefficients in the units of the files, but for the origin of the target.
    origin : (q,) array
        What is added to them for that.
    """

    def __init__(self, rows: FederatedRows, pool: Pool, settings: Settings, classes: int) -> None:
        family = FAMILIES[settings.family]
        p = len(pool.names)
        self.scaling = pool.scaling(family.has_units)
        self.copies = max(1, classes - 1)
        self.symmetric = family.has_reference and settings.symmetric
        self.whiten: Array | None = None
        self.precise = False
        self.nulls: Mapping[int, Array] = {}
        kept: Mask = np.ones(p, dtype=bool)
        columns: Array = np.eye(p)
        if not settings.ridge and not settings.l1:
            scaling = self.scaling
            found = orthogonalise(pool, scaling, lambda D: rows.products(scaling, D))
            if settings.aliased == "refuse" and not rows.recessions:
                check_independent(pool, found)
            self.nulls = found.aliased
            kept = found.kept
            columns = columns[:, kept]
            if not settings.nonnegative:
                columns = found.whiten
                self.precise = found.cancelling
            if not settings.nonnegative or found.aliased:
                self.whiten = columns
        self.kept: Mask = np.tile(kept, self.copies)
        mix = family.mix(classes, self.symmetric)
        self.basis: Array = np.kron(mix, columns)
        self.unscaling: Array = np.kron(np.eye(self.copies), self._of_columns(pool.intercept))
        self.back: Array = self.unscaling @ self.basis
        self.origin: Array = np.zeros(len(self.back))
        if pool.intercept is not None:
            self.origin[pool.intercept] = self.scaling.origin
            if self.precise:
                # large terms nearly cancel in the intercept too
                row = np.eye(1, p, pool.intercept)
                means = combine(row, self.scaling.centre, self.scaling.scale, columns)
                self.back[pool.intercept :: p] = np.kron(mix, self.scaling.unit * means)

    def _of_columns(self, intercept: int | None) -> Array:
        """Takes the coefficients of one predictor to the units of the files, (p, p)."""
        centre, scale, unit, _ = self.scaling
        matrix = np.diag(unit / scale)
        if intercept is not None:
            matrix[intercept] -= unit * centre / scale
        return matrix

    def coefficients(self, x: Array) -> Array:
        """The coefficients in the units of the files, (..., q), at x, (..., d).

        Those that are aliased are 0.
        """
        coef: Array = x @ self.back.T + self.origin
        return coef

    def point(self, coef: Array) -> Array:
        """x at which the coefficients are these, (q,), where the aliased ones are not looked at."""
        return np.linalg.solve(self.back[self.kept], (coef - self.origin)[self.kept])

    def point_of_scaled(self, coef: Array) -> Array:
        """x at which those of the scaled columns are these, (q,) or (q, k)."""
        return np.linalg.solve(self.basis[self.kept], coef[self.kept])

    def recession(self, direction: Array) -> Recession:
        """A direction, (d,), as the clients take it."""
        return Recession(
            centre=tuple(self.scaling.centre.tolist()),
            scale=tuple(self.scaling.scale.tolist()),
            whiten=tuple(map(tuple, self.basis.tolist())),
            direction=tuple(direction.tolist()),
        )

    @property
    def design(self) -> Design:
        """How the columns of the rounds are formed."""
        columns = self.kept[: len(self.kept) // self.copies]
        whiten: Array = np.eye(int(columns.sum()))
        if self.whiten is not None:
            whiten = self.whiten[columns]
        return Design(whiten, self.precise, self.copies)

    def conversion_error(self, x: Array) -> Array:
        """A bound on the rounding of ``coefficients`` at x, (q,)."""
        terms = np.abs(self.unscaling) @ np.abs(self.basis)
        if self.precise:
            terms = np.abs(self.back)
        return conversion_error(terms, x, self.origin)
