"""Combinations of columns that are zero in most rows, and columns with gaps.

A condition can be written in many ways: as its complement, or as the difference of two columns. So
beside the columns of a design those combinations of them are looked for that vanish in most rows.
"""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.regression.client.guards.leverage import Span

NOISE = 1e-13
"""A smaller share of a vector is left where it is a combination of others, but for rounding."""

SOME = 1_000
"""About so many rows are enough to find such a combination."""

ZERO = 1e-6
"""A smaller share of the largest difference is none."""

HOPELESS, ALIKE = 4, 1e-2
"""After so many steps a good part of the differences is below this share of the largest one, or
never will be."""

STEPS = 10
"""Of weighted least squares, in which the least difference that counts is a tenth each time."""

VANISHES = 1e-5
"""A combination of length 1 with less than this in some rows is zero there."""

GAP = 0.1
"""A value that a column has in this share of the rows is looked at as a gap."""

MOST = 60
"""At most so many columns with gaps are looked at: those with most zeros."""


def _some(n: int) -> slice:
    return slice(0, n, max(1, n // SOME))


def sparsest(vector: Array, others: Array) -> Array:
    """Combinations of a vector, (n,), and others, (n, q), that are zero in most rows, (n, t).

    The vector less the combination of the others that equals it on most rows, with all others that
    are zero in the same rows, as long as what is left of a vector of length 1; t = 0 if there is
    none.
    """
    some = _some(len(vector))
    # most vectors have none, which some rows tell
    if len(vector) > 2 * SOME and _sparsest(vector[some], others[some]).size == 0:
        return np.zeros((len(vector), 0))
    return _sparsest(vector, others)


def _sparsest(vector: Array, others: Array) -> Array:
    """The same from all rows."""
    nothing = np.zeros((len(vector), 0))
    Q = Span().extended(others, np.arange(len(others))).Q
    rest = vector - Q @ (Q.T @ vector)
    rest = rest - Q @ (Q.T @ rest)
    size = float(np.linalg.norm(rest))
    if size <= NOISE * float(np.linalg.norm(vector)):
        return nothing
    rest = rest / size
    some = _some(len(rest))
    c = _least_sum(rest[some], Q[some])
    if c is None:
        return nothing
    left = np.abs(rest - Q @ c)
    zero = left <= ZERO * left.max()
    # any vector can be met on as many rows as there are others, which means nothing
    if zero.sum() - len(c) < 0.5 * len(zero):
        return nothing
    every = np.column_stack([Q, rest])
    _, sizes, directions = np.linalg.svd(every[zero], full_matrices=False)
    found: Array = every @ directions[sizes <= VANISHES].T
    found[zero] = 0.0
    return found * (size / np.linalg.norm(vector))


def _least_sum(target: Array, rows: Array) -> Array | None:
    """The combination with the least sum of absolute differences, by weighted least squares."""
    tiny = np.finfo(np.float64).eps
    c = np.zeros(rows.shape[1])
    for step in range(STEPS):
        left = np.abs(target - rows @ c)
        if step == HOPELESS and (left <= ALIKE * left.max()).mean() < 0.4:
            return None
        # in the end the number of differences, where several have the same sum
        power = 1 + (step > HOPELESS)
        weights = 1.0 / np.maximum(left, 10.0**-step / len(target)) ** power
        gram = rows.T @ (weights[:, None] * rows)
        shift = tiny * np.trace(gram) * np.eye(len(c))
        c = np.linalg.solve(gram + shift, rows.T @ (weights * target))
    return c


def rare_columns(A: Array) -> Array:
    """The combinations of columns of A, (n, p), that are zero in most rows, (n, m).

    Each column by itself, and less the combination of the others that equals it on most rows.
    """
    found: list[Array] = []
    for j in range(A.shape[1]):
        for column in (A[:, j], *sparsest(A[:, j], np.delete(A, j, axis=1)).T):
            zero = np.abs(column) <= 1e-9 * np.abs(column).max(initial=0.0)
            if 0.5 < zero.mean() < 1.0:
                found.append(np.where(zero, 0.0, column))
    return _different(found, len(A))


def with_gaps(A: Array, rare: Array) -> Array:
    """The columns that are zero in a part of the rows, (n, m).

    Those that are rare, and every column less a value that many of its rows have: both sides of a
    condition.
    """
    found: list[Array] = list(rare.T)
    for column in A.T:
        values, counts = np.unique(column[_some(len(A))], return_counts=True)
        size = np.abs(column).max(initial=0.0)
        for value in values[counts >= GAP * counts.sum()]:
            less = column - value
            zero = np.abs(less) <= 1e-9 * size
            if not zero.all():
                found.append(np.where(zero, 0.0, less))
    every = _different(found, len(A))
    order = np.argsort(np.count_nonzero(every, axis=0), kind="stable")
    return every[:, order[:MOST]]


def _different(columns: list[Array], n: int) -> Array:
    """Columns of largest entry 1, (n, m), without those that are multiples of others."""
    kept: Array = np.zeros((n, 0))
    for column in columns:
        unit = column / np.abs(column).max()
        cosines = np.abs(unit @ kept) / np.linalg.norm(unit)
        if not (cosines >= (1.0 - 1e-12) * np.linalg.norm(kept, axis=0)).any():
            kept = np.column_stack([kept, unit])
    return kept
