"""Whether a difference of two vectors over rows is told of few rows.

At two points a site tells Σ_i s_i a_i and Σ_i s'_i a_i, or Σ_i D_i a_i a_iᵀ, so that a server knows
the same of d = s - s'. It may be spread over many rows while d_i a_i is not.

- The rows |d_i| a_i obey the rule for columns, with the limit of combinations. For weights there
  are products of two columns a_ij a_il under d: those of two columns that have gaps, conditions and
  levels and either times another column, are not to be those of few rows.
- A vector less the combination of those nearest to it that equals it on most rows, or on most of
  those of a condition, is such a difference too.

The second is a search, and no proof.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from fedsplit.arrays import Array
from fedsplit.regression.client.guards.leverage import SAME, Found, Span
from fedsplit.regression.client.guards.sparse import NOISE, rare_columns, sparsest, with_gaps

ROUNDING = 1e-14
"""The part of a difference of two numbers, relative to them, that is rounding."""

NEAREST = 24
"""A combination of so many earlier vectors is searched for: those nearest in direction."""

MOST_PRODUCTS = 2**22
"""At most so many products of two columns are kept, (n, p²): of some rows, if there are more."""

TINY = np.finfo(np.float64).tiny


class Differences:
    """Whether few rows carry a direction of Σ_i d_i² a_i a_iᵀ, or a product of two columns under d.

    Parameters
    ----------
    A : (n, p) array
        The rows of a design.
    k, most
        Fewer than k rows may have at most this share.
    """

    def __init__(self, A: Array, k: int, most: float) -> None:
        self._plain = Span().extended(A, np.arange(len(A)))
        self._rare = rare_columns(A)
        self._cells = np.square(with_gaps(A, self._rare))
        self._k = k
        self._most = most
        # if every row has at most this, no k - 1 of them have more than ``most``
        self._each = most / max(k - 1, 1)
        n, p = self._plain.Q.shape
        # a Gram matrix of some rows is a lower bound on that of all
        self._some = slice(0, n, max(1, n * p * p // MOST_PRODUCTS))
        rows = self._plain.Q[self._some]
        self._products = np.einsum("ij,il->ijl", rows, rows).reshape(len(rows), p * p)

    def found(self, vector: Array, earlier: Array, own: Array, matrix: bool) -> Found | None:
        """Rows that a difference of a vector and others is told of.

        Parameters
        ----------
        vector : (n,) array
        earlier : (n, q) array
            What was told at other points.
        own : (n, r) array
            What the moments of the same rows tell.
        matrix : bool
            Whether it is told with products of two columns.
        """
        nearest = np.column_stack([own, _nearest(vector, earlier)])
        return next(
            (each for each in self._all(vector, earlier, nearest, matrix) if each is not None), None
        )

    def _all(
        self, vector: Array, earlier: Array, nearest: Array, matrix: bool
    ) -> Iterator[Found | None]:
        """What each comparison finds, the cheap ones first."""
        differences, floors = _differences(vector, np.column_stack([earlier, nearest]))
        for at in self._suspects(np.square(differences)).tolist():
            yield self._carried(differences[:, at], floors[at])
        sparse = sparsest(vector, nearest)
        yield self._concentrated(sparse, self._plain.Q)
        if matrix:
            last = slice(earlier.shape[1], None)
            for difference, floor in zip(differences[:, last].T, floors[last], strict=True):
                yield self._in_cells(difference, floor)
            for difference in sparse.T:
                yield self._in_cells(difference, SAME)
        for column in self._rare.T:
            yield self._within(column, vector, nearest, matrix)

    def _within(self, column: Array, vector: Array, others: Array, matrix: bool) -> Found | None:
        """The same among the rows of one column, (n,)."""
        rows = np.flatnonzero(column)
        own = column[rows]
        sparse = sparsest(own * vector[rows], own[:, None] * others[rows])
        found = self._concentrated(sparse, np.ones((len(rows), 1)))
        if matrix and sparse.size and found is None:
            cells = np.sqrt(self._cells[rows])
            each = (self._concentrated(sparse, cells[:, [at]]) for at in range(cells.shape[1]))
            found = next((few for few in each if few is not None), None)
        if found is None:
            return None
        return found._replace(rows=rows[found.rows].tolist())

    def _concentrated(self, sparse: Array, columns: Array) -> Found | None:
        """Fewer than k rows that have most of a combination of products of both, (n, t), (n, p)."""
        used = np.flatnonzero(sparse.any(axis=1))
        if len(used) == 0:
            return None
        products = sparse[used][:, :, None] * columns[used][:, None, :]
        left, sizes, _ = np.linalg.svd(products.reshape(len(used), -1), full_matrices=False)
        found = Span(left[:, sizes > SAME]).concentrated(self._k, self._most)
        if found is None:
            return None
        return found._replace(rows=used[found.rows].tolist())

    def _in_cells(self, difference: Array, floor: float) -> Found | None:
        """Fewer than k rows that have most of a product of two columns under a difference."""
        used = np.flatnonzero(difference)
        squares = np.square(difference[used])[:, None]
        cells = self._cells[used]
        total = cells.T @ (squares * cells)
        fourth = np.square(cells).T @ (np.square(squares) * np.square(cells))
        # max_i x_i ≤ (Σ_i x_i²)^½
        alone = (np.sqrt(fourth) > self._each * total) & (total > floor**2)
        suspects = np.argwhere(np.triu(alone))
        for one, two in suspects.tolist():
            found = self._few(squares * cells[:, [one]] * cells[:, [two]], used)
            if found is not None:
                return found
        return None

    def _few(self, squares: Array, rows: NDArray[np.intp]) -> Found | None:
        """Fewer than k rows that have more than a share of some column of squares, (n, q)."""
        few = np.argsort(-squares, axis=0)[: self._k - 1]
        sums = np.take_along_axis(squares, few, axis=0).sum(axis=0)
        shares = sums / np.maximum(squares.sum(axis=0), TINY)
        at = int(np.argmax(shares))
        if shares[at] <= self._most:
            return None
        return Found(rows[few[:, at]].tolist(), float(shares[at]))

    def _suspects(self, squares: Array) -> NDArray[np.intp]:
        """The columns of d², (n, q), that the Gram matrices of some rows do not prove harmless."""
        p = self._plain.rank
        grams = (self._products.T @ squares[self._some]).T.reshape(-1, p, p)
        least = np.linalg.eigvalsh(grams)[:, 0]
        sizes = squares * self._plain.leverages[:, None]
        # d_i² q_iᵀG⁻¹q_i ≤ d_i² h_i/λ_min(G)
        harmless = sizes.max(axis=0) <= self._each * least
        left = np.flatnonzero(~harmless & squares.any(axis=0))
        regular = left[least[left] > NOISE * np.trace(grams[left], axis1=1, axis2=2)]
        if len(self._products) == len(squares) and len(regular):
            inverses = np.linalg.inv(grams[regular]).reshape(-1, p * p)
            leverages = squares[:, regular] * (self._products @ inverses.T)
            harmless[regular] = leverages.max(axis=0) <= self._each
        suspects: NDArray[np.intp] = left[~harmless[left]]
        return suspects

    def _carried(self, difference: Array, floor: float) -> Found | None:
        """Fewer than k rows that have most of a direction of Σ_i d_i² a_i a_iᵀ.

        Directions that are shorter than ``floor`` are rounding.
        """
        rows = np.abs(difference)[:, None] * self._plain.Q
        gram = rows.T @ rows
        least = float(np.linalg.eigvalsh(gram)[0])
        if least > NOISE * float(np.trace(gram)):
            sizes = np.square(difference) * self._plain.leverages
            large = rows[sizes > self._each * least]
            whitened = solve_triangular(np.linalg.cholesky(gram), large.T, lower=True)
            if np.square(whitened).sum(axis=0).max(initial=0.0) <= self._each:
                return None
        left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
        return Span(left[:, sizes > floor]).concentrated(self._k, self._most)


def _differences(vector: Array, earlier: Array) -> tuple[Array, Array]:
    """The difference of a vector, (n,), and each earlier one, (n, q), at length 1.

    With them the length of what is rounding in each, (q,).
    """
    differences = vector[:, None] - earlier
    rounding = np.abs(differences) <= ROUNDING * (np.abs(vector)[:, None] + np.abs(earlier))
    differences[rounding] = 0.0
    sizes = np.sqrt(np.einsum("ij,ij->j", differences, differences))
    # so little of a sum is its rounding, whichever rows it comes from
    least = SAME * float(np.linalg.norm(vector))
    differences[:, sizes <= least] = 0.0
    sizes = np.where(sizes > least, sizes, 1.0)
    return differences / sizes, least / sizes


def _nearest(vector: Array, earlier: Array) -> Array:
    """The earlier vectors, (n, q), that have the directions nearest to a vector's, (n,)."""
    sizes = np.linalg.norm(earlier, axis=0)
    cosines = np.abs(vector @ earlier) / np.where(sizes > 0, sizes, 1.0)
    nearest: Array = earlier[:, np.argsort(-cosines)[:NEAREST]]
    return nearest
