"""The array type, and linear algebra on stacked arrays.

Stacked arrays hold one client per row. ``np.matmul`` over the leading axis computes each client's
product on its own, at memory speed, so that a client's bits never depend on which other clients
share the array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_jax_array,
    is_numpy_array,
    to_device,
)
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

Array: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]

EPS = float(np.finfo(np.float64).eps)
"""The unit roundoff, twice: the distance from 1 to the next float."""

AnyArray: TypeAlias = Any
"""An array of NumPy or of another library."""

Metric: TypeAlias = "float | Array"
"""M of a norm ‖e‖²_M = eᵀMe: a number, a diagonal (d,), or a matrix (d, d) or (k, d, d)."""


def on_host(X: Any) -> bool:
    """Whether this is a NumPy array, and not one on a device."""
    return isinstance(X, np.ndarray)


def namespace(X: AnyArray) -> Any:
    """The library of an array; NumPy's own functions take less time than a wrapped namespace."""
    if isinstance(X, np.ndarray):
        return np
    return array_namespace(X)


def on_device(values: object) -> bool:
    """Whether this is an array of another library than NumPy."""
    if is_numpy_array(values):
        return False
    try:
        return bool(is_array_api_obj(values))
    except AttributeError:  # a module of the user's has the name of an array library
        return False


def to_host(values: Any) -> Array:
    """An array as a NumPy array, copied from its device if it is on one."""
    if not on_device(values):
        return np.asarray(values)
    xp = array_namespace(values)
    if hasattr(values, "get"):  # CuPy
        return np.asarray(values.get())
    if xp.__name__.endswith("array_api_strict"):
        return np.asarray(to_device(values, xp.Device("CPU_DEVICE")))
    if is_jax_array(values):  # its devices have no names
        return np.asarray(values)
    return np.asarray(to_device(values, "cpu"))


def like(values: Array, other: AnyArray) -> Array:
    """An array of this process, where another array is."""
    return values if on_host(other) else placed(values, other)


def placed(values: Any, other: AnyArray) -> AnyArray:
    """Numbers in float64, where another array is."""
    xp = array_namespace(other)
    if on_device(values):
        return xp.astype(values, xp.float64, copy=False)
    # a copy, as PyTorch takes no arrays that cannot be written to
    return xp.asarray(np.array(values, dtype=np.float64), device=device(other))


def chosen(rows: Array, places: AnyArray) -> Array:
    """Some rows of each client, by their places on the host: (k, n, ...), (k, B) -> (k, B, ...)."""
    k, n = rows.shape[:2]
    if on_host(rows):
        return rows[np.arange(k)[:, None], places]
    xp = array_namespace(rows)
    flat = xp.asarray((places + n * np.arange(k)[:, None]).reshape(-1), device=device(rows))
    taken = xp.take(xp.reshape(rows, (k * n, *rows.shape[2:])), flat, axis=0)
    result: Array = xp.reshape(taken, (*places.shape, *rows.shape[2:]))
    return result


def zero_rows(x: Array, m: int) -> Array:
    """m rows of zeros, (m, d), where x is."""
    xp = namespace(x)
    result: Array = xp.zeros_like(xp.broadcast_to(x, (m, x.shape[0])))
    return result


def matvec(M: AnyArray, X: AnyArray) -> Array:
    """M_j x_j for every j: (k, n, d), (k, d) -> (k, n)."""
    if not isinstance(M, np.ndarray) and M.shape[0] == 1:
        result: Array = (M[0, :, :] @ X[0, :])[None, :]  # many rows of one client: no batch
        return result
    product: Array = (M @ X[:, :, None])[:, :, 0]
    return product


def rmatvec(M: AnyArray, R: AnyArray) -> Array:
    """M_jᵀ r_j for every j: (k, n, d), (k, n) -> (k, d)."""
    if not isinstance(M, np.ndarray) and M.shape[0] == 1:
        result: Array = (R[0, :] @ M[0, :, :])[None, :]
        return result
    product: Array = (R[:, None, :] @ M)[:, 0, :]
    return product


def repeated(x: Array, k: int) -> Array:
    """x as k equal rows, (k, d), without a copy."""
    # np.broadcast_to gives the same view, but costs as much time as a small product
    return np.ndarray((k, x.shape[0]), x.dtype, x, 0, (0, x.strides[0]))


