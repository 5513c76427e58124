"""The columns that an answer tells of, from which a server could work out single rows.

What leaves a client are sums over rows of columns, and sums of products of two columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.errors import InputError
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.leverage import of_size_one
from fedsplit.regression.client.plan import Plan

if TYPE_CHECKING:
    from fedsplit.regression.client.guards.answered import Asked

FAR = 8.0
"""Deviations: a column whose mean is farther from 0 has other digits once it is centred."""

AT_ONCE = 256
"""So many products are formed together."""

MOST_PRODUCTS = 20_000
"""Of a model; those of 200 columns."""

LARGEST = 5 * 10**7
"""Numbers in all products of a model."""

ROWS_PER_PRODUCT = 5
"""With fewer rows than this for each product, some combination of them is large on one row by
chance, and nobody knows which one."""


class Block(NamedTuple):
    """Columns that are told of.

    Attributes
    ----------
    columns : (m, q) array
    rows : (m,) array of int
        Which rows of the client they are on, each one once.
    factors : (l, f) array
        Columns of which the products of every two are told.
    places : (l,) array of int
        Which of ``rows`` each row of the factors belongs to; empty if they are the same.
    names : sequence of str
        Of the factors, for the owner of the client.
    """

    columns: Array
    rows: NDArray[np.intp]
    factors: Array = np.zeros((0, 0))
    places: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    names: Sequence[str] = ()

    def pairs(self) -> NDArray[np.intp]:
        """Which two factors have a product that is looked at, (2, q).

        All of those that are not zero; if there are few rows, or very many, only those of factors
        that are mostly one value.
        """
        F = self.factors
        pairs = _meeting(F)
        if pairs.shape[1] > MOST_PRODUCTS:
            raise InputError(
                f"the model has {pairs.shape[1]:,} products of two columns, more than the "
                f"{MOST_PRODUCTS:,} that can be looked at: ask for fewer columns"
            )
        most = min(len(F) / ROWS_PER_PRODUCT, LARGEST / max(len(F), 1))
        if pairs.shape[1] <= most:
            return pairs
        # conditions and levels: a server knows where they, and their differences, are zero
        usual = np.count_nonzero(np.median(F, axis=0) == F, axis=0)
        mostly = (2 * usual >= len(F))[pairs]
        one = pairs[:, mostly.any(axis=0)]
        if one.shape[1] * len(F) <= LARGEST:
            return one
        return pairs[:, mostly.all(axis=0)]

    def products(self, pairs: NDArray[np.intp]) -> Iterator[Array]:
        """The products of factors, (m, q), some at a time; each factor at a size of about 1."""
        factors = of_size_one(self.factors)
        for first in range(0, pairs.shape[1], AT_ONCE):
            left, right = pairs[:, first : first + AT_ONCE]
            found = factors[:, left] * factors[:, right]
            if len(self.places):
                total = np.zeros((len(self.rows), found.shape[1]))
                np.add.at(total, self.places, found)
                found = total
            yield found

    def naming(self, rows: Sequence[int]) -> str:
        """The two factors whose product is largest on some rows, if they have names."""
        at = np.isin(self.rows, rows)
        if not self.names or not at.any():
            return ""
        pairs = self.pairs()
        shares: list[float] = []
        for some in self.products(pairs):
            squares = np.square(some)
            shares += (squares[at].sum(axis=0) / squares.sum(axis=0)).tolist()
        left, right = pairs[:, int(np.argmax(shares))]
        return f" ({self.names[left]} and {self.names[right]})"


def _meeting(F: Array) -> NDArray[np.intp]:
    """The pairs of columns, (2, q), that are not zero in the same rows."""
    used = (F != 0).astype(np.float32)
    return np.array(np.nonzero(np.triu(used.T @ used)))


def of_survey(frame: pd.DataFrame, plan: Plan) -> Block:
    """Which rows are complete, and those of each level."""
    columns = [np.ones(len(frame))]
    for name in plan.types:
        if name in plan.categorical:
            codes = frame[name].cat.codes.to_numpy()
            columns += [(codes == code).astype(np.float64) for code in np.unique(codes)]
    return Block(np.column_stack(columns), frame.index.to_numpy(dtype=np.intp))


def of_design(design: Design) -> Block:
    """The rows that are used, the columns of their design, their target, weights and offsets.

    Moments are those of columns less their mean, as that is computed: a mean that is large beside
    the deviation has rounded the column to steps. Where it is, both columns are told of.
    """
    w, A, o = design.w, design.A, design.o
    one = np.ones((len(w), 1))
    targets = design.b[:, None]
    if design.classes > 2:
        targets = (targets == np.arange(design.classes)).astype(np.float64)
    if design.family.quadratic and o.any():
        targets = np.hstack([targets, targets - o[:, None]])
    told = np.hstack([targets, A])
    mean = w @ told / w.sum()
    centred = told - mean
    far = np.abs(mean) > FAR * np.sqrt(w @ np.square(centred) / w.sum())
    columns = [one, told, centred[:, far]]
    if o.any():
        # an offset beside others, and its part of the sum of exposures
        columns += [o[:, None], np.exp(0.5 * (o - o.max()))[:, None]]
    factors = np.hstack([one, np.where(far, centred, told)])
    names = ["1", *["the target"] * targets.shape[1], *design.columns]
    if (w == 1).all():
        return _by_row(np.hstack(columns), design.index, factors)._replace(names=names)
    root = np.sqrt(w)[:, None]
    columns = [root * np.hstack(columns), one]
    if design.family.quadratic:
        columns.append(np.log(w)[:, None])  # of the log-likelihood
    block = _by_row(np.hstack(columns), design.index, root * factors)
    return block._replace(names=names)


def of_combinations(design: Design, asked: Asked) -> Block:
    """Combinations of scaled columns, as they are computed: rounding has no place to hide in."""
    assert asked.scaling is not None
    A = design.A
    if asked.precise and asked.directions is not None and design.scaling is None:
        A = np.sqrt(design.w)[:, None] * design.combine(asked.scaling, asked.directions)
        return _by_row(A, design.index, A)
    if design.scaling is None:
        A = (A - asked.scaling.centre) / asked.scaling.scale
    if asked.directions is not None:
        A = A @ asked.directions
    A = np.sqrt(design.w)[:, None] * A
    return _by_row(A, design.index, A)


def of_calibration(design: Design, x: Array, limit: Withheld) -> Block:
    """The rows of each bin that is counted at x, their predictions, and those of class 1."""
    at, p, told = design.binned(x, limit)
    columns = [np.zeros(len(p))]
    for j in np.flatnonzero(told):
        inside = (at == j).astype(np.float64)
        columns += [inside, inside * p, inside * design.b]
    return _by_row(np.column_stack(columns), design.index, np.zeros((len(p), 0)))


def _by_row(columns: Array, index: NDArray[np.intp], factors: Array) -> Block:
    """Columns of the rows of a file: both rows of a group are one."""
    if (index[:-1] < index[1:]).all():
        return Block(columns, index, factors)
    rows, first, inverse = np.unique(index, return_index=True, return_inverse=True)
    if len(rows) == len(index):
        return Block(columns, index, factors)
    squares = np.zeros((len(rows), columns.shape[1]))
    np.add.at(squares, inverse, np.square(columns))
    signs = np.sign(columns[first])
    return Block(signs * np.sqrt(squares), rows, factors, inverse)
