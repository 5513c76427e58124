"""The clients' rows as stacked arrays on a device, and products with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from fedsplit.device.backend import DeviceArray, Namespace
from fedsplit.losses.linear import LinearLoss

GROUP = 64
"""The rows of so many clients are added up in their own precision, and such sums in float64."""

CHUNK_BYTES = 2**28
"""What is computed in float64 is computed for so many bytes of rows at a time."""


class Piece(NamedTuple):
    """Some of the rows of all clients, one after another, in float64.

    Attributes
    ----------
    A : (r, d) array
    b, w, o : (r,) arrays
    """

    A: DeviceArray
    b: DeviceArray
    w: DeviceArray
    o: DeviceArray


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """m clients with n rows each: f_j(x) = Σ_i w_i φ(a_iᵀx + o_i, b_i), without the ridge.

    Attributes
    ----------
    phi : LinearLoss
    A : (m, n, d) array
    b : (m, n) array
    w : (m, n) array or None
        Weights; None for 1. Clients with fewer rows are padded by rows of weight zero.
    o : (m, n) array or None
        Offsets; None for 0.
    """

    phi: LinearLoss
    A: DeviceArray
    b: DeviceArray
    w: DeviceArray | None = None
    o: DeviceArray | None = None

    @property
    def m(self) -> int:
        return int(self.A.shape[0])

    @property
    def n(self) -> int:
        return int(self.A.shape[1])

    @property
    def d(self) -> int:
        return int(self.A.shape[2])

    @cached_property
    def xp(self) -> Namespace:
        return array_namespace(self.A)

    @cached_property
    def device(self) -> Any:
        return device(self.A)

    @property
    def wide(self) -> bool:
        """Whether clients have fewer rows than columns."""
        return self.n < self.d

    def cast(self, x: DeviceArray) -> DeviceArray:
        """An array in the precision of the rows."""
        return self.xp.astype(x, self.A.dtype, copy=False)

    def zeros(self, *shape: int) -> DeviceArray:
        """Zeros in float64."""
        return self.xp.zeros(shape, dtype=self.xp.float64, device=self.device)

    def total(self, x: DeviceArray) -> DeviceArray:
        """The sum over the clients, axis 0, in float64."""
        return self.xp.sum(x, axis=0, dtype=self.xp.float64)

    def product(self, x: DeviceArray) -> DeviceArray:
        """A_jx or A_jx_j, (m, n), of x that is (d,) or (m, d)."""
        x = self.cast(x)
        if x.ndim == 1:
            flat = self.xp.reshape(self.A, (self.m * self.n, self.d)) @ x
            return self.xp.reshape(flat, (self.m, self.n))
        return self.xp.matmul(self.A, x[:, :, None])[:, :, 0]

    def adjoint(self, c: DeviceArray) -> DeviceArray:
        """A_jᵀc_j, (m, d)."""
        return self.xp.matmul(self.cast(c)[:, None, :], self.A)[:, 0, :]

    def adjoint_total(self, c: DeviceArray) -> DeviceArray:
        """Σ_j A_jᵀc_j, (d,), in float64."""
        xp = self.xp
        c = self.cast(c)
        total = self.zeros(self.d)
        whole = self.m // GROUP * GROUP
        for first, last, size in ((0, whole, GROUP), (whole, self.m, self.m - whole)):
            if last > first:
                groups = (last - first) // size
                left = xp.reshape(c[first:last, :], (groups, 1, size * self.n))
                right = xp.reshape(self.A[first:last, :, :], (groups, size * self.n, self.d))
                sums = xp.matmul(left, right)[:, 0, :]
                total = total + self.total(sums)
        return total

    @cached_property
    def row_gram(self) -> DeviceArray:
        """A_jA_jᵀ, (m, n, n)."""
        return self.xp.matmul(self.A, self.xp.matrix_transpose(self.A))

    def row_products(self, c: DeviceArray) -> DeviceArray:
        """A_jA_jᵀc_j, (m, n)."""
        return self.xp.matmul(self.row_gram, self.cast(c)[:, :, None])[:, :, 0]

    def predictor(self, product: DeviceArray) -> DeviceArray:
        """The predictors η of A_jx_j."""
        if self.o is None:
            return product
        return product + self.o

    def weighted(self, numbers: DeviceArray) -> DeviceArray:
        """Numbers of rows, times the rows' weights."""
        if self.w is None:
            return numbers
        return self.w * numbers

    def values(self, eta: DeviceArray) -> DeviceArray:
        """Σ_i w_i φ(η_i), (m,), in float64; inf where it is not a number."""
        xp = self.xp
        wide = self.weighted(self.phi.value(eta, self.b))
        total = xp.sum(wide, axis=1, dtype=xp.float64)
        return xp.where(xp.isnan(total), xp.inf * xp.ones_like(total), total)

    def slopes(self, eta: DeviceArray) -> DeviceArray:
        """w_i φ'(η_i), (m, n)."""
        return self.weighted(self.phi.slope(eta, self.b))

    def curvatures(self, eta: DeviceArray) -> DeviceArray:
        """w_i φ''(η_i), (m, n)."""
        return self.weighted(self.phi.curvature(eta, self.b))

    def pieces(self) -> Iterator[Piece]:
        """All rows, piece by piece, in float64."""
        xp = self.xp
        clients = max(1, CHUNK_BYTES // (8 * self.n * self.d))
        for first in range(0, self.m, clients):
            part = slice(first, min(first + clients, self.m))
            rows = (part.stop - first) * self.n
            A = xp.reshape(xp.astype(self.A[part, :, :], xp.float64), (rows, self.d))
            b = self._flat(self.b, part, 0.0)
            yield Piece(A, b, self._flat(self.w, part, 1.0), self._flat(self.o, part, 0.0))

    def _flat(self, numbers: DeviceArray | None, part: slice, default: float) -> DeviceArray:
        xp = self.xp
        rows = (part.stop - part.start) * self.n
        if numbers is None:
            return xp.full((rows,), default, dtype=xp.float64, device=self.device)
        return xp.reshape(xp.astype(numbers[part, :], xp.float64), (rows,))

    @property
    def bytes_kept(self) -> int:
        """What a run keeps beside the rows: K twice, and some numbers per row."""
        return 2 * self.m * self.n * (self.n + 8) * _size(self.A)


def _size(array: DeviceArray) -> int:
    return 4 if "float32" in str(array.dtype) else 8
