"""The array type, and the batched products that stacked clients are made of.

Stacked arrays hold one client a row. ``np.matmul`` over the leading axis runs each client's product on its own, at
memory speed, so a client's bits never depend on which other clients share the array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]


def matvec(M: Array, X: Array) -> Array:
    """M_j x_j for every j: (k, n, d), (k, d) -> (k, n)."""
    product: Array = np.matmul(M, X[:, :, None])[:, :, 0]
    return product


def rmatvec(M: Array, R: Array) -> Array:
    """M_jᵀ r_j for every j: (k, n, d), (k, n) -> (k, d)."""
    product: Array = np.matmul(R[:, None, :], M)[:, 0, :]
    return product


def repeated(x: Array, k: int) -> Array:
    """x as k equal rows, (k, d), without a copy. (``np.broadcast_to`` costs as much as a small product.)"""
    return np.ndarray((k, x.shape[0]), x.dtype, x, 0, (0, x.strides[0]))


def dots(X: Array, Y: Array) -> Array:
    """⟨x_j, y_j⟩ for every j: (k, d), (k, d) -> (k,)."""
    products: Array = np.sum(X * Y, axis=1)
    return products


def norms(X: Array) -> Array:
    """‖x_j‖ for every j: (k, d) -> (k,)."""
    lengths: Array = np.sqrt(dots(X, X))
    return lengths


def gram(A: Array) -> Array:
    """A_jᵀ A_j for every j: (k, n, d) -> (k, d, d)."""
    products: Array = np.matmul(np.swapaxes(A, 1, 2), A)
    return products


def add_diagonal(M: Array, D: Array) -> Array:
    """M_j + diag(D) for every j, in place."""
    np.einsum("kii->ki", M)[...] += D
    return M


def solve_rows(M: Array, G: Array) -> Array:
    """M_j⁻¹ g_j for every j."""
    solution: Array = np.linalg.solve(M, G[:, :, None])[:, :, 0]
    return solution
