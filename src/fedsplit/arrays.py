"""The array type, and linear algebra on stacked arrays.

Stacked arrays hold one client per row. ``np.matmul`` over the leading axis computes each client's
product on its own, at memory speed, so that a client's bits never depend on which other clients
share the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy
from scipy.linalg.lapack import dpotrs, dtrtri

Array: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]

CACHED = 2**15
"""Numbers, 256 kB of them, that stay in a core's cache."""

SPLITTER = 2.0**27 + 1.0
"""A product with this splits the 53 bits of a number in two halves."""


def on_host(X: Any) -> bool:
    """Whether this is a NumPy array, and not one on a device or a block vector."""
    return isinstance(X, np.ndarray)


def _namespace(X: Array) -> Any:
    """The library of an array; NumPy's own functions take less time than a wrapped namespace."""
    if on_host(X):
        return np
    return array_namespace(X)


def matvec(M: Array, X: Array) -> Array:
    """M_j x_j for every j: (k, n, d), (k, d) -> (k, n)."""
    if not on_host(M) and M.shape[1] == 1:
        return dots(M[:, 0, :], X)[:, None]
    product: Array = _namespace(M).matmul(M, X[:, :, None])[:, :, 0]
    return product


def rmatvec(M: Array, R: Array) -> Array:
    """M_jᵀ r_j for every j: (k, n, d), (k, n) -> (k, d)."""
    if not on_host(M) and M.shape[1] == 1:
        return R * M[:, 0, :]
    product: Array = _namespace(M).matmul(R[:, None, :], M)[:, 0, :]
    return product


def repeated(x: Array, k: int) -> Array:
    """x as k equal rows, (k, d), without a copy."""
    # np.broadcast_to gives the same view, but costs as much time as a small product
    return np.ndarray((k, x.shape[0]), x.dtype, x, 0, (0, x.strides[0]))


def dots(X: Array, Y: Array) -> Array:
    """⟨x_j, y_j⟩ for every j: (k, d), (k, d) -> (k,)."""
    if on_host(X):
        products: Array = np.vecdot(X, Y)
        return products
    # on a device, sums over short rows are fastest as a product with ones
    XY = X * Y
    summed: Array = XY @ array_namespace(XY).ones_like(XY[0, :])
    return summed


def column_sums(X: Array) -> Array:
    """Σ_j x_j: (k, d) -> (d,)."""
    if on_host(X):
        summed: Array = np.sum(X, axis=0)
        return summed
    # the same as for ``dots``
    ones: Array = array_namespace(X).ones_like(X[:, 0])
    return ones @ X


def column_means(X: Array) -> Array:
    """The mean of the rows, of an array or of a block vector: (k, d) -> (d,)."""
    if on_host(X):
        mean: Array = np.mean(X, axis=0)
        return mean
    xp = array_namespace(X)
    if not hasattr(xp, "ones_like"):  # a block vector, which knows its mean
        known: Array = xp.mean(X, axis=0)
        return known
    of_rows: Array = column_sums(X) / X.shape[0]
    return of_rows


def norms(X: Array) -> Array:
    """‖x_j‖ for every j: (k, d) -> (k,)."""
    lengths: Array = _namespace(X).sqrt(dots(X, X))
    return lengths


def length(x: Array) -> float:
    """√(Σ x_i²) over all entries, of an array or of a block vector."""
    if on_host(x):
        return float(np.linalg.norm(x))
    return float(array_namespace(x).linalg.vector_norm(x))


def combination(weights: Sequence[float], arrays: Sequence[Array]) -> Array:
    """Σ_i w_i X_i of arrays or block vectors of one shape; arrays are added in place."""
    total = weights[0] * arrays[0]
    terms = list(zip(weights[1:], arrays[1:], strict=True))
    if not is_numpy_array(total):
        for weight, X in terms:
            total = total + weight * X
        return total
    summed = total.reshape(-1)
    flat = [(weight, X.reshape(-1)) for weight, X in terms]
    for first in range(0, len(summed), CACHED):  # what is added to stays in the cache
        piece = slice(first, first + CACHED)
        for weight, X in flat:
            daxpy(X[piece], summed[piece], a=weight)  # in place
    return summed.reshape(total.shape)


def gram(A: Array) -> Array:
    """A_jᵀ A_j for every j: (k, n, d) -> (k, d, d)."""
    products: Array = np.matmul(np.swapaxes(A, 1, 2), A)
    return products


def add_diagonal(M: Array, D: Array) -> Array:
    """M_j + diag(D) for every j, in place: (k, d, d), (d,) or (k, d) -> (k, d, d)."""
    np.einsum("kii->ki", M)[...] += D
    return M


