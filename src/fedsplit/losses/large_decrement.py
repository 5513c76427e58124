"""gᵀH⁻¹g of a Hessian that is too large to be held, bounded by what conjugate gradients leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.losses.batches import Indices
from fedsplit.losses.systems import conjugate_gradients


@dataclass(frozen=True)
class LargeHessian:
    """H = ∇²f(x) of one client, with products alone.

    F are the coordinates without a ridge, M the others.

    Attributes
    ----------
    times : callable
        The product with H: (1, d) -> (1, d).
    diagonal : (1, d) array
        That of H.
    ridge : (d,) array
        H ⪰ diag(ridge).
    largest : float
        At least the largest eigenvalue of H.
    loose, close : float
        Residuals of linear systems, relative to √(λ_min/λ_max): 0.3 adds a tenth to the bound, and
        1e-3 is for a difference of bounds that has to be positive.
    most_free : int
        Coordinates without a ridge at most: each takes a system of its own.
    """

    times: Callable[[Array], Array]
    diagonal: Array
    ridge: Array
    largest: float
    loose: float = 0.3
    close: float = 1e-3
    most_free: int = 16

    def decrement(self, g: Array) -> tuple[float, float]:
        """A bound on gᵀH⁻¹g, for g of shape (d,), and one on λ_min(H) from below; else inf and 0.

        With u near H⁻¹g and r = g - Hu, gᵀH⁻¹g = gᵀu + uᵀr + rᵀH⁻¹r. That holds for any u; of
        conjugate gradients uᵀr is 0. The last term is r_MᵀH_MM⁻¹r_M + eᵀS⁻¹e with the Schur
        complement S of the free coordinates, and e = r_F - H_FM H_MM⁻¹r_M.
        """
        free = np.flatnonzero(self.ridge == 0)
        if len(free) > min(self.most_free, len(self.ridge) - 1):
            return np.inf, 0.0
        cross, schur = self._extremes(free)
        if not schur > 0:  # H is not known to be positive definite
            return np.inf, 0.0
        # coarse: what is left is bounded by the ridge, and is a small part of the whole
        u = self._solved(self.times, g, self.loose)
        r = g - self.times(u[None])[0]
        others = self.ridge > 0
        ridged = float(np.sum(np.square(r[others]) / self.ridge[others]))
        e = float(np.linalg.norm(r[free])) + np.sqrt(cross * ridged)
        q = (1.0 + 1e-6) * float((g + r) @ u + ridged + e * e / schur)
        # λ_min(H) is 1/rᵀH⁻¹r for the worst r of length 1
        mu = self._least_ridge
        return q, float(1.0 / (1.0 / mu + (1.0 + np.sqrt(cross / mu)) ** 2 / schur))

    def _extremes(self, free: Indices) -> tuple[float, float]:
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
        W = np.stack([self._solved(within, h, self.close) for h in H])
        E = H - np.concatenate([within(w[None]) for w in W])
        scaled = E / np.where(others, self.ridge, 1.0)
        B = H @ W.T + W @ E.T + scaled @ E.T
        B = 0.5 * (B + B.T)
        C = columns[:, free]
        room = 1e-10 * np.trace(C)  # for rounding
        cross = max(0.0, float(np.linalg.eigvalsh(B)[-1]))
        return cross, float(np.linalg.eigvalsh(C - B)[0] - room)

    def _solved(self, times: Callable[[Array], Array], g: Array, share: float) -> Array:
        """u near the solution of Mu = g: rᵀr/μ is then a small share of gᵀu, about share²."""
        mu = self._least_ridge
        tolerance = share * np.sqrt(mu / max(mu, self.largest))
        [u] = conjugate_gradients(times, g[None], self.diagonal, tolerance)
        return np.asarray(u)

    @property
    def _least_ridge(self) -> float:
        """The smallest ridge of those that have one."""
        return float(np.min(self.ridge[self.ridge > 0]))
