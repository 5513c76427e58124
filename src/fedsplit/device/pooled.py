"""All clients on a device as one, whose cost is the sum of theirs, in float64.

Certificates and methods that need sums alone ask this one client: values, gradients and Hessians
are added up on the device, piece by piece, and only the sums reach the host.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask, extreme_eigenvalues
from fedsplit.device.backend import DeviceArray, to_host, vector
from fedsplit.device.rows import DeviceRows, Piece
from fedsplit.losses.huber import Huber
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.terms import Terms


@dataclass(frozen=True, eq=False)
class PooledTerms(Terms):
    """Σ_j f_j without the ridge, as the terms of one client.

    Attributes
    ----------
    rows : DeviceRows
    """

    rows: DeviceRows
    _known: dict[str, Array] = field(default_factory=dict, init=False, repr=False)

    @property
    def k(self) -> int:
        return 1

    @property
    def d(self) -> int:
        return self.rows.d

    @property
    def classifies(self) -> bool:
        return self.rows.phi.classifies

    def value(self, eta: Array) -> Array:
        x = self._point(eta)
        phi = self.rows.phi
        total = self._sum(lambda piece: _total(piece.w * phi.value(_eta(piece, x), piece.b)))
        return np.where(np.isnan(total), np.inf, total)[None]

    def gradient(self, eta: Array) -> Array:
        x = self._point(eta)
        phi = self.rows.phi
        return self._sum(lambda piece: (piece.w * phi.slope(_eta(piece, x), piece.b)) @ piece.A)[
            None
        ]

    def hessian(self, eta: Array) -> Array:
        x = self._point(eta)
        phi = self.rows.phi
        return self._gram(lambda piece: piece.w * phi.curvature(_eta(piece, x), piece.b))

    def values(self, start: Array, end: Array, shares: Sequence[float]) -> Array:
        x = self._point(start)
        way = self._point(end) - x
        phi = self.rows.phi
        xp = self.rows.xp

        def along(piece: Piece) -> DeviceArray:
            eta = _eta(piece, x)
            moved = piece.A @ way
            return xp.stack([_total(piece.w * phi.value(eta + t * moved, piece.b)) for t in shares])

        return self._sum(along)[None]

    def underdetermined(self) -> Mask:
        return np.array([self.rows.m * self.rows.n < self.d])

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.rows.phi.curvature_range
        if low == 0.0 and np.isinf(high):
            return super().bounds()
        if "gram" not in self._known:
            self._known["gram"] = self._gram(lambda piece: piece.w)
        ell, L = extreme_eigenvalues(self._known["gram"])
        return low * ell, high * L

    def convexity(self) -> Array:
        if self.rows.phi.curvature_range[0] == 0.0:
            return np.zeros(1)
        return super().convexity()

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        c = self.rows.phi.concordance
        if c in (0.0, np.inf):
            return np.full(1, c), np.full(1, c)
        if "longest" not in self._known:
            self._known["longest"] = self._most(lambda piece: piece.A)
        norm = c * np.sqrt(self._known["longest"])
        if W is None:
            return norm, np.full(1, np.inf)
        if np.isnan(W).any():
            return norm, np.full(1, np.inf)
        root = vector(W[0], self.rows.A)
        return norm, c * np.sqrt(self._most(lambda piece: piece.A @ root))

    def spread(self, H: Array) -> Array:
        c = self.rows.phi.concordance
        if c in (0.0, np.inf):
            return super().spread(H)
        h = self._point(H)
        return c * np.sqrt(self._most(lambda piece: (piece.A @ h)[:, None]))

    def floor(self) -> Array:
        if "floor" not in self._known:
            floors = self.rows.phi.floor
            parts = [
                np.sum(np.where(w > 0, w * floors(b), 0.0))
                for b, w in ((to_host(piece.b), to_host(piece.w)) for piece in self.rows.pieces())
            ]
            self._known["floor"] = np.array([np.sum(parts)])
        return self._known["floor"]

    def steady(self, X: Array, eta: Array) -> Array:
        loss = self.rows.phi
        if isinstance(loss, LeastSquares):
            return np.full(1, np.inf)
        if not isinstance(loss, Huber):
            return np.zeros(1)
        return self._nearest_kink(self._point(X), loss.delta)

    def margin(self, eta: Array) -> Array:
        x = self._point(eta)
        xp = self.rows.xp
        # padding has no margin
        return self._least(
            lambda piece: xp.where(piece.w > 0, piece.b * (piece.A @ x), xp.inf * _ones(piece))
        )

    def _nearest_kink(self, x: DeviceArray, delta: float) -> Array:
        """The radius of a ball around x in which no residual crosses ±δ, less rounding, (1,)."""
        xp = self.rows.xp
        rounding = 2 * (self.d + 4) * sys.float_info.epsilon
        far = float(xp.sqrt(xp.sum(x * x)))

        def room(piece: Piece) -> DeviceArray:
            length = xp.sqrt(xp.sum(piece.A * piece.A, axis=1))
            size = length * far + xp.abs(piece.o) + xp.abs(piece.b) + delta
            left = xp.abs(xp.abs(_eta(piece, x) - piece.b) - delta) - rounding * size
            counts = (length > 0) & (piece.w > 0)
            nonzero = xp.where(counts, length, _ones(piece))
            return xp.where(counts, xp.clip(left, 0.0, None) / nonzero, xp.inf * _ones(piece))

        return (1.0 - rounding) * self._least(room)

    def _point(self, X: Array) -> DeviceArray:
        return vector(X[0], self.rows.A)

    def _sum(self, of: Callable[[Piece], DeviceArray]) -> Array:
        """The sum over all pieces, on the host."""
        total = None
        for piece in self.rows.pieces():
            part = of(piece)
            total = part if total is None else total + part
        return to_host(total)

    def _gram(self, weights: Callable[[Piece], DeviceArray]) -> Array:
        """Σ_i w_i a_ia_iᵀ, (1, d, d)."""
        gram = self._sum(lambda piece: (weights(piece)[:, None] * piece.A).T @ piece.A)
        symmetric: Array = 0.5 * (gram + gram.T)
        return symmetric[None]

    def _most(self, vectors: Callable[[Piece], DeviceArray]) -> Array:
        """The largest ‖·‖² of a vector per row, padding apart, (1,)."""
        xp = self.rows.xp

        def most(piece: Piece) -> DeviceArray:
            square = xp.sum(vectors(piece) ** 2, axis=1)
            return xp.max(xp.where(piece.w > 0, square, xp.zeros_like(square)))

        return np.array([max(float(most(piece)) for piece in self.rows.pieces())])

    def _least(self, numbers: Callable[[Piece], DeviceArray]) -> Array:
        """The least of a number per row, (1,)."""
        xp = self.rows.xp
        return np.array([min(float(xp.min(numbers(piece))) for piece in self.rows.pieces())])


def _eta(piece: Piece, x: DeviceArray) -> DeviceArray:
    return piece.A @ x + piece.o


def _total(numbers: DeviceArray) -> DeviceArray:
    return array_namespace(numbers).sum(numbers)


def _ones(piece: Piece) -> DeviceArray:
    return array_namespace(piece.b).ones_like(piece.b)