def solve_rows(M: Array, G: Array) -> Array:
    """M_j⁻¹ g_j for every j: (k, d, d), (k, d) -> (k, d)."""
    solution: Array = np.linalg.solve(M, G[:, :, None])[:, :, 0]
    return solution


def extreme_eigenvalues(H: Array) -> tuple[Array, Array]:
    """The smallest and the largest eigenvalue of every H_j ⪰ 0: (k, d, d) -> (k,), (k,).

    A smallest eigenvalue at the level of rounding is 0. Of a matrix that is not finite they are 0
    and inf.
    """
    finite: Mask = np.asarray(np.isfinite(H).all(axis=(1, 2)))
    spectrum = np.linalg.eigvalsh(np.where(finite[:, None, None], H, 0.0))
    spectrum[~finite, -1] = np.inf
    smallest = spectrum[:, 0]
    largest = spectrum[:, -1]
    rounding = 4 * H.shape[-1] * np.finfo(np.float64).eps * largest
    return np.where(smallest > rounding, smallest, 0.0), np.maximum(largest, 0.0)


def largest_eigenvalue(B: Array) -> Array:
    """The largest eigenvalue of every B_jᵀB_j: (k, n, d) -> (k,)."""
    n, d = B.shape[1:]
    if n >= d:
        return extreme_eigenvalues(gram(B))[1]
    return extreme_eigenvalues(np.matmul(B, np.swapaxes(B, 1, 2)))[1]  # the smaller product


def packed(M: Array) -> Array:
    """The lower triangles of symmetric matrices: (..., d, d) -> (..., d(d + 1)/2)."""
    d = M.shape[-1]
    entries = np.empty((*M.shape[:-2], d * (d + 1) // 2))
    for i in range(d):  # rows are copied at memory speed, indices are not
        entries[..., i * (i + 1) // 2 : (i + 1) * (i + 2) // 2] = M[..., i, : i + 1]
    return entries


def unpacked(entries: Array) -> Array:
    """The symmetric matrices with these lower triangles: undoes ``packed``."""
    d = int(np.sqrt(2 * entries.shape[-1]))
    M = np.empty((*entries.shape[:-1], d, d))
    for i in range(d):
        row = entries[..., i * (i + 1) // 2 : (i + 1) * (i + 2) // 2]
        M[..., i, : i + 1] = row
        M[..., : i + 1, i] = row
    return M


def exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The products ab exactly, each as the sum of a pair."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, error


def _halves(a: Array) -> tuple[Array, Array]:
    """A number as the sum of two of 26 bits each."""
    c = SPLITTER * a
    high = c - (c - a)
    return high, a - high


class Cholesky:
    """Factors of symmetric, positive definite matrices, (k, d, d), one per client.

    Units are taken out first: M_j = S_j C_j S_j, where the diagonal of C_j is 1, and ``shift`` is
    added to that. If rounding leaves a C_j indefinite all the same, it gets a larger shift.
    """

    def __init__(self, M: Array, shift: float = 1e-14) -> None:
        diagonal = np.einsum("kii->ki", M)
        self.sizes: Array = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        self._shift = shift
        C = M / (self.sizes[:, :, None] * self.sizes[:, None, :])
        add_diagonal(C, np.full(M.shape[1], shift))
        try:
            self._factors: Array = np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            self._factors = np.stack([_factor(each, shift) for each in C])

    def solve(self, G: Array) -> Array:
        """M_j⁻¹ g_j for every j: (k, d) -> (k, d)."""
        scaled = G / self.sizes
        for j, L in enumerate(self._factors):
            scaled[j] = dpotrs(L.T, scaled[j], lower=0)[0]
        return scaled / self.sizes

    @property
    def inverses(self) -> Array:
        """The M_j⁻¹, (k, d, d)."""
        d = self.sizes.shape[1]
        inverses = np.stack([dpotrs(L.T, np.eye(d), lower=0)[0] for L in self._factors])
        return inverses / (self.sizes[:, :, None] * self.sizes[:, None, :])

    @property
    def freedom(self) -> Array:
        """How many directions the M_j determine: d - shift · tr C_j⁻¹, (k,)."""
        inverses = (dtrtri(L.T, lower=0)[0] for L in self._factors)
        lost = np.array([np.sum(np.square(inverse)) for inverse in inverses])
        freedom: Array = self.sizes.shape[1] - self._shift * lost
        return freedom


def _factor(C: Array, shift: float) -> Array:
    """The Cholesky factor of C, (d, d), with the least shift in steps of ten that it needs."""
    while True:
        try:
            return np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            if not shift < 1.0:
                raise
            C = C + 9.0 * shift * np.eye(len(C))
            shift *= 10.0
