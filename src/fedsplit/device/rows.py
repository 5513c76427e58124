"""The clients' rows on a device, for the losses, and all clients as one, in float64.

Certificates and methods that need sums alone ask the one client that all are together: what the
losses compute of some rows at a time is added up, and only the sums reach the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from fedsplit.arrays import Array, Mask, extreme_eigenvalues, placed, to_host
from fedsplit.device.backend import DeviceArray, Namespace
from fedsplit.losses.designs import DenseDesign
from fedsplit.losses.linear import LinearLoss, LinearTerms
from fedsplit.losses.systems import Latest
from fedsplit.losses.terms import Terms


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """m clients with n rows each, in float32 or float64."""

    phi: LinearLoss
    A: DeviceArray  # (m, n, d)
    b: DeviceArray  # (m, n)
    # (m, n): weights; None for 1. Clients with fewer rows are padded by rows of weight zero
    w: DeviceArray | None = None
    o: DeviceArray | None = None  # (m, n): offsets; None for 0
    # rows are computed with in float64, for this many bytes of them at a time: enough to keep a GPU
    # busy, and little beside what is stored
    piece_bytes: int = 2**30

    @property
    def m(self) -> int:
        return int(self.A.shape[0])

    @property
    def n(self) -> int:
        return int(self.A.shape[1])

    @property
    def d(self) -> int:
        return int(self.A.shape[2])

    @property
    def xp(self) -> Namespace:
        return array_namespace(self.A)

    @property
    def device(self) -> Any:
        return device(self.A)

    @property
    def in_float32(self) -> bool:
        """Whether the rows are stored in float32."""
        return bool(self.A.dtype == self.xp.float32)

    def parts(self) -> Iterator[slice]:
        """All clients, some neighbours at a time."""
        clients = max(1, self.piece_bytes // (8 * self.n * self.d))
        for first in range(0, self.m, clients):
            yield slice(first, min(first + clients, self.m))

    def terms(self, part: slice, pooled: bool = False) -> LinearTerms:
        """The loss terms of some clients, in float64; if ``pooled``, of one that has their rows."""
        k = part.stop - part.start
        shape = (1, k * self.n) if pooled else (k, self.n)
        xp = self.xp
        A = xp.reshape(xp.astype(self.A[part, :, :], xp.float64, copy=False), (*shape, self.d))
        b, w, o = (
            self._or(numbers, default, part, shape)
            for numbers, default in ((self.b, 0.0), (self.w, 1.0), (self.o, 0.0))
        )
        return LinearTerms(self.phi, DenseDesign(A), b, w, o)

    def _or(
        self, numbers: DeviceArray | None, default: float, part: slice, shape: tuple[int, int]
    ) -> DeviceArray:
        """The rows' numbers of some clients in float64, or the default for each."""
        xp = self.xp
        if numbers is None:
            one = xp.full((), default, dtype=xp.float64, device=self.device)
            return xp.broadcast_to(one, shape)
        return xp.reshape(xp.astype(numbers[part, :], xp.float64, copy=False), shape)


@dataclass(frozen=True, eq=False)
class PooledTerms(Terms):
    """Σ_j f_j without the ridge, as the terms of one client whose points are on the host."""

    rows: DeviceRows
    # what holds at every point, and takes a pass over the rows
    latest: Latest = field(default_factory=Latest, repr=False)

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
        return self._added(lambda terms, X: terms.value(terms.eta(X)), eta)

    def gradient(self, eta: Array) -> Array:
        return self._added(lambda terms, X: terms.gradient(terms.eta(X)), eta)

    def hessian(self, eta: Array) -> Array:
        return self._added(lambda terms, X: terms.hessian(terms.eta(X)), eta)

    def values(self, start: Array, end: Array, shares: Sequence[float]) -> Array:
        def along(terms: LinearTerms, X: Any, Y: Any) -> Any:
            return terms.values(terms.eta(X), terms.eta(Y), shares)

        return self._added(along, start, end)

    def underdetermined(self) -> Mask:
        return np.array([self.rows.m * self.rows.n < self.d])

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.rows.phi.curvature_range
        if np.isinf(high):
            return super().bounds()
        # those of the sum do not follow from those of its parts
        gram = self._added(lambda terms: terms.design.scaled(terms.w**0.5).gram())
        ell, L = extreme_eigenvalues(gram)
        return low * ell, high * L

    def convexity(self) -> Array:
        # the usual case, without eigenvalues
        return np.zeros(1) if self.rows.phi.curvature_range[0] == 0.0 else super().convexity()

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        norm = self.latest.get("norm", None, self._norm)
        if W is None:
            return norm, np.full(1, np.inf)
        return norm, self._folded(np.maximum, lambda terms, root: terms.concordance(root)[1], W)

    def _norm(self) -> Array:
        return self._folded(np.maximum, lambda terms: terms.concordance(None)[0])

    def spread(self, H: Array) -> Array:
        return self._folded(np.maximum, lambda terms, X: terms.spread(X), H)

    def floor(self) -> Array:
        return self.latest.get("floor", None, lambda: self._added(lambda terms: terms.floor()))

    def steady(self, X: Array, eta: Array) -> Array:
        return self._folded(np.minimum, lambda terms, Y: terms.steady(Y, terms.eta(Y)), X)

    def margin(self, eta: Array) -> Array:
        return self._folded(np.minimum, lambda terms, X: terms.margin(terms.eta(X)), eta)

    def _added(self, of: Callable[..., DeviceArray], *points: Array) -> Array:
        """The sum of what some rows have, on the host; it is added up on the device."""
        return to_host(reduce(lambda total, part: total + part, self._each(of, points)))

    def _folded(
        self, fold: Callable[[Array, Array], Array], of: Callable[..., DeviceArray], *points: Array
    ) -> Array:
        """The largest or least of what some rows have, on the host."""
        return reduce(fold, map(to_host, self._each(of, points)))

    def _each(self, of: Callable[..., DeviceArray], points: Sequence[Array]) -> Iterator[Any]:
        """What the rows have, some of them at a time."""
        there = [placed(X, self.rows.A) for X in points]
        for part in self.rows.parts():
            yield of(self.rows.terms(part, pooled=True), *there)
