"""Least squares: φ(η, b) = (η - b)²/2, reduced to d rows where there are more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from fedsplit.arrays import (
    EPS,
    Array,
    dots,
    extreme_eigenvalues,
    gram,
    matvec,
    namespace,
    norms,
    rmatvec,
)
from fedsplit.losses.designs import SparseDesign
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.observations import (
    Observations,
    check_columns,
    chunks,
    read,
    stack_rows,
)
from fedsplit.losses.systems import Latest
from fedsplit.losses.terms import Block, Terms


@dataclass(frozen=True)
class LeastSquares(LinearLoss):
    """f_j(x) = ½ Σ_i w_i (a_iᵀx + o_i - b_i)², the paper's running example (least squares, §2).

    A client with n_j ≥ d observations is reduced to d rows with the same costs, by orthogonal
    transformations. One with fewer keeps its rows, and so do sparse rows of many columns. ℓ_j and
    L_j are the extreme eigenvalues of A_jᵀW_jA_j, or bounds where that is too large.

    Parameters
    ----------
    rows : bool
        Whether every client keeps its rows, which minibatches are drawn from.
    """

    rows: bool = False

    curvature_range = (1.0, 1.0)
    concordance = 0.0
    code = """
    __device__ float value(float t, float b) { return 0.5f * (t - b) * (t - b); }
    __device__ float slope(float t, float b) { return t - b; }
    __device__ float bend(float t, float b) { return 1.0f; }
    """

    def __repr__(self) -> str:
        return "LeastSquares(rows=True)" if self.rows else "LeastSquares()"

    def value(self, eta: Array, b: Array) -> Array:
        return 0.5 * (eta - b) ** 2

    def slope(self, eta: Array, b: Array) -> Array:
        return eta - b

    def curvature(self, eta: Array, b: Array) -> Array:
        result: Array = namespace(eta).ones_like(eta)
        return result

    def room(self, eta: Array, b: Array) -> Array:
        result: Array = namespace(eta).full_like(eta, np.inf)
        return result

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return 0.5 * cp.square(eta - b)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return eta + rng.standard_normal(eta.shape)

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        # an offset is a part of the target
        data = [Observations(A, b - o, w, np.zeros_like(o)) for A, b, w, o in read(clients)]
        check_columns(data, ridge)
        d = data[0].A.shape[1]

        def reducible(A: Any) -> bool:
            large = issparse(A) and SparseDesign(A).large
            return A.shape[0] >= d and not self.rows and not large

        reduced = [j for j, (A, *_) in enumerate(data) if reducible(A)]
        blocks = [
            Block(chunk, reduce_rows([data[j] for j in chunk]))
            for chunk in chunks(reduced, 8 * d * d)
        ]
        others = sorted(set(range(len(data))) - set(reduced))
        return d, blocks + stack_rows(self.terms, data, others, d)


class QuadraticTerms(Terms):
    """Terms f_j(x) = ½xᵀH_jx - c_jᵀx + const ≥ 0, stored in any form."""

    quadratic = True

    def bounds(self) -> tuple[Array, Array]:
        return extreme_eigenvalues(self.hessian(np.zeros((self.k, self.d))))

    def floor(self) -> Array:
        return np.zeros(self.k)


@dataclass(frozen=True, eq=False)
class ReducedTerms(QuadraticTerms):
    """Clients with at least as many rows as columns: f = ½‖Rx - r‖² + f₀ with d rows.

    R is the triangular factor of W^½A. Orthogonal transformations keep residuals as they are, so a
    value has the digits of a sum of squared residuals; ½xᵀAᵀWAx - … would cancel, most of all where
    there are hardly more rows than columns.
    """

    R: Array  # (k, d, d)
    r: Array  # (k, d)
    f: Array  # (k,): f₀, the least value
    H: Array  # (k, d, d): RᵀR
    c: Array  # (k, d): Rᵀr, so that the gradient Hx - c is one product

    @property
    def k(self) -> int:
        return len(self.R)

    @property
    def d(self) -> int:
        return int(self.R.shape[1])

    def value(self, eta: Array) -> Array:
        residual = matvec(self.R, eta) - self.r
        return 0.5 * dots(residual, residual) + self.f

    def gradient(self, eta: Array) -> Array:
        return matvec(self.H, eta) - self.c

    def gradient_error(self, X: Array, eta: Array, latest: Latest) -> Array:
        size = np.sqrt(np.sum(np.square(self.R), axis=(1, 2)))
        result: Array = 2 * (self.d + 4) * EPS * size * (norms(self.r) + size * norms(X))
        return result

    def hessian(self, eta: Array) -> Array:
        return self.H.copy()  # what is added to it is not ours

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        return 0.5 * cp.sum_squares(self.R[j] @ u - self.r[j])


def reduce_rows(data: Sequence[Observations], least_rows: int = 4096) -> ReducedTerms:
    """Reduce each client to d rows, piece by piece: no copy of all the rows.

    ``least_rows`` is the size of a piece where d is small; where it is large, a piece has four
    times as many rows as columns, so that the d rows of the pieces before are a fifth of the work.
    """
    k = len(data)
    d = data[0].A.shape[1]
    R = np.zeros((k, d, d))
    r = np.zeros((k, d))
    f = np.zeros(k)
    size = max(least_rows, 4 * d)
    for j, (A, b, w, _) in enumerate(data):
        triangle = np.zeros((0, d + 1))
        for first in range(0, len(b), size):
            piece = slice(first, first + size)
            rows = A[piece].toarray() if issparse(A) else A[piece]
            weighted = np.sqrt(w[piece])[:, None] * np.column_stack([rows, b[piece]])
            triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, weighted]), mode="r"))
        there = min(d, len(triangle))  # with fewer rows, the others are 0
        R[j, :there] = triangle[:d, :d]
        r[j, :there] = triangle[:d, d]
        f[j] = 0.5 * np.sum(np.square(triangle[d:, d]))
    return ReducedTerms(R, r, f, gram(R), rmatvec(R, r))