def dots(X: AnyArray, Y: AnyArray) -> Array:
    """⟨x_j, y_j⟩ for every j: (k, d), (k, d) -> (k,)."""
    if isinstance(X, np.ndarray):
        result: Array = np.vecdot(X, Y)
        return result
    # on a device, sums over short rows are fastest as a product with ones
    XY = X * Y
    sums: Array = XY @ array_namespace(XY).ones_like(XY[0, :])
    return sums


def column_means(X: AnyArray) -> Array:
    """The mean of the rows: (k, d) -> (d,)."""
    if isinstance(X, np.ndarray):
        result: Array = np.add.reduce(X, axis=0) / X.shape[0]  # half of the time of np.mean
        return result
    xp = array_namespace(X)
    # as in ``dots``; a sum in float32 would lose digits
    wide = X.dtype == xp.float64
    total = xp.ones_like(X[:, 0]) @ X if wide else xp.sum(X, axis=0, dtype=xp.float64)
    means: Array = total / X.shape[0]
    return means


def norms(X: AnyArray) -> Array:
    """‖x_j‖ for every j: (k, d) -> (k,)."""
    return dots(X, X) ** 0.5


def length(x: AnyArray) -> float:
    """√(Σ x_i²) over all entries."""
    if isinstance(x, np.ndarray):
        flat = x.ravel()
        return math.sqrt(flat @ flat)
    return float(array_namespace(x).linalg.vector_norm(x))


def gram(A: Array) -> Array:
    """A_jᵀ A_j for every j: (k, n, d) -> (k, d, d)."""
    if not on_host(A) and A.shape[0] == 1:
        return (A[0, :, :].T @ A[0, :, :])[None, :, :]
    return A.mT @ A


def add_diagonal(M: Array, D: float | Array) -> Array:
    """M_j + diag(D) for every j, (k, d, d), from a number, (d,) or (k, d); NumPy's in place."""
    if not on_host(M):
        other: Any = M
        one = array_namespace(other).eye(M.shape[-1], dtype=M.dtype, device=device(other))
        result: Array = M + one * (D if isinstance(D, float) else D[..., None, :])
        return result
    np.einsum("kii->ki", M)[...] += D
    return M


def metric_times(M: Metric, E: Array) -> Array:
    """M e_j: (k, d) -> (k, d)."""
    if isinstance(M, float) or M.ndim < 2:
        return M * E
    return matvec(namespace(E).broadcast_to(M, (E.shape[0], *M.shape[-2:])), E)


def extreme_eigenvalues(H: Array) -> tuple[Array, Array]:
    """The smallest and the largest eigenvalue of every H_j ⪰ 0: (k, d, d) -> (k,), (k,).

    A smallest eigenvalue at the level of rounding is 0. Of a matrix that is not finite they are 0
    and inf.
    """
    xp = namespace(H)
    finite = xp.all(xp.isfinite(H), axis=(1, 2))
    spectrum = xp.linalg.eigvalsh(xp.where(finite[:, None, None], H, 0.0))
    smallest = spectrum[:, 0]
    largest = xp.where(finite, spectrum[:, -1], math.inf)
    rounding = 4 * H.shape[-1] * EPS * largest
    # those of symmetric matrices that are not negative are so but for rounding
    return xp.where(smallest > rounding, smallest, 0.0), xp.where(largest > 0, largest, 0.0)


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
    # a product with this splits the 53 bits of a number in two halves
    c = (2.0**27 + 1.0) * a
    high = c - (c - a)
    return high, a - high


class DeviceFactors:
    """Positive definite matrices M_j, (k, d, d), on a device, where one call solves all systems.

    ``sizes``, (k, d), are the roots of the diagonals: columns on any scales do no harm.
    """

    def __init__(self, M: AnyArray) -> None:
        self._xp = array_namespace(M)
        diagonal = self._xp.linalg.diagonal(M)
        self.sizes = self._xp.where(diagonal > 0, diagonal, 1.0) ** 0.5
        self._C = M / self.sizes[:, :, None] / self.sizes[:, None, :]

    def inverted(self) -> DeviceFactors:
        """These factors: on a device, inverses would save nothing."""
        return self

    def solve(self, G: AnyArray) -> AnyArray:
        """M_j⁻¹ g_j: (k, d) -> (k, d)."""
        scaled = (G / self.sizes)[:, :, None]
        return self._xp.linalg.solve(self._C, scaled)[:, :, 0] / self.sizes


