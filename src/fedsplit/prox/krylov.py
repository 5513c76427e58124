"""Newton steps by conjugate gradients: products with the rows, and a factor that is kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from fedsplit.arrays import Array, Mask, add_diagonal, dots, matvec
from fedsplit.losses.costs import Costs
from fedsplit.losses.factors import FEW, MANY, solve_definite
from fedsplit.losses.work import counter
from fedsplit.prox.expansion import Expansion, in_metric, stretched

MOST_PRODUCTS = 30
"""A Newton system that takes more is better solved by its own factor."""


class Moved(NamedTuple):
    """Where the clients are, seen from their starts.

    Attributes
    ----------
    delta : (k, d) array
        δ.
    e : (k, n, ...) array
        Aδ.
    gradient : (k, d) array
        ∇h_j(x_j + δ_j).
    """

    delta: Array
    e: Array
    gradient: Array


class Krylov:
    """Newton steps on an ``Expansion``, each system solved by preconditioned conjugate gradients.

    Parameters
    ----------
    h : Expansion
    P : (k, d, d) or (k, d) array
        The preconditioner, see ``preconditioner``.
    """

    def __init__(self, h: Expansion, P: Array) -> None:
        self.h = h
        self.P = P

    def start(self) -> Moved:
        return Moved(np.zeros_like(self.h.G), np.zeros_like(self.h.eta), self.h.G)

    def take(self, rows: list[int]) -> Krylov:
        return Krylov(self.h.take(rows), self.P[rows])

    def travelled(self, at: Moved) -> Array:
        return np.sqrt(in_metric(self.h.D, at.delta))

    def residual(self, at: Moved) -> Array:
        return np.sqrt(in_metric(1.0 / self.h.D, at.gradient))

    def delta(self, at: Moved) -> Array:
        return at.delta

    def step(self, at: Moved, active: Mask, enough: float) -> tuple[Moved, Mask]:
        h = self.h
        p, a = self._direction(at, active, enough)
        slope = dots(h.G + h.D * at.delta, p)
        t = h.lengths(at.e, a, slope, in_metric(h.D, p))
        delta = at.delta + t[:, None] * p
        e = at.e + stretched(t, a) * a
        return Moved(delta, e, h.gradient(delta, e)), t > 0

    def _direction(self, at: Moved, active: Mask, enough: float) -> tuple[Array, Array]:
        """p with (diag(D) + AᵀΦ''A)p ≈ -∇h, and Ap; zero for clients that are not active."""
        h = self.h
        bend = h.terms.bend(h.eta + at.e)
        p = np.zeros_like(at.delta)
        a = np.zeros_like(at.e)
        r = np.where(active[:, None], -at.gradient, 0.0)
        q = self._preconditioned(r)
        rq = dots(r, q)
        products = MOST_PRODUCTS * (p.shape[1] > FEW)
        for _ in range(products):
            Aq = h.terms.product(q)
            Bq = h.D * q + h.terms.adjoint(bend(Aq))
            t = np.where(active, rq, 0.0) / np.where(active, dots(q, Bq), 1.0)
            p = p + t[:, None] * q
            a = a + stretched(t, a) * Aq
            r = r - t[:, None] * Bq
            left = np.sqrt(in_metric(1.0 / h.D, r))
            active = active & (left > enough * np.sqrt(in_metric(h.D, at.delta + p)))
            if not active.any():
                return p, a
            z = self._preconditioned(r)
            turn = dots(r, z) / np.where(active, rq, 1.0)
            q = z + np.where(active, turn, 0.0)[:, None] * q
            rq = dots(r, z)
        if p.shape[1] <= MANY:
            self._factored(at, np.flatnonzero(active).tolist(), p, a)
        return p, a

    def _factored(self, at: Moved, rows: list[int], p: Array, a: Array) -> None:
        """Put the directions of some clients by factors of their own into p and a."""
        few = self.h
        if len(rows) < len(p):
            few = few.take(rows)
        counter.hessians += 1
        counter.factorisations += 1
        H = add_diagonal(few.terms.hessian(few.X + at.delta[rows]), few.D)
        p[rows] = solve_definite(H, -at.gradient[rows])
        a[rows] = few.terms.product(p[rows])

    def _preconditioned(self, r: Array) -> Array:
        if self.P.ndim == 2:
            return self.P * r
        return matvec(self.P, r)


def preconditioner(costs: Costs, D: Array, rows: int) -> Array:
    """(diag(D) + ∇²terms_j(0))⁻¹, (k, d, d), or that of its diagonal, (k, d).

    It depends on the data and on the step alone: kept for the latest step, it serves all rounds,
    and no answer depends on the questions before it.
    """
    key = D.tobytes()
    kept = costs.cache.get(preconditioner)
    if kept is None or kept[0] != key:
        kept = key, _at_the_origin(costs, D, rows)
        costs.cache[preconditioner] = kept
    P: Array = kept[1]
    return P


def _at_the_origin(costs: Costs, D: Array, rows: int) -> Array:
    k = costs.terms.k
    d = costs.terms.d
    # a factor would not be used, or take too much time, or memory beside the data
    if not FEW < d <= min(rows, MANY):
        return 1.0 / (D + costs.terms.diagonal(np.zeros((k, d))))
    H = costs.cache.get(_at_the_origin)
    if H is None:
        counter.hessians += 1
        H = costs.terms.hessian(np.zeros((k, d)))
        costs.cache[_at_the_origin] = H
    counter.factorisations += 1
    P = add_diagonal(H.copy(), D)
    for j in range(k):
        P[j] = _inverse(P[j])
    return P


def _inverse(M: Array) -> Array:
    """The inverse of a positive definite matrix from its Cholesky factor, (d, d)."""
    factor, failed = lapack.dpotrf(M, lower=1)
    lower, _ = lapack.dpotri(factor, lower=1)
    if failed or not np.isfinite(lower).all():
        return np.diag(1.0 / np.diag(M))
    inverse: Array = np.tril(lower) + np.tril(lower, -1).T
    return inverse
