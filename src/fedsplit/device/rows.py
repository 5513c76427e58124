"""The clients' rows on a device, as they are stored there and as the losses take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from fedsplit.device.backend import DeviceArray, Namespace
from fedsplit.losses.designs import DenseDesign
from fedsplit.losses.linear import LinearLoss, LinearTerms


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
