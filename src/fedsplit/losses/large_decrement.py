"""gᵀH⁻¹g of a Hessian that is too large to be held, bounded by what conjugate gradients leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.losses.batches import Indices
from fedsplit.losses.systems import conjugate_gradients


@dataclass(frozen=True)
class LargeHessian:
    """H = ∇²f(x) of one client, with products alone.

    Attributes
    ----------
    times : callable
        The product with H: (1, d) -> (1, d).
    diagonal : (d,) array
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
        conjugate gradients uᵀr is 0, and ``Below`` bounds the last term.
        """
        below = self._below()
        if below is None:
            return np.inf, 0.0
        u = self._solved(self.times, g, self.loose)
        r = g - self.times(u[None])[0]
        return (1.0 + 1e-6) * float((g + r) @ u + below.remainder(r)), below.smallest

    def _below(self) -> Below | None:
        """What H is at least; None if that is not known to be positive definite."""
        free = np.flatnonzero(self.ridge == 0)
        if len(free) > min(self.most_free, len(self.ridge) - 1):
            return None
        nothing = np.zeros((0, 0))
        if not len(free):
            return Below(self.ridge, free, nothing, nothing)
        C, B = self._across(free)
        room = 1e-10 * np.trace(C)  # for rounding
        S = C - B
        if not np.linalg.eigvalsh(S)[0] > room:
            return None
        return Below(self.ridge, free, S - room * np.eye(len(free)), B)

    def _across(self, free: Indices) -> tuple[Array, Array]:
        """H_FF of the free coordinates F, and a bound on H_FM H_MM⁻¹ H_MF, M being the others.

        With W near H_MM⁻¹H_MF and E = H_MF - H_MM W it is H_FM W + WᵀE + Eᵀdiag(ridge)⁻¹E.
        """
        others = self.ridge > 0
        columns = np.stack([self._column(int(f)) for f in free])
        H = np.where(others, columns, 0.0)

        def within(U: Array) -> Array:
            return np.where(others, self.times(np.where(others, U, 0.0)), 0.0)

        W = np.stack([self._solved(within, h, self.close) for h in H])
        E = H - np.concatenate([within(w[None]) for w in W])
        scaled = E / np.where(others, self.ridge, 1.0)
        B = H @ W.T + W @ E.T + scaled @ E.T
        return columns[:, free], 0.5 * (B + B.T)

    def _column(self, i: int) -> Array:
        """Column i of H, (d,)."""
        unit = np.zeros((1, len(self.ridge)))
        unit[0, i] = 1.0
        column: Array = self.times(unit)[0]
        return column

    def _solved(self, times: Callable[[Array], Array], g: Array, share: float) -> Array:
        """u near the solution of Mu = g: rᵀr/μ is then a small share of gᵀu, about share²."""
        mu = float(np.min(self.ridge[self.ridge > 0]))
        tolerance = share * np.sqrt(mu / max(mu, self.largest))
        return conjugate_gradients(times, self.diagonal, g, tolerance)


class Below(NamedTuple):
    """Blocks that a Hessian is at least: the ridge, and what is left of the free coordinates.

    Attributes
    ----------
    ridge : (d,) array
    free : (f,) array of int
        The coordinates without a ridge.
    S : (f, f) array
        At most the Schur complement of the others, positive definite.
    B : (f, f) array
        At least H_FM H_MM⁻¹ H_MF.
    """

    ridge: Array
    free: Indices
    S: Array
    B: Array

    def remainder(self, r: Array) -> float:
        """A bound on rᵀH⁻¹r = r_MᵀH_MM⁻¹r_M + eᵀS⁻¹e with e = r_F - H_FM H_MM⁻¹r_M."""
        others = self.ridge > 0
        ridged = float(np.sum(np.square(r[others]) / self.ridge[others]))
        if not len(self.free):
            return ridged
        beta, sigma = self._extremes
        e = float(np.linalg.norm(r[self.free])) + np.sqrt(beta * ridged)
        return float(ridged + e * e / sigma)

    @property
    def smallest(self) -> float:
        """A bound on λ_min(H) from below: 1/rᵀH⁻¹r over all r of length 1."""
        mu = float(np.min(self.ridge[self.ridge > 0]))
        if not len(self.free):
            return mu
        beta, sigma = self._extremes
        return float(1.0 / (1.0 / mu + (1.0 + np.sqrt(beta / mu)) ** 2 / sigma))

    @property
    def _extremes(self) -> tuple[float, float]:
        """The largest eigenvalue of B, and the smallest of S."""
        return max(0.0, float(np.linalg.eigvalsh(self.B)[-1])), float(np.linalg.eigvalsh(self.S)[0])
