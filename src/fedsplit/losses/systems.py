"""Linear systems with Hessians: by rows where they are few, by products where all is large.

Of a Hessian that is too large to be held, gᵀH⁻¹g is bounded by what conjugate gradients leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedsplit.arrays import (
    Array,
    DeviceFactors,
    Factors,
    add_diagonal,
    dots,
    factors,
    namespace,
)
from fedsplit.losses.batches import Indices
from fedsplit.losses.designs import Design

Made = TypeVar("Made")


class Latest:
    """A cache of what is expensive to derive from the costs of a block: one entry for each name.

    Another key replaces the entry: matrices are large, and a method with a fixed step needs one. No
    answer depends on what is here, only the time that it takes.
    """

    def __init__(self) -> None:
        self._made: dict[object, tuple[object, Any]] = {}

    def get(self, name: object, key: object, make: Callable[[], Made]) -> Made:
        """``make()``, or what it returned the last time if the key was the same."""
        latest = self._made.get(name)
        if latest is None or latest[0] != key:
            latest = self._made[name] = key, make()
        return latest[1]


class Solver(Protocol):
    """Inverses of k symmetric, positive (semi)definite matrices."""

    def solve(self, G: Array) -> Array:
        """M_j⁻¹ g_j: (k, d) -> (k, d)."""

    def inverted(self) -> Solver:
        """The same inverses, prepared for many right-hand sides."""


@dataclass(frozen=True, eq=False)
class Woodbury:
    """(diag(D) + B_jᵀB_j)⁻¹ = D⁻¹ - D⁻¹B_jᵀ(I + B_jD⁻¹B_jᵀ)⁻¹B_jD⁻¹, B_j = diag(root_j)A_j.

    The systems have the size of the rows, which are fewer than the columns.
    """

    rows: Design  # the A_j, (k, n, d)
    root: Array | float  # (k, n)
    D: Array  # (d,): above 0
    small: Factors | DeviceFactors  # the factors of I + B_jD⁻¹B_jᵀ, (k, n, n)

    @classmethod
    def of(cls, rows: Design, root: Array | float, D: Array, products: Array) -> Woodbury:
        """Given B_jD⁻¹B_jᵀ, (k, n, n), which is overwritten."""
        return cls(rows, root, D, factors(add_diagonal(products, 1.0)))

    def inverted(self) -> Woodbury:
        """These factors with the inverse of the small matrices, for many systems."""
        self.small.inverted()
        return self

    def solve(self, G: Array) -> Array:
        image = self.root * self.small.solve(self.root * self.rows.product(G / self.D))
        return (G - self.rows.adjoint(image)) / self.D


@dataclass(frozen=True, eq=False)
class ByProducts:
    """Inverses of k positive definite matrices by conjugate gradients."""

    times: Callable[[Array], Array]  # the products with the matrices: (k, d) -> (k, d)
    diagonal: Array  # (k, d)
    tolerance: float = 1e-12  # the residual that is left, as in ``conjugate_gradients``

    def inverted(self) -> ByProducts:
        return self  # products are all there is

    def solve(self, G: Array) -> Array:
        return conjugate_gradients(self.times, G, self.diagonal, self.tolerance)


def conjugate_gradients(
    times: Callable[[Array], Array],
    G: Array,
    diagonal: Array,
    tolerance: float,
    flat: float = 0.0,
    most: int = 2000,
) -> Array:
    """H_j⁻¹g_j, (k, d), by conjugate gradients with the diagonal as preconditioner.

    ``times`` multiplies by the H_j. Without their ``diagonal``, columns on different scales would
    take as many products as their ratio is large. The residual left is ``tolerance`` times g_j, in
    the norm of the inverse diagonal, after at most ``most`` iterations, enough for a condition
    number of 1e6: what a nearly singular system leaves then is a residual like any other.

    Where H_j is singular and g_j has a part along its kernel, there is no solution. A direction p
    with pᵀHp ≤ ``flat``·p², in the norm of the diagonal, ends the iterations of that client
    (Steihaug, 1983): what is known until then goes downhill.
    """
    xp = namespace(G)
    D = xp.where(diagonal > 0, diagonal, 1.0)
    X = xp.zeros_like(G)
    R = G
    Z = R / D
    P = Z
    size = dots(R, Z)
    enough = tolerance**2 * size
    active = size > 0
    for _ in range(most):
        HP = times(P)
        curvature = dots(P, HP)
        active = active & (curvature > flat * dots(P, D * P))
        if not xp.any(active):
            break
        step = xp.where(active, size / xp.where(active, curvature, 1.0), 0.0)[:, None]
        X = X + step * P
        R = R - step * HP
        Z = R / D
        left = dots(R, Z)
        P = Z + (left / xp.where(size > 0, size, 1.0))[:, None] * P
        size = left
        active = active & (size > enough)
    # a client without curvature along its first direction knows no better one
    touched = xp.any(X != 0, axis=1)
    result: Array = xp.where(touched[:, None], X, G / D)
    return result


@dataclass(frozen=True)
class LargeHessian:
    """H = ∇²f(x) of one client, known by its products with vectors."""

    times: Callable[[Array], Array]  # the product with H: (1, d) -> (1, d)
    diagonal: Array  # (1, d): the diagonal of H
    # (d,): H ⪰ diag(ridge). F are the free coordinates, those without a ridge, and M the others
    ridge: Array
    largest: float  # at least the largest eigenvalue of H
    most_free: int = 16  # coordinates without a ridge at most: each takes a system of its own

    def decrement(self, g: Array) -> tuple[float, float]:
        """A bound on gᵀH⁻¹g, for g of shape (d,), and one on λ_min(H) from below; else inf and 0.

        With u near H⁻¹g and r = g - Hu, gᵀH⁻¹g = gᵀu + uᵀr + rᵀH⁻¹r. The last term is
        r_MᵀH_MM⁻¹r_M + eᵀS⁻¹e with the Schur complement S of the free coordinates, and
        e = r_F - H_FM H_MM⁻¹r_M.
        """
        ridged = self.ridge > 0
        free = np.flatnonzero(~ridged)
        if len(free) > min(self.most_free, len(self.ridge) - 1):
            return np.inf, 0.0
        mu = float(np.min(self.ridge[ridged]))
        cross, schur = self._extremes(free, mu)
        if not schur > 0:  # H is not known to be positive definite
            return np.inf, 0.0
        # coarse: what is left is bounded by the ridge, and adds a tenth to the bound
        u = self._solved(self.times, g, 0.3, mu)
        r = g - self.times(u[None])[0]
        left = float(np.sum(np.square(r[ridged]) / self.ridge[ridged]))
        e = float(np.linalg.norm(r[free])) + np.sqrt(cross * left)
        q = (1.0 + 1e-6) * float((g + r) @ u + left + e * e / schur)
        # λ_min(H) is 1/rᵀH⁻¹r for the worst r of length 1
        return q, float(1.0 / (1.0 / mu + (1.0 + np.sqrt(cross / mu)) ** 2 / schur))

    def _extremes(self, free: Indices, mu: float) -> tuple[float, float]:
        """Bounds on λ_max(H_FM H_MM⁻¹ H_MF) and, from below, on λ_min(S); 0 and inf without F.

        With W near H_MM⁻¹H_MF and E = H_MF - H_MM W, H_FM H_MM⁻¹ H_MF is at most
        B = H_FM W + WᵀE + Eᵀdiag(ridge)⁻¹E, and S = H_FF - H_FM H_MM⁻¹ H_MF.
        """
        if not len(free):
            return 0.0, np.inf
        others = self.ridge > 0

        def within(U: Array) -> Array:
            return np.where(others, self.times(np.where(others, U, 0.0)), 0.0)

        units = (np.arange(len(self.ridge)) == free[:, None]).astype(np.float64)
        columns = np.concatenate([self.times(unit[None]) for unit in units])
        H = np.where(others, columns, 0.0)
        # close: λ_min(S) is a difference of bounds, which has to be positive
        W = np.stack([self._solved(within, h, 1e-3, mu) for h in H])
        E = H - np.concatenate([within(w[None]) for w in W])
        B = H @ W.T + W @ E.T + (E / np.where(others, self.ridge, 1.0)) @ E.T
        B = 0.5 * (B + B.T)
        C = columns[:, free]
        rounding = 1e-10 * np.trace(C)
        cross = max(0.0, float(np.linalg.eigvalsh(B)[-1]))
        return cross, float(np.linalg.eigvalsh(C - B)[0] - rounding)

    def _solved(self, times: Callable[[Array], Array], g: Array, share: float, mu: float) -> Array:
        """u near the solution of Mu = g: rᵀr/μ is then a small share of gᵀu, about share²."""
        tolerance = share * np.sqrt(mu / max(mu, self.largest))
        [u] = conjugate_gradients(times, g[None], self.diagonal, tolerance)
        return np.asarray(u)
