"""The rows of stacked clients, seen through what losses need of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import block_array, csr_array

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
from fedsplit.errors import InputError
from fedsplit.losses.batches import Indices

SMALL = 256
"""Up to this many rows or columns, a matrix of that size takes no more than a few products."""

LARGEST = 8192
"""The most columns of a Hessian: above, it takes more than half a gigabyte."""


@dataclass(frozen=True, eq=False)
class SparseDesign:
    """One client's rows, by rows (CSR), with the members of ``DenseDesign``."""

    # (n, d), canonical and finite. Shared with the user's matrix where that is possible
    A: csr_array

    @property
    def shape(self) -> tuple[int, int, int]:
        n, d = self.A.shape
        return 1, int(n), int(d)

    @property
    def large(self) -> bool:
        _, n, d = self.shape
        return min(n, d) > SMALL or d > LARGEST

    @property
    def array(self) -> Array:
        raise InputError("this needs all rows as an array, and they are sparse: pass A.toarray()")

    def __getitem__(self, clients: list[int] | slice) -> SparseDesign:
        return self  # it is the only one

    def matrix(self, j: int) -> csr_array:
        return self.A

    @cached_property
    def _transposed(self) -> Any:
        return self.A.T  # by columns, without a copy

    def product(self, X: Array) -> Array:
        result: Array = (self.A @ X[0])[None]
        return result

    def adjoint(self, R: Array) -> Array:
        result: Array = (self._transposed @ R[0])[None]
        return result

    def within(self, M: Array) -> Array:
        result: Array = (self.A @ M[0])[None]
        return result

    def scaled(self, weights: Array) -> SparseDesign:
        return self._with(self.A.data * np.repeat(weights[0], np.diff(self.A.indptr)))

    def chosen(self, rows: Indices) -> SparseDesign:
        return SparseDesign(self.A[rows[0]])

    def crossed(self, roots: Array) -> SparseDesign:
        _, n, c, _ = roots.shape
        blocks = [[self.scaled(roots[:, :, a, e]).A for e in range(c)] for a in range(c)]
        by_class = csr_array(block_array(blocks))
        order = (np.arange(n)[:, None] + n * np.arange(c)).reshape(-1)  # row by row, as if dense
        return SparseDesign(by_class[order])

    def lengths(self) -> Array:
        squared = self._with(np.square(self.A.data)).A
        result: Array = np.sqrt(squared @ np.ones(self.A.shape[1]))[None]
        return result

    def squares(self) -> Array:
        squared = np.square(self.A.data)
        sums = np.bincount(self.A.indices, squared, minlength=self.A.shape[1])
        return sums.astype(np.float64, copy=False)[None]  # of no entries, they are integers

    def gram(self) -> Array:
        return self._product(self._transposed, self.A)

    def inner(self, weights: float | Array) -> Array:
        roots = np.broadcast_to(weights**0.5, self.A.shape[1])
        scaled = self._with(self.A.data * roots[self.A.indices]).A
        return self._product(scaled, scaled.T)

    def bound(self, powers: int = 4) -> Array:
        """λ_max(AᵀA) ≤ λ_max(|A|ᵀ|A|) ≤ max_i (|A|ᵀ|A|v)_i/v_i for any v > 0, and ≤ ‖A‖_F², (1,).

        This is Collatz and Wielandt's bound. With v = 1 it is at most ‖A‖₁‖A‖_∞, and it falls with
        every step of the power method, hardly any more after four.
        """
        sizes = self._with(np.abs(self.A.data)).A
        v = np.ones(self.A.shape[1])
        least = float(np.sum(np.square(self.A.data)))
        for _ in range(powers):
            image = sizes.T @ (sizes @ v)
            least = min(least, float(np.max(image / v)))
            v = np.where(image > 0, image, 1.0)
            v /= v.max()
        rounding = 4.0 * float(sum(self.A.shape)) * sys.float_info.epsilon
        return np.array([least * (1.0 + rounding)])

    def _with(self, data: Array) -> SparseDesign:
        """Rows with entries at the places of these, and other numbers there."""
        A = self.A
        return SparseDesign(csr_array((data, A.indices, A.indptr), shape=A.shape))

    @staticmethod
    def _product(left: Any, right: Any) -> Array:
        """The product of two sparse matrices, as (1, size, size)."""
        size = left.shape[0]
        if size > LARGEST:
            raise InputError(
                f"a matrix of {size} × {size} numbers is too large: use QuasiNewton(), LBFGS() "
                "or another method that asks for vectors only"
            )
        result: Array = (left @ right).toarray()[None]
        return result


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
        result: Array = self.array[j]
        return result

    def product(self, X: Array) -> Array:
        """A_jx_j: (k, d) -> (k, n)."""
        return matvec(self.array, X)

    def adjoint(self, R: Array) -> Array:
        """A_jᵀr_j: (k, n) -> (k, d)."""
        return rmatvec(self.array, R)

    def within(self, M: Array) -> Array:
        """A_jM_j: (k, d, c) -> (k, n, c)."""
        result: Array = namespace(self.array).matmul(self.array, M)
        return result

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
        result: Array = xp.reshape(norms(rows), (k, n))
        return result

    def squares(self) -> Array:
        """The diagonal of A_jᵀA_j, (k, d)."""
        xp = namespace(self.array)
        result: Array = xp.sum(xp.square(self.array), axis=1)
        return result

    def gram(self) -> Array:
        """A_jᵀA_j, (k, d, d)."""
        return gram(self.array)

    def inner(self, weights: float | Array) -> Array:
        """A_jdiag(weights)A_jᵀ, (k, n, n), with positive weights, one number or (d,)."""
        xp = namespace(self.array)
        scaled = self.array * weights**0.5
        # by symmetry, half the work
        result: Array = xp.matmul(scaled, xp.matrix_transpose(scaled))
        return result


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