def factors(M: AnyArray) -> Factors | DeviceFactors:
    """M_j, (k, d, d), factorised where they are; they may be overwritten."""
    return Factors(M, overwrite=True) if on_host(M) else DeviceFactors(M)


class Factors:
    """Positive semidefinite matrices M_j, (k, d, d), factorised once.

    Units are taken out first: M_j = S_j C_j S_j, where the diagonal of C_j is 1, so that columns on
    any scales do no harm; ``shift`` is added to it. C_j is factorised by Cholesky's method. If it
    is singular to rounding, its pseudo-inverse takes the place of its inverse: a solution by
    elimination would move along the kernel by rounding divided by rounding. ``sizes``, (k, d), has
    the diagonals of the S_j, and ``singular``, (k,), says which C_j are so.

    Up to d = ``small``, one call for all clients takes less time than a call for each: their
    systems are solved by elimination, once Cholesky's method has shown that they are definite.
    Above ``largest``, ``inverted`` makes no inverses: d³ operations more are too many.
    """

    def __init__(
        self,
        M: Array,
        shift: float = 0.0,
        overwrite: bool = False,
        small: int = 24,
        largest: int = 512,
    ) -> None:
        d = M.shape[-1]
        diagonal = np.einsum("kii->ki", M).copy()
        self.sizes: Array = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        self.shift = shift
        self._may_be_inverted = d <= largest
        self._inverse: Array | None = None
        units = 1.0 / self.sizes
        C = M if overwrite else M.copy()
        C *= units[:, :, None]
        C *= units[:, None, :]
        if shift:
            add_diagonal(C, shift)
        self._L = _cholesky_together(C) if d <= small else [_cholesky(each) for each in C]
        # A pivot at the level of rounding is what the pivots before it have left of zero.
        pivots = np.array([L.diagonal() for L in self._L])
        self.singular: Mask = ~(np.square(pivots) > 4 * d * EPS).all(axis=1)
        if self.singular.any():
            # client by client: the bits of one do not depend on who shares the block
            left = C[self.singular]  # below the diagonal alone
            np.einsum("kii->ki", left)[...] = (diagonal[self.singular] > 0) + shift
            self._pseudo = np.stack([_pseudo_inverse(each) for each in left])
            C[self.singular] = np.eye(d)
            self._L = [
                np.eye(d) if own else L for own, L in zip(self.singular, self._L, strict=True)
            ]
        self._C = C if d <= small else None

    def inverted(self) -> Factors:
        """These factors with their inverses, for many systems with the same matrices."""
        if self._may_be_inverted and self._inverse is None:
            self._inverse = self._inverses() / self.sizes[:, :, None]
            self._inverse /= self.sizes[:, None, :]
            self._C, self._L = None, []  # as large as the inverses, and no longer needed
        return self

    def solve(self, G: Array) -> Array:
        """M_j⁻¹ g_j, or M_j⁺ g_j in units of a unit diagonal: (k, d) -> (k, d)."""
        if self._inverse is not None:
            return matvec(self._inverse, G)
        scaled = G / self.sizes
        if self._C is not None:
            solution = np.linalg.solve(self._C, scaled[:, :, None])[:, :, 0]
        else:
            pairs = zip(self._L, scaled, strict=True)
            solution = np.stack([dpotrs(L, g, lower=1)[0] for L, g in pairs])
        if self.singular.any():
            solution[self.singular] = matvec(self._pseudo, scaled[self.singular])
        solution /= self.sizes
        return solution

    @property
    def freedom(self) -> Array:
        """How many directions the M_j determine: d - shift · tr C_j⁻¹, (k,)."""
        inverses = (np.tril(dtrtri(L, lower=1)[0]) for L in self._L)
        trace = np.array([np.sum(np.square(inverse)) for inverse in inverses])
        result: Array = self.sizes.shape[1] - self.shift * trace
        return result

    @property
    def forward_error(self) -> Array:
        """c_j such that a solution is off by at most c_j‖g_j/sizes_j‖, (k,).

        An inverse that is computed by elimination is off by 8d roundings times its condition
        number, relatively, which covers the customary constants (Higham, 2002, chapter 14).
        """
        d = self.sizes.shape[1]
        inverse = np.max(np.sum(np.abs(self._inverses()), axis=2), axis=1)
        condition = d * inverse  # no entry of C_j is above 1
        result: Array = 8 * d * EPS * condition * inverse / np.min(self.sizes, axis=1)
        return result

    def _inverses(self) -> Array:
        """The C_j⁻¹, (k, d, d), or C_j⁺."""
        if self._inverse is not None:
            whole: Array = self._inverse * self.sizes[:, :, None]
            whole *= self.sizes[:, None, :]
            return whole
        if self._C is not None:
            inverses: Array = np.linalg.inv(self._C)
        else:
            identity = np.eye(self.sizes.shape[1])
            inverses = np.stack([dpotrs(L, identity, lower=1)[0] for L in self._L])
        if self.singular.any():
            inverses[self.singular] = self._pseudo
        return inverses


