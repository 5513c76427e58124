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

The search starts from each row i that can have the largest entry of such a v: λv = H_SS v and
‖v‖ = 1 give v_i² ≤ h_i/λ, so that h_i ≥ λ/(k - 1). By Gershgorin's theorem λ is then at most
h_i + Σ|H_ij| over the other rows j of S, which excludes most rows. All sets of those that are left
are tried if there are few, as always for k = 3; otherwise good ones are looked for.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from fedsplit.arrays import Array
from fedsplit.errors import InputError

SAME = 3e-14
"""A column of length 1 whose part outside of a span is shorter is in it, but for rounding."""

INDEPENDENT = 0.1
"""Columns are taken together as long as so much of each is outside of the span of the others,
relative to the longest: so many digits, squared, are lost in the factor of their Gram matrix."""

TRIED = 12
"""Rows that are tried at each step of the greedy search, in each of two orders."""

MOST_SETS = 2_000
"""If no more sets than this can be the worst one with a row, all of them are tried."""

STEPS = 10
"""Of a search that moves from a set to the rows that its vector is largest on."""


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

    @property
    def rank(self) -> int:
        """How many independent columns there are."""
        return int(self.Q.shape[1])

    def extended(self, columns: Array, rows: NDArray[np.intp]) -> Span:
        """The span with more columns, which are zero outside of their rows.

        Parameters
        ----------
        columns : (m, q) array
        rows : (m,) array of int
            Where they are; rows beyond those known so far are new.

        Raises
        ------
        InputError
            If an entry is not finite: what cannot be looked at must not be told.
        """
        n = max(len(self.Q), int(rows.max(initial=-1)) + 1)
        C = of_size_one(columns)
        C = C[:, C.any(axis=0)]
        C /= np.sqrt(np.einsum("ij,ij->j", C, C))
        if len(rows) < n or (rows[:-1] >= rows[1:]).any():
            padded = np.zeros((n, C.shape[1]))
            padded[rows] = C
            C = padded
        Q = np.zeros((n, self.rank))
        Q[: len(self.Q)] = self.Q
        return Span(_extended(Q, C))

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
        for seed in seeds[np.argsort(-h[seeds])].tolist():
            together = self.Q @ self.Q[seed]
            found = self._pair(seed, together)
            if found.share <= most and k > 3:
                found = self._more(seed, together, k, most)
            if found.share > most:
                return found
        return None

    def _pair(self, i: int, together: Array) -> Found:
        """The other row that has the most together with row i; ``together`` is that row of H."""
        h = self.leverages
        half = 0.5 * (h - h[i])
        shares = 0.5 * (h + h[i]) + np.hypot(half, together)
        shares[i] = 0.0
        j = int(np.argmax(shares))
        return Found([i, j], float(shares[j]))

    def _more(self, i: int, together: Array, k: int, most: float) -> Found:
        """At most k - 1 rows whose vector is largest on row i: the worst ones, if sets are few."""
        partners = np.abs(together)
        partners[i] = -np.inf
        others = min(k - 2, len(partners) - 1)
        largest = np.sort(np.partition(partners, -others)[-others:])
        missing = most - self.leverages[i]
        if largest.sum() <= missing:
            return Found([i], float(self.leverages[i]))
        # a row with less than this cannot be in a set whose bound is above the limit
        possible = np.flatnonzero(partners > missing - largest[1:].sum())
        if math.comb(len(possible), others) <= MOST_SETS:
            return self._worst([[i, *each] for each in combinations(possible.tolist(), others)])
        found = [self._grown(i, k, most), self._moved(i, partners, k)]
        return max(found, key=lambda each: each.share)

    def _grown(self, i: int, k: int, most: float) -> Found:
        """A set that is grown from row i by the row that adds most."""
        best = Found([i], float(self.leverages[i]))
        roots = np.sqrt(np.maximum(self.leverages, np.finfo(np.float64).tiny))
        while len(best.rows) < k - 1 and best.share <= most:
            towards = np.abs(self.Q @ self._direction(best.rows))
            towards[best.rows] = 0.0
            # partners of these rows, and rows of a high leverage of their own
            orders = (towards / roots, towards + self.leverages * (towards > 0))
            rows = {j for order in orders for j in np.argsort(-order)[:TRIED].tolist()}
            best = self._worst([[*best.rows, j] for j in sorted(rows - set(best.rows))])
        return best

    def _moved(self, i: int, partners: Array, k: int) -> Found:
        """A set that moves to the rows on which the vector of the span nearest to it is largest."""
        start = partners.copy()
        start[i] = np.inf
        best = self._worst([np.argsort(-start)[: k - 1].tolist()])
        for _ in range(STEPS):
            vector = np.abs(self.Q @ self._direction(best.rows))
            found = self._worst([np.argsort(-vector)[: k - 1].tolist()])
            if found.share <= best.share:
                break
            best = found
        return best

    def _direction(self, rows: list[int]) -> Array:
        """The coefficients of the vector of the span that has its largest share on these rows."""
        inside = self.Q[rows]
        _, vectors = np.linalg.eigh(inside @ inside.T)
        found: Array = inside.T @ vectors[:, -1]
        return found

    def _worst(self, sets: list[list[int]]) -> Found:
        """The one of sets of equal size with the largest λ_max(H_SS)."""
        inside = self.Q[np.array(sets)]
        shares = np.linalg.eigvalsh(inside @ inside.transpose(0, 2, 1))[:, -1]
        at = int(np.argmax(shares))
        return Found(sets[at], float(shares[at]))


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

    What is shorter than SAME is in the span already. The columns that are far from dependent come
    first, by Cholesky factors of their Gram matrix, which is several times as fast as a QR with
    pivoting; then what is left of the others.
    """
    while True:
        C = _less(C, Q)
        C = C[:, np.sqrt(np.einsum("ij,ij->j", C, C)) > SAME]
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
