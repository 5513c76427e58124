"""Factors that are kept, and curvature from products alone where there are many coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.linalg import lapack

from fedsplit.arrays import Array, dots, matvec, norms, solve_rows

FEW = 16
"""Up to so many coordinates, NumPy's loop over small systems is faster than any other way."""

MANY = 512
"""Above so many coordinates, d³ operations are too many for what a round gains by them."""

LANCZOS_STEPS = 20
"""Enough for a first step, which follows the curvature seen from then on."""


FEW_STEPS = 5
"""Where a vector is large, so that all of them together stay so: within a fifth or so."""

Inverse: TypeAlias = Callable[[Array], Array]


def factored(M: Array) -> Inverse:
    """The product with M_j⁻¹ for every j, of positive definite (k, d, d), which are overwritten.

    It is by inverses, or by Cholesky factors where they are large. Raises LinAlgError if an M_j is
    singular.
    """
    k, d, _ = M.shape
    if d > MANY:
        for j in range(k):
            M[j] = np.linalg.cholesky(M[j])
        return lambda Q: np.stack(
            [lapack.dpotrs(C, q, lower=1)[0] for C, q in zip(M, Q, strict=True)]
        )
    few = max(1, 2**20 // (8 * d**2))  # a MiB at a time: no second array of the block's size
    for i in range(0, k, few):
        M[i : i + few] = np.linalg.inv(M[i : i + few])
    return lambda Q: matvec(M, Q)


def solve_definite(M: Array, G: Array) -> Array:
    """M_j⁻¹g_j for every j, M_j positive definite: (k, d, d), (k, d) -> (k, d)."""
    if M.shape[1] <= FEW:
        return solve_rows(M, G)
    solved = [lapack.dposv(each, g, lower=1)[1:] for each, g in zip(M, G, strict=True)]
    if any(failed for _, failed in solved):  # definite but for rounding
        return solve_rows(M, G)
    return np.stack([solution for solution, _ in solved])


def lanczos(
    times: Callable[[Array], Array], k: int, d: int, steps: int = LANCZOS_STEPS
) -> tuple[Array, Array]:
    """About the extreme eigenvalues of k symmetric matrices, each (k,), from products with them.

    The largest one is nearly exact, the smallest at least the true one.
    """
    q = np.tile(np.random.default_rng(0).standard_normal(d), (k, 1))
    q = q / norms(q)[:, None]
    Q = np.zeros((k, steps, d))
    T = np.zeros((k, steps, steps))
    for i in range(steps):
        Q[:, i] = q
        r = times(q)
        alive = norms(q) > 0
        # where all directions are used up: a number that is within the spectrum
        T[:, i, i] = np.where(alive, dots(q, r), T[:, 0, 0])
        size = norms(r)
        for _ in range(2):  # twice is enough for orthogonality to rounding
            r = r - np.matmul(matvec(Q, r)[:, None, :], Q)[:, 0]
        length = norms(r)
        length = np.where(length > 1e-10 * size, length, 0.0)
        if i + 1 < steps:
            T[:, i, i + 1] = T[:, i + 1, i] = length
        q = np.where(length > 0, 1.0 / np.where(length > 0, length, 1.0), 0.0)[:, None] * r
    ritz = np.linalg.eigvalsh(T)
    return np.maximum(ritz[:, 0], 0.0), np.maximum(ritz[:, -1], 0.0)
