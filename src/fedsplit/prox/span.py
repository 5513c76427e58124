"""Newton steps for clients with fewer rows than columns: in the span of their rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal, dots
from fedsplit.losses.factors import solve_definite
from fedsplit.losses.kernels import Kernel
from fedsplit.losses.terms import Rows
from fedsplit.losses.work import counter
from fedsplit.prox.expansion import Expansion

SEVERAL = 64
"""Up to so many rows, a factor takes no more time than products."""

MOST_PRODUCTS = 30
"""A system that takes more products with K is better solved by its factor, if K has one."""

BARELY = 1.7
"""By how much less accurate a system may be solved where every product is one with the rows: the
Newton step, which is looked at next, needs half of it."""

MOST_WITHOUT_FACTOR = 300
"""Products for one Newton step at most, if K has no factor: the next step goes on from there."""


class Spanned(NamedTuple):
    """δ_j = -c_jP_j - D⁻¹A_jᵀμ_j, Kμ, and Aδ.

    Attributes
    ----------
    c : (k,) array
    mu, Kmu, e : (k, n) arrays
    """

    c: Array
    mu: Array
    Kmu: Array
    e: Array


class Span:
    """Newton steps on an ``Expansion``, without a product with A.

    A Newton step from x leads to x - P - D⁻¹Aᵀμ with P = D⁻¹∇h(x), so all later ones stay in the
    span of P and the rows. Norms and inner products there follow from K = AD⁻¹Aᵀ, AP and ‖P‖.

    Parameters
    ----------
    h : Expansion
    terms : Rows
        Those of h.
    K : Kernel
        AD⁻¹Aᵀ.
    AP : (k, n) array
    PP : (k,) array
        ‖P‖² in the metric D.
    """

    def __init__(self, h: Expansion, terms: Rows, K: Kernel, AP: Array, PP: Array) -> None:
        self.h = h
        self.terms = terms
        self.K = K
        self.AP = AP
        self.PP = PP

    @classmethod
    def of(cls, h: Expansion, terms: Rows) -> Span:
        P = h.G / h.D
        K = terms.kernel(h.D)
        return cls(h, terms, K, terms.product(P), dots(P, h.G))

    def start(self) -> Spanned:
        nothing = np.zeros_like(self.AP)
        return Spanned(np.zeros_like(self.PP), nothing, nothing, nothing)

    def take(self, rows: list[int]) -> Span:
        h = self.h.take(rows)
        terms = self.terms.take(rows)
        return Span(h, terms, self.K[rows], self.AP[rows], self.PP[rows])

    def travelled(self, at: Spanned) -> Array:
        return self._norm(at.c, at.mu, at.Kmu)

    def residual(self, at: Spanned) -> Array:
        missing = self._missing(at)
        left = 1.0 - at.c
        if not missing.any():
            along: Array = np.abs(left) * np.sqrt(self.PP)
            return along
        if self.K.array is not None:
            return self._norm(left, missing, self.K.times(missing))
        gradient = self.terms.adjoint(missing)  # one product with the rows, not two with K
        if left.any():
            gradient = gradient + left[:, None] * self.h.G
        return np.sqrt(dots(gradient, gradient / self.h.D))

    def delta(self, at: Spanned) -> Array:
        return -(at.c[:, None] * self.h.G + self.terms.adjoint(at.mu)) / self.h.D

    def step(self, at: Spanned, active: Mask, enough: float) -> tuple[Spanned, Mask]:
        counter.hessians += 1
        # ∇h + (D + AᵀWA)p = 0 for p = -c'P - D⁻¹Aᵀμ' with c' = 1 - c: (I + WK)μ' = ρ - c'WAP
        c = np.where(active, 1.0 - at.c, 0.0)
        W = self.terms.curvature(self.h.eta + at.e)
        rho = np.where(active[:, None], self._missing(at), 0.0)
        mu, Kmu = self._solved(at, np.sqrt(W), rho, c, active, enough)
        a = -c[:, None] * self.AP - Kmu
        moved = c * (at.c * self.PP + dots(at.mu, self.AP)) + at.c * dots(mu, self.AP)
        slope = moved + dots(at.mu, Kmu) - c * self.PP - dots(mu, self.AP)
        t = self.h.lengths(at.e, a, slope, np.square(self._norm(c, mu, Kmu)))
        later = Spanned(
            at.c + t * c,
            at.mu + t[:, None] * mu,
            at.Kmu + t[:, None] * Kmu,
            at.e + t[:, None] * a,
        )
        return later, t > 0

    def _solved(
        self, at: Spanned, root: Array, rho: Array, c: Array, active: Mask, enough: float
    ) -> tuple[Array, Array]:
        """μ with (I + WK)μ ≈ ρ - cWAP, and Kμ, both (k, n), given √W.

        μ = ρ - √W w where (I + √W K √W)w = √W(Kρ + cAP): by products with K where there are many
        rows, which are a fraction of a factor, and else by the factor.
        """
        Krho = np.zeros_like(rho)
        if rho.any():  # not in the first step
            Krho = self.K.times(rho)
        right = root * (Krho + c[:, None] * self.AP)
        w = np.zeros_like(rho)
        Kw = np.zeros_like(rho)  # K√W w
        rows = np.flatnonzero(active).tolist()
        K = self.K.array
        if K is None:
            enough = BARELY * enough
        if rho.shape[1] > SEVERAL or K is None:
            mu = at.mu + rho
            Kmu = at.Kmu + Krho
            for j in rows.copy():
                way = _Way(self.PP[j], self.AP[j], mu[j], Kmu[j])
                if _by_products(self.K[[j]], root[j], right[j], way, enough, w[j], Kw[j]):
                    rows.remove(j)
        if rows and K is not None:
            counter.factorisations += 1
            scale = root[rows]
            M: Array = scale[:, :, None] * K[rows] * scale[:, None, :]
            add_diagonal(M, np.ones(M.shape[1]))
            w[rows] = solve_definite(M, right[rows])
            Kw[rows] = self.K[rows].times(scale * w[rows])
        return rho - root * w, Krho - Kw

    def _missing(self, at: Spanned) -> Array:
        """ρ with ∇h = (1 - c)DP + Aᵀρ, (k, n)."""
        change = self.terms.slopes(self.h.eta + at.e) - self.h.slopes
        return change - at.mu

    def _norm(self, c: Array, mu: Array, Kmu: Array) -> Array:
        """‖cP + D⁻¹Aᵀμ‖ in the metric D, (k,)."""
        square = c**2 * self.PP + 2.0 * c * dots(mu, self.AP) + dots(mu, Kmu)
        return np.sqrt(np.maximum(square, 0.0))


class _Way(NamedTuple):
    """Where a client's step leads: ‖P + D⁻¹Aᵀ(μ - √W w)‖ in the metric D is the way there."""

    PP: float
    AP: Array
    mu: Array
    Kmu: Array

    def length(self, moved: Array, image: Array) -> float:
        """The way, given √W w and K√W w."""
        mu = self.mu - moved
        square = self.PP + 2.0 * (mu @ self.AP) + mu @ (self.Kmu - image)
        return float(np.sqrt(np.maximum(square, 0.0)))


