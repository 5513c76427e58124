"""The rows of stacked clients, seen through what losses need of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fedsplit.arrays import (
    Array,
    chosen,
    extreme_eigenvalues,
    gram,
    matvec,
    namespace,
    norms,
    rmatvec,
)
from fedsplit.losses.batches import Indices
from fedsplit.losses.sparse import SparseDesign


@dataclass(frozen=True, eq=False)
class DenseDesign:
    """A_j of k clients, each with n rows and d columns, as an array.

    ``SparseDesign`` has the same members, for one client.
    """

    array: Array  # (k, n, d)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(k, n, d)."""
        k, n, d = self.array.shape
        return k, n, d

    @property
    def large(self) -> bool:
        """Whether matrices of d×d or n×n are too large: products with A_j are all there is."""
        return False

    def __getitem__(self, clients: list[int] | slice) -> DenseDesign:
        """The rows of some of the clients."""
        return DenseDesign(self.array[clients])

    def matrix(self, j: int) -> Array:
        """A_j, (n, d), as an array or a sparse array."""
        matrix: Array = self.array[j]
        return matrix

    def product(self, X: Array) -> Array:
        """A_jx_j: (k, d) -> (k, n)."""
        return matvec(self.array, X)

    def adjoint(self, R: Array) -> Array:
        """A_jᵀr_j: (k, n) -> (k, d)."""
        return rmatvec(self.array, R)

    def within(self, M: Array) -> Array:
        """A_jM_j: (k, d, c) -> (k, n, c)."""
        images: Array = namespace(self.array).matmul(self.array, M)
        return images

    def scaled(self, weights: Array) -> DenseDesign:
        """The rows, each times its number of (k, n)."""
        return DenseDesign(weights[:, :, None] * self.array)

    def chosen(self, rows: Indices) -> DenseDesign:
        """Some rows of each client, (k, B)."""
        return DenseDesign(chosen(self.array, rows))

    def crossed(self, roots: Array) -> DenseDesign:
        """The rows R_i ⊗ a_iᵀ: from (k, n, c, c) numbers, c rows of c·d columns for each row."""
        k, _, c, _ = roots.shape
        rows = roots[..., None] * self.array[:, :, None, None, :]
        return DenseDesign(rows.reshape(k, -1, c * self.array.shape[2]))

    def lengths(self) -> Array:
        """‖a_i‖ of every row, (k, n)."""
        k, n, d = self.shape
        xp = namespace(self.array)
        rows = xp.reshape(self.array, (k * n, d))
        lengths: Array = xp.reshape(norms(rows), (k, n))
        return lengths

    def squares(self) -> Array:
        """The diagonal of A_jᵀA_j, (k, d)."""
        xp = namespace(self.array)
        squares: Array = xp.sum(xp.square(self.array), axis=1)
        return squares

    def gram(self) -> Array:
        """A_jᵀA_j, (k, d, d)."""
        return gram(self.array)

    def inner(self, weights: float | Array) -> Array:
        """A_jdiag(weights)A_jᵀ, (k, n, n), with positive weights, one number or (d,)."""
        xp = namespace(self.array)
        scaled = self.array * weights**0.5
        # by symmetry, half the work
        products: Array = xp.matmul(scaled, xp.matrix_transpose(scaled))
        return products


Design: TypeAlias = DenseDesign | SparseDesign


def extremes(design: Design) -> tuple[Array, Array]:
    """The extreme eigenvalues of A_jᵀA_j, or bounds that enclose them, each (k,)."""
    _, n, d = design.shape
    if isinstance(design, SparseDesign) and design.large:
        largest = design.bound()
    elif n < d:  # the smallest is 0, and A_jA_jᵀ has the others
        largest = extreme_eigenvalues(design.inner(1.0))[1]
    else:
        return extreme_eigenvalues(design.gram())
    return 0.0 * largest, largest
