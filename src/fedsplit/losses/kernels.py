"""Inner products of clients' rows, K = AD⁻¹Aᵀ: as matrices, or by products with A."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from fedsplit.arrays import Array, matvec


class Kernel(Protocol):
    """K_j = A_jD⁻¹A_jᵀ of k clients with n rows each."""

    @property
    def array(self) -> Array | None:
        """The K_j, (k, n, n); None where there are too many rows for them."""

    def __getitem__(self, clients: list[int]) -> Self:
        """Those of some of the clients."""

    def times(self, mu: Array) -> Array:
        """K_jμ_j, (k, n)."""

    def diagonal(self) -> Array:
        """Their diagonals, (k, n)."""

    def over(self, size: float) -> Self:
        """K/size."""


@dataclass(frozen=True, eq=False)
class KernelMatrix:
    """The K_j as matrices.

    Attributes
    ----------
    array : (k, n, n) array
    """

    array: Array

    def __getitem__(self, clients: list[int]) -> KernelMatrix:
        if len(clients) == 1:
            return KernelMatrix(self.array[clients[0] : clients[0] + 1])  # without a copy
        return KernelMatrix(self.array[clients])

    def times(self, mu: Array) -> Array:
        return matvec(self.array, mu)

    def diagonal(self) -> Array:
        return np.diagonal(self.array, axis1=1, axis2=2)

    def over(self, size: float) -> KernelMatrix:
        return KernelMatrix(self.array / size)


@dataclass(frozen=True, eq=False)
class SparseKernel:
    """The K of one client, by products: with K itself where rows have few columns in common.

    Attributes
    ----------
    image : callable
        The product with size·K: (n,) -> (n,).
    own : (n,) array
        The diagonal of size·K.
    size : float
    """

    image: Callable[[Array], Array]
    own: Array
    size: float = 1.0

    @property
    def array(self) -> None:
        return None

    def __getitem__(self, clients: list[int]) -> SparseKernel:
        return self  # it is the only one

    def times(self, mu: Array) -> Array:
        images: Array = (self.image(mu[0]) / self.size)[None]
        return images

    def diagonal(self) -> Array:
        diagonal: Array = (self.own / self.size)[None]
        return diagonal

    def over(self, size: float) -> SparseKernel:
        return SparseKernel(self.image, self.own, self.size * size)
