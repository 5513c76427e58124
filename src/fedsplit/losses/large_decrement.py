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
