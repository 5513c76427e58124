"""Least squares: φ(η, b) = (η - b)²/2, reduced to what a prox needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedsplit.arrays import (
    Array,
    add_diagonal,
    dots,
    extreme_eigenvalues,
    matvec,
)
from fedsplit.losses.factors import Inverse, factored
from fedsplit.losses.linear import LinearLoss, LinearTerms
from fedsplit.losses.observations import Observations, check_columns, read
from fedsplit.losses.stacking import chunks, rows_of, stack_rows
from fedsplit.losses.terms import Block, Terms
from fedsplit.losses.work import counter


@dataclass(frozen=True)
class LeastSquares(LinearLoss):
    """f_j(x) = ½ Σ_i w_i (a_iᵀx + o_i - b_i)², the paper's running example (least squares, §2).

    A client with n_j ≥ d observations is kept as H_j = A_jᵀW_jA_j and A_jᵀW_j(b_j - o_j), one with
    fewer as its rows, and so are sparse rows of many columns. ℓ_j and L_j are the extreme
    eigenvalues of H_j, or bounds where that is too large.

    Parameters
    ----------
    rows : bool
        Whether every client keeps its rows, which minibatches are drawn from.
    """

    rows: bool = False

    curvature_range = (1.0, 1.0)
    concordance = 0.0

    def __repr__(self) -> str:
        return "LeastSquares(rows=True)" if self.rows else "LeastSquares()"

    def value(self, eta: Array, b: Array) -> Array:
        return 0.5 * np.square(eta - b)

    def slope(self, eta: Array, b: Array) -> Array:
        return eta - b

    def curvature(self, eta: Array, b: Array) -> Array:
        return np.ones_like(eta)

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return 0.5 * cp.square(eta - b)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return eta + rng.standard_normal(eta.shape)

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = [Observations(A, b - o, w, np.zeros_like(o)) for A, b, w, o in read(clients)]
        check_columns(data, ridge)
        d = data[0].A.shape[1]
        tall = [j for j, (A, *_) in enumerate(data) if A.shape[0] >= d]
        wide = [j for j, (A, *_) in enumerate(data) if A.shape[0] < d]
        kept = [j for j in tall if self.rows or rows_of(data[j].A).large]
        summed = [j for j in tall if j not in set(kept)]
        blocks = stack_rows(partial(TallTerms, self), data, kept, d)
        blocks += [
            Block(chunk, gram_terms([data[j] for j in chunk]))
            for chunk in chunks(summed, 8 * d * d)
        ]
        return d, blocks + stack_rows(partial(WideTerms, self), data, wide, d)


@dataclass(frozen=True, eq=False)
class GramTerms(Terms):
    """Clients with at least as many rows as columns: f = ½eᵀHe + gᵀe + f(u), with e = x - u.

    The expansion point u is near the client's own minimiser. There g is small, so the value is a
    sum of small terms and keeps its digits.

    Attributes
    ----------
    H : (k, d, d) array
        AᵀWA.
    c : (k, d) array
        AᵀWb = -∇f(0).
    u, g : (k, d) arrays
        The expansion point, and ∇f(u).
    f : (k,) array
        f(u).
    """

    H: Array
    c: Array
    u: Array
    g: Array
    f: Array
    _factor: dict[bytes, tuple[Inverse, Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def k(self) -> int:
        return len(self.H)

    @property
    def d(self) -> int:
        return int(self.H.shape[1])

    def value(self, X: Array) -> Array:
        E = X - self.u
        return dots(E, 0.5 * matvec(self.H, E) + self.g) + self.f

    def gradient(self, X: Array) -> Array:
        return matvec(self.H, X - self.u) + self.g

    def hessian(self, X: Array) -> Array:
        return self.H.copy()

    @property
    def minimised(self) -> bool:
        return True

    def minimise(self, D: Array, Q: Array) -> Array:
        """R(q + c) with R = (diag(D) + H)⁻¹; R and Rc are kept for the latest D."""
        key = D.tobytes()
        factor = self._factor.get(key)
        if factor is None:
            counter.factorisations += 1
            R = factored(add_diagonal(self.H.copy(), D))
            factor = R, R(self.c)
            self._factor.clear()
            self._factor[key] = factor
        R, Rc = factor
        U = R(Q)
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

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        e = u - self.u[j]
        return 0.5 * cp.quad_form(e, cp.psd_wrap(self.H[j])) + self.g[j] @ e


def gram_terms(data: Sequence[Observations]) -> GramTerms:
    """Reduce each client to H, c and its expansion, one at a time: no copy of all the rows."""
    k = len(data)
    d = data[0].A.shape[1]
    H = np.empty((k, d, d))
    c = np.empty((k, d))
    u = np.empty((k, d))
    g = np.empty((k, d))
    f = np.empty(k)
    for j, (A, b, w, _) in enumerate(data):
        B = rows_of(A)
        if (w != 1).any():
            B = B.scaled(np.sqrt(w)[None])
        H[j] = B.gram()[0]
        c[j] = A.T @ (w * b)
        # a slight shift makes every H invertible; the expansion is exact at any u
        shift = 1e-10 * max(np.trace(H[j]) / d, np.finfo(np.float64).tiny)
        u[j] = np.linalg.solve(H[j] + shift * np.eye(d), c[j])
        r = A @ u[j] - b
        g[j] = A.T @ (w * r)
        f[j] = 0.5 * np.dot(w * r, r)
    return GramTerms(H, c, u, g, f)


@dataclass(frozen=True, eq=False)
class TallTerms(LinearTerms):
    """Clients with at least as many rows as columns, which they keep."""

    _factor: dict[bytes, Inverse] = field(default_factory=dict, init=False, repr=False)

    @property
    def minimised(self) -> bool:
        return not self.large

    def minimise(self, D: Array, Q: Array) -> Array:
        """(diag(D) + AᵀWA)⁻¹(q + AᵀWb); the inverse is kept for the latest D."""
        key = D.tobytes()
        factor = self._factor.get(key)
        if factor is None:
            counter.factorisations += 1
            factor = factored(add_diagonal(self.hessian(np.zeros((self.k, self.d))), D))
            self._factor.clear()
            self._factor[key] = factor
        return factor(Q + self.adjoint(self.w * self.b))

    def steady(self, X: Array) -> Array:
        return np.full(self.k, np.inf)


@dataclass(frozen=True, eq=False)
class WideTerms(LinearTerms):
    """Clients with fewer rows than columns: every system has the size of the rows."""

    _factor: dict[bytes, Inverse] = field(default_factory=dict, init=False, repr=False)

    @property
    def minimised(self) -> bool:
        return not self.large

    def minimise(self, D: Array, Q: Array) -> Array:
        """u = D⁻¹(q + Aᵀμ) with μ = W^½(I + W^½KW^½)⁻¹W^½(b - AD⁻¹q) and K = AD⁻¹Aᵀ.

        The inverse is kept for the latest D.
        """
        root = np.sqrt(self.w)
        key = D.tobytes()
        factor = self._factor.get(key)
        if factor is None:
            counter.factorisations += 1
            M = root[:, :, None] * self.row_products(D) * root[:, None, :]
            factor = factored(add_diagonal(M, np.ones(M.shape[1])))
            self._factor.clear()
            self._factor[key] = factor
        mu = root * factor(root * (self.b - self.product(Q / D)))
        return (Q + self.adjoint(mu)) / D

    def steady(self, X: Array) -> Array:
        return np.full(self.k, np.inf)