def _cholesky(C: Array) -> Array:
    """The Cholesky factor of C, (d, d), below whose diagonal alone counts; nan if there is none.

    C may be overwritten on and above its diagonal.
    """
    L, failed = dpotrf(C.T, lower=1, clean=0, overwrite_a=1)
    return np.full(C.shape, np.nan) if failed else L


def _cholesky_together(C: Array) -> Sequence[Array]:
    """The Cholesky factor of every C_j, in one call if no C_j is indefinite."""
    try:
        return list(np.linalg.cholesky(C))
    except np.linalg.LinAlgError:
        return [_cholesky(each.copy()) for each in C]


def _pseudo_inverse(C: Array) -> Array:
    """C⁺, (d, d), for C with a unit diagonal; 0 if C is not finite."""
    if not np.isfinite(C).all():
        return np.zeros(C.shape)
    spectrum, Q = np.linalg.eigh(C)
    certain = spectrum > 4 * len(C) * EPS * spectrum[-1]
    inverse = np.where(certain, 1.0 / np.where(certain, spectrum, 1.0), 0.0)
    result: Array = (Q * inverse) @ Q.T
    return result


def inverse_norm(H: Array, G: Array) -> tuple[Array, Array, Array]:
    """gᵀH⁻¹g and λ_min(H) from eigenvalues that are proved not to be too large, and a root of H⁻¹.

    Each H, (d, d), is positive semidefinite up to rounding. q, (k,), is inf where H is singular to
    rounding or not finite, mu, (k,), 0 there, and W, (k, d, d), with H⁻¹ = WWᵀ, nan there.
    """
    finite: Mask = np.asarray(np.isfinite(H).all(axis=(1, 2)))
    H = np.where(finite[:, None, None], H, np.eye(H.shape[1]))
    # Scaled to a unit diagonal, so that different units of the columns are not taken for
    # singularity.
    diagonal = np.einsum("kii->ki", H)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    spectrum, Q = np.linalg.eigh(scale[:, :, None] * H * scale[:, None, :])
    certain = np.where(finite[:, None], _less_rounding(spectrum), np.nan)
    lowest = _less_rounding(np.linalg.eigvalsh(H))[:, 0]
    # λ_min(H) is also at least λ_min of the scaled matrix times the least diagonal entry
    mu = np.fmax(lowest, certain[:, 0] * np.min(1.0 / scale**2, axis=1))
    q = np.sum(np.square(rmatvec(Q, scale * G)) / certain, axis=1)
    W = scale[:, :, None] * Q / np.sqrt(certain)[:, None, :]
    return np.where(np.isnan(q), np.inf, q), np.where(finite & ~np.isnan(mu), mu, 0.0), W


def _less_rounding(spectrum: Array) -> Array:
    """Eigenvalues minus what rounding may have added, (k, d); nan where nothing is left."""
    rounding = 4 * spectrum.shape[1] * EPS * spectrum[:, -1:]
    return np.where(spectrum > 2 * rounding, spectrum - rounding, np.nan)