def _by_products(
    K: Kernel, root: Array, right: Array, way: _Way, enough: float, w: Array, Kw: Array
) -> bool:
    """Solve (I + √W K √W)w = right of one client by conjugate gradients; w and K√W w start at 0.

    The diagonal is the preconditioner. Returns whether the residual of the Newton system came
    below ``enough`` times the way, after at most so many products as K is worth.
    """
    most = MOST_PRODUCTS if K.array is not None else MOST_WITHOUT_FACTOR
    diagonal = np.square(root) * K.diagonal()[0]
    inverse = 1.0 / (1.0 + diagonal)
    left = right.copy()
    q = inverse * left
    size = left @ q
    for _ in range(most):
        if not size > 0.0:
            break
        Kq = K.times((root * q)[None])[0]
        Mq = q + root * Kq
        t = size / (q @ Mq)
        w += t * q
        Kw += t * Kq
        left -= t * Mq
        target = enough * way.length(root * w, Kw)
        # what K's diagonal makes of the residual tells when it is worth a product to look
        if np.sqrt(left @ (diagonal * left)) <= target:
            if K.array is None:  # where a product is no small part of the work, the next step looks
                return True
            missing = root * left
            if np.sqrt(missing @ K.times(missing[None])[0]) <= target:
                return True
        z = inverse * left
        before = size
        size = left @ z
        q = z + size / before * q
    return bool(size == 0.0)
