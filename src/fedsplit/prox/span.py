"""Newton steps for clients with fewer rows than columns: in the span of their rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal, dots, matvec
from fedsplit.losses.factors import solve_definite
from fedsplit.losses.terms import Rows
from fedsplit.losses.work import counter
from fedsplit.prox.expansion import Expansion, in_metric


class Spanned(NamedTuple):
    """δ_j = -c_jP_j - D⁻¹A_jᵀμ_j, and Aδ.

    Attributes
    ----------
    c : (k,) array
    mu, e : (k, n) arrays
    """

    c: Array
    mu: Array
    e: Array


class Span:
    """Newton steps on an ``Expansion``, without a product with A or a system larger than n×n.

    A Newton step from x leads to x - P - D⁻¹Aᵀμ with P = D⁻¹∇h(x), so all later ones stay in the
    span of P and the rows. Norms and inner products there follow from K = AD⁻¹Aᵀ, AP and ‖P‖.

    Parameters
    ----------
    h : Expansion
    terms : Rows
        Those of h.
    K : (k, n, n) array
    AP : (k, n) array
    PP : (k,) array
        ‖P‖² in the metric D.
    """

    def __init__(self, h: Expansion, terms: Rows, K: Array, AP: Array, PP: Array) -> None:
        self.h = h
        self.terms = terms
        self.K = K
        self.AP = AP
        self.PP = PP

    @classmethod
    def of(cls, h: Expansion, terms: Rows) -> Span:
        P = h.G / h.D
        K = terms.row_products(h.D)
        return cls(h, terms, K, terms.product(P), in_metric(h.D, P))

    def start(self) -> Spanned:
        nothing = np.zeros_like(self.AP)
        return Spanned(np.zeros_like(self.PP), nothing, nothing)

    def take(self, rows: list[int]) -> Span:
        h = self.h.take(rows)
        terms = self.terms.take(rows)
        return Span(h, terms, self.K[rows], self.AP[rows], self.PP[rows])

    def travelled(self, at: Spanned) -> Array:
        return self._norm(at.c, at.mu)

    def residual(self, at: Spanned) -> Array:
        return self._norm(1.0 - at.c, self._missing(at))

    def delta(self, at: Spanned) -> Array:
        return -(at.c[:, None] * self.h.G + self.terms.adjoint(at.mu)) / self.h.D

    def step(self, at: Spanned, active: Mask, enough: float) -> tuple[Spanned, Mask]:
        counter.hessians += 1
        counter.factorisations += 1
        # ∇h + (D + AᵀWA)p = 0 for p = -c'P - D⁻¹Aᵀμ' with c' = 1 - c: (I + WK)μ' = r
        c = np.where(active, 1.0 - at.c, 0.0)
        W = self.terms.curvature(self.h.eta + at.e)
        r = np.where(active[:, None], self._missing(at), 0.0) - c[:, None] * W * self.AP
        root = np.sqrt(W)
        M = root[:, :, None] * self.K * root[:, None, :]
        M = add_diagonal(M, np.ones(M.shape[1]))
        mu = r - root * solve_definite(M, root * matvec(self.K, r))
        Kmu = matvec(self.K, mu)
        a = -c[:, None] * self.AP - Kmu
        moved = c * (at.c * self.PP + dots(at.mu, self.AP)) + at.c * dots(mu, self.AP)
        slope = moved + dots(at.mu, Kmu) - c * self.PP - dots(mu, self.AP)
        t = self.h.lengths(at.e, a, slope, np.square(self._norm(c, mu)))
        later = Spanned(at.c + t * c, at.mu + t[:, None] * mu, at.e + t[:, None] * a)
        return later, t > 0

    def _missing(self, at: Spanned) -> Array:
        """ρ with ∇h = (1 - c)DP + Aᵀρ, (k, n)."""
        change = self.terms.slopes(self.h.eta + at.e) - self.h.slopes
        return change - at.mu

    def _norm(self, c: Array, mu: Array) -> Array:
        """‖cP + D⁻¹Aᵀμ‖ in the metric D, (k,)."""
        square = c**2 * self.PP + 2.0 * c * dots(mu, self.AP) + dots(mu, matvec(self.K, mu))
        return np.sqrt(np.maximum(square, 0.0))
