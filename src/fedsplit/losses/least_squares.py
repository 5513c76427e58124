"""Least squares: φ(η, b) = (η - b)²/2, reduced to what a prox needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, add_diagonal, dots, matvec, rmatvec, solve_rows
from fedsplit.losses.linear import LinearTerms, cut, stack_linear
from fedsplit.losses.observations import Observations, check_columns, read
from fedsplit.losses.terms import Block, QuadraticTerms, extreme_eigenvalues
from fedsplit.losses.work import counter


@dataclass(frozen=True)
class LeastSquares:
    """f_j(x) = ½ Σ_i w_i (a_iᵀx + o_i - b_i)², the paper's running example (least squares, §2).

    A client with n_j ≥ d observations is kept as H_j = A_jᵀW_jA_j and A_jᵀW_j(b_j - o_j), one with fewer as its rows.
    ℓ_j and L_j are the extreme eigenvalues of H_j.
    """

    @property
    def curvature_range(self) -> tuple[float, float]:
        return 1.0, 1.0

    @property
    def concordance(self) -> float:
        return 0.0

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def value(self, eta: Array, b: Array) -> Array:
        return 0.5 * np.square(eta - b)

    def slope(self, eta: Array, b: Array) -> Array:
        return eta - b

    def curvature(self, eta: Array, b: Array) -> Array:
        return np.ones_like(eta)

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = [Observations(A, b - o, w, np.zeros_like(o)) for A, b, w, o in read(clients)]
        check_columns(data, ridge)
        d = data[0].A.shape[1]
        tall = [j for j, (A, *_) in enumerate(data) if A.shape[0] >= d]
        wide = [j for j, (A, *_) in enumerate(data) if A.shape[0] < d]
        blocks = [
            Block(chunk, gram_terms([data[j] for j in chunk])) for chunk in cut(tall, 8 * d * d)
        ]
        return d, blocks + stack_linear(self, data, wide, WideTerms)


@dataclass(frozen=True, eq=False)
class GramTerms(QuadraticTerms):
    """½(x - u)ᵀH(x - u) + gᵀ(x - u) + f(u), expanded at u near the client's own minimiser.

    There g is small, so the value is a sum of small terms and keeps its digits; c = AᵀWb = -∇f(0).
    """

    H: Array
    c: Array
    u: Array
    g: Array
    f: Array
    _inverse: dict[bytes, tuple[Array, Array]] = field(default_factory=dict, repr=False)

    @property
    def k(self) -> int:
        return len(self.H)

    @property
    def d(self) -> int:
        return int(self.H.shape[1])

    @property
    def rank(self) -> int:
        return self.d

    def value(self, X: Array) -> Array:
        E = X - self.u
        return dots(E, 0.5 * matvec(self.H, E) + self.g) + self.f

    def gradient(self, X: Array) -> Array:
        return matvec(self.H, X - self.u) + self.g

    def hessian(self, X: Array) -> Array:
        return self.H.copy()

    def diagonal(self, X: Array) -> Array:
        diagonal: Array = np.einsum("kii->ki", self.H)
        return diagonal

    def largest(self, X: Array) -> Array:
        return extreme_eigenvalues(self.H)[1]

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        return matvec(self._resolvent(D)[0], G)

    def minimise(self, D: Array, Q: Array) -> Array:
        R, Rc = self._resolvent(D)
        U = matvec(R, Q)
        U += Rc
        return U

    def bounds(self) -> tuple[Array, Array]:
        return extreme_eigenvalues(self.H)

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        return np.zeros(self.k), np.zeros(self.k)

    def floor(self) -> Array:
        return np.zeros(self.k)

    def steady(self, X: Array) -> Array:
        return np.full(self.k, np.inf)

    def margin(self, X: Array) -> Array:
        return np.full(self.k, np.nan)

    def _resolvent(self, D: Array) -> tuple[Array, Array]:
        """R = (diag(D) + H)⁻¹ and Rc, kept for the latest D."""
        key = D.tobytes()
        kept = self._inverse.get(key)
        if kept is None:
            counter.factorisations += 1
            R = add_diagonal(self.H.copy(), D)
            few = max(
                1, 2**20 // (8 * self.d**2)
            )  # at a time, in place: no second array of the block's size
            for i in range(0, self.k, few):
                R[i : i + few] = np.linalg.inv(R[i : i + few])
            kept = R, matvec(R, self.c)
            self._inverse.clear()
            self._inverse[key] = kept
        return kept


def gram_terms(data: Sequence[Observations]) -> GramTerms:
    """Reduce each client to H, c and its expansion point, one client at a time: no copy of all the rows."""
    k, d = len(data), data[0].A.shape[1]
    H, c, u, g, f = (
        np.empty((k, d, d)),
        np.empty((k, d)),
        np.empty((k, d)),
        np.empty((k, d)),
        np.empty(k),
    )
    for j, (A, b, w, _) in enumerate(data):
        B = A if (w == 1).all() else np.sqrt(w)[:, None] * A
        H[j] = B.T @ B
        c[j] = A.T @ (w * b)
        # a slight shift makes every H invertible; the expansion is exact at any u
        shift = 1e-10 * max(np.trace(H[j]) / d, np.finfo(np.float64).tiny)
        u[j] = np.linalg.solve(H[j] + shift * np.eye(d), c[j])
        r = A @ u[j] - b
        g[j] = A.T @ (w * r)
        f[j] = 0.5 * np.dot(w * r, r)
    return GramTerms(H, c, u, g, f)


class Factor(NamedTuple):
    """V = C⁻¹BD⁻¹ and beta = C⁻¹W^½b, where B = W^½A and CCᵀ = I + BD⁻¹Bᵀ."""

    V: Array
    beta: Array


@dataclass(frozen=True, eq=False)
class WideTerms(LinearTerms, QuadraticTerms):
    """Least squares with fewer rows than columns: every system is n×n, (D + AᵀWA)⁻¹ = D⁻¹ - VᵀV."""

    _factors: dict[bytes, Factor] = field(default_factory=dict, repr=False)

    def minimise(self, D: Array, Q: Array) -> Array:
        V, beta = self._factor(D)
        return Q / D + rmatvec(V, beta - matvec(V, Q))

    def steady(self, X: Array) -> Array:
        return np.full(self.k, np.inf)

    def _factor(self, D: Array) -> Factor:
        """The factor, kept for the latest D."""
        key = D.tobytes()
        factor = self._factors.get(key)
        if factor is None:
            counter.factorisations += 1
            root = np.sqrt(self.w)
            B = root[:, :, None] * self.A
            C = np.linalg.cholesky(
                add_diagonal(np.matmul(B / D, np.swapaxes(B, 1, 2)), np.ones(B.shape[1]))
            )
            factor = Factor(np.linalg.solve(C, B / D), solve_rows(C, root * self.b))
            self._factors.clear()
            self._factors[key] = factor
        return factor
