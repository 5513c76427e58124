"""How much of a combination of disclosed sums can rest on single rows.

Let U be vectors over n rows whose sums were disclosed. A reader knows the sum of every combination
w = Uc as well. Of the square of any such w, row i has at most the share

    w_i² ≤ h_i ‖w‖²,    h_i = u_iᵀ(UᵀU)⁻¹u_i,

and rows S together at most Σ_{i in S} h_i. At h_i = 1 some combination is a number of row i alone.
h only grows as more is disclosed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from fedsplit.arrays import Array
from fedsplit.errors import InputError

RESOLUTION = 1e-12
"""A vector of length 1 whose part outside of a span is shorter discloses nothing new: sums are
rounded to 2⁻⁴⁴ of the lengths of what is multiplied, which hides that part."""

INDEPENDENT = 0.1
"""Columns are taken together as long as so much of each is outside of the span of the others,
relative to the longest: so many digits, squared, are lost in the factor of their Gram matrix."""


class Span:
    """The span of vectors over rows, by an orthonormal basis that is extended.

    Parameters
    ----------
    Q : (n, r) array, optional
        Orthonormal columns.

    Attributes
    ----------
    Q : (n, r) array
    leverages : (n,) array
        h: the diagonal of QQᵀ.
    """

    def __init__(self, Q: Array | None = None) -> None:
        if Q is None:
            Q = np.zeros((0, 0))
        self.Q = Q
        self.leverages: Array = np.einsum("ij,ij->i", Q, Q)

    @property
    def rank(self) -> int:
        """How many independent columns there are."""
        return int(self.Q.shape[1])

    def extended(self, columns: Array, rows: NDArray[np.intp]) -> Span:
        """The span with more columns, (m, q), which are zero outside of their rows, (m,).

        Rows beyond those known so far are new; columns of one row that comes twice are added.

        Raises
        ------
        InputError
            If an entry is not finite.
        """
        n = max(len(self.Q), int(rows.max(initial=-1)) + 1)
        C = by_row(of_size_one(columns), rows, n)
        C = C[:, C.any(axis=0)]
        C /= np.sqrt(np.einsum("ij,ij->j", C, C))
        Q = np.zeros((n, self.rank))
        Q[: len(self.Q)] = self.Q
        return Span(_extended(Q, C))


def by_row(columns: Array, rows: NDArray[np.intp], n: int) -> Array:
    """Columns over n rows, (n, q), of which some rows have these entries; the others have zeros."""
    found = np.zeros((n, columns.shape[1]))
    if (rows[:-1] < rows[1:]).all():
        found[rows] = columns
    else:
        np.add.at(found, rows, columns)
    return found


def of_size_one(columns: Array) -> Array:
    """Columns, (n, q), by powers of two whose largest entries are about 1: squares stay numbers.

    Raises
    ------
    InputError
        If an entry is not finite.
    """
    largest = np.abs(columns).max(axis=0, initial=0.0)
    if not np.isfinite(largest).all():
        raise InputError("a column has a number that is not finite")
    _, exponents = np.frexp(largest)
    # 2^1074 is beyond float64
    found: Array = columns * np.ldexp(1.0, -np.maximum(exponents, -1000))
    return found


def _less(C: Array, Q: Array) -> Array:
    """Columns without their part in a span; twice, so that nothing is left but rounding."""
    if Q.shape[1] == 0:
        return C
    C = C - Q @ (Q.T @ C)
    left: Array = C - Q @ (Q.T @ C)
    return left


def _extended(Q: Array, C: Array) -> Array:
    """An orthonormal basis of the span of Q, which is one, and of columns of length at most 1.

    The columns that are far from dependent come first, by Cholesky factors of their Gram matrix,
    which is several times as fast as a QR with pivoting; then what is left of the others.
    """
    while True:
        C = _less(C, Q)
        C = C[:, np.sqrt(np.einsum("ij,ij->j", C, C)) > RESOLUTION]
        if C.shape[1] == 0:
            return Q
        gram = C.T @ C
        _, order, rank, _ = dpstrf(gram, tol=np.square(INDEPENDENT) * gram.diagonal().max())
        chosen = order[:rank] - 1
        new = _by_cholesky(_less(_by_cholesky(C[:, chosen]), Q))
        Q = np.hstack([Q, new])
        C = np.delete(C, chosen, axis=1)


def _by_cholesky(C: Array) -> Array:
    """An orthonormal basis of independent columns."""
    found: Array = C @ np.linalg.inv(np.linalg.cholesky(C.T @ C)).T
    return found
