"""Whether a few rows can be read off columns whose sums and products are told.

Let U be columns over n rows, and H the orthogonal projection on their span, the hat matrix. A
server that knows UᵀU and sums of U's columns knows them for every combination v = Uc as well. If
some v is zero outside of a set S of rows, these are numbers of the rows in S alone. Such a v has
Hv = v, and v = E v_S with the columns E of the identity that belong to S, so that
v_SᵀH_SS v_S = v_Sᵀv_S: the largest eigenvalue of H_SS is 1. It is never above 1, and
1 - λ_max(H_SS) is the least share of ‖v‖² that any v of the span has outside of S. So

- λ_max(H_SS) ≤ trace(H_SS) = Σ_{i in S} h_i: where the k - 1 largest leverages sum to less than 1,
  no v lives on fewer than k rows;
- otherwise sets of rows with high leverages are searched for λ_max(H_SS).

Pairs are searched exhaustively, which is all for k = 3; larger sets greedily from every row that
can be in one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from fedsplit.arrays import Array, Mask

SAME = 3e-14
"""A column of length 1 whose part outside of a span is shorter is in it, but for rounding."""

REGULAR = 1e-5
"""Above this least eigenvalue of a Gram matrix with a unit diagonal, its Cholesky factor gives an
orthonormal basis to about eps/REGULAR."""

TRIED = 12
"""Rows that are tried at each step of the greedy search."""

MOST_SEEDS = 500
"""Rows from which the greedy search starts, those of the highest leverages."""


class Found(NamedTuple):
    """Rows that can be read off.

    Attributes
    ----------
    rows : list of int
    share : float
        λ_max(H_SS): of the square of a vector of the span, the share that lies on them.
    """

    rows: list[int]
    share: float


class Span:
    """The span of columns over rows, by an orthonormal basis.

    Parameters
    ----------
    Q : (n, r) array, optional
        Orthonormal columns.

    Attributes
    ----------
    Q : (n, r) array
    leverages : (n,) array
        The diagonal of QQᵀ.
    """

    def __init__(self, Q: Array | None = None) -> None:
        if Q is None:
            Q = np.zeros((0, 0))
        self.Q = Q
        self.leverages: Array = np.einsum("ij,ij->i", Q, Q)

    def extended(self, columns: Array, rows: NDArray[np.intp]) -> Span:
        """The span with more columns, which are zero outside of their rows.

        Parameters
        ----------
        columns : (m, q) array
        rows : (m,) array of int
            Where they are; rows beyond those known so far are new.
        """
        n = max(len(self.Q), int(rows.max(initial=-1)) + 1)
        sizes = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        usable = np.isfinite(sizes) & (sizes > 0)
        C = columns[:, usable] / sizes[usable]
        if len(rows) < n or (rows[:-1] >= rows[1:]).any():
            padded = np.zeros((n, C.shape[1]))
            padded[rows] = C
            C = padded
        if self.Q.shape[1] == 0:
            return Span(_orthonormal(C))
        Q = np.zeros((n, self.Q.shape[1]))
        Q[: len(self.Q)] = self.Q
        left = _less(C, Q)
        outside = np.sqrt(np.einsum("ij,ij->j", left, left)) > SAME
        if not outside.any():
            return Span(Q)
        new = _orthonormal(_less(_orthonormal(left[:, outside]), Q))
        return Span(np.hstack([Q, new]))

    def concentrated(self, k: int, most: float) -> Found | None:
        """Fewer than k rows on which a vector of the span has more than a share of its square."""
        h = self.leverages
        if k < 2 or len(h) == 0:
            return None
        at = int(np.argmax(h))
        if h[at] > most:
            return Found([at], float(h[at]))
        largest = np.sort(np.partition(h, -min(k - 1, len(h)))[-(k - 1) :])
        if k == 2 or largest.sum() <= most:
            return None
        seeds = np.flatnonzero(h >= most / (k - 1))
        for seed in seeds[np.argsort(-h[seeds])][:MOST_SEEDS].tolist():
            found = self._pair(seed)
            if found.share <= most and k > 3:
                found = self._more(seed, k, most)
            if found.share > most:
                return found
        return None

    def _pair(self, i: int) -> Found:
        """The other row that has the most together with row i."""
        h = self.leverages
        together = self.Q @ self.Q[i]
        half = 0.5 * (h - h[i])
        shares = 0.5 * (h + h[i]) + np.hypot(half, together)
        shares[i] = 0.0
        j = int(np.argmax(shares))
        return Found([i, j], float(shares[j]))

    def _more(self, i: int, k: int, most: float) -> Found:
        """A set of at most k - 1 rows, grown from row i by the one that adds most."""
        rows = [i]
        best = Found(rows, float(self.leverages[i]))
        while len(rows) < k - 1:
            inside = self.Q[rows]
            _, vectors = np.linalg.eigh(inside @ inside.T)
            towards = np.abs(self.Q @ (inside.T @ vectors[:, -1])) + self.leverages
            towards[rows] = -1.0
            order = np.argpartition(-towards, min(TRIED, len(towards) - 1))[:TRIED]
            tried = [[*rows, j] for j in order.tolist() if towards[j] >= 0]
            if not tried:
                break
            sets = [Found(each, self._share(each)) for each in tried]
            best = max(sets, key=lambda found: found.share)
            rows = best.rows
            if best.share > most:
                break
        return best

    def _share(self, rows: list[int]) -> float:
        """λ_max(H_SS)."""
        inside = self.Q[rows]
        return float(np.linalg.eigvalsh(inside @ inside.T)[-1])


def _less(C: Array, Q: Array) -> Array:
    """Columns without their part in a span; twice, so that nothing is left but rounding."""
    C = C - Q @ (Q.T @ C)
    left: Array = C - Q @ (Q.T @ C)
    return left


def _orthonormal(C: Array) -> Array:
    """An orthonormal basis of columns of length at most 1, without those shorter than SAME."""
    if C.shape[1] == 0:
        return C
    gram = C.T @ C
    kept = _without_copies(C, gram)
    gram = gram[np.ix_(kept, kept)]
    sizes = np.sqrt(np.diag(gram))
    if sizes.min() > 0:
        scaled = gram / np.outer(sizes, sizes)
        if np.linalg.eigvalsh(scaled)[0] > REGULAR:
            root = np.zeros((C.shape[1], len(kept)))
            root[kept] = np.linalg.inv(np.linalg.cholesky(gram)).T
            found: Array = C @ root
            return found
    Q, R, _ = qr(C, mode="economic", pivoting=True)
    new: Mask = np.abs(np.diag(R)) > SAME
    basis: Array = Q[:, new]
    return basis


def _without_copies(C: Array, gram: Array) -> list[int]:
    """The columns that are not the same as one before them, to the last bit: (n, q), (q, q)."""
    kept: list[int] = []
    for j in range(C.shape[1]):
        alike = [i for i in kept if gram[i, j] >= 0.999 * gram[j, j]]
        if not any(np.array_equal(C[:, i], C[:, j]) for i in alike):
            kept.append(j)
    return kept
