"""Losses of a linear predictor, f_j(x) = Σ_i w_i φ(a_iᵀx + o_i, b_i): one scalar function φ makes a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Protocol

import numpy as np

from fedsplit.arrays import Array, add_diagonal, gram, matvec, rmatvec, solve_rows
from fedsplit.losses.observations import Observations
from fedsplit.losses.terms import Block, Terms, extreme_eigenvalues

BLOCK_BYTES = 8 * 2**20
"""Clients are stacked into blocks of about this size: a few fit the cache, and no temporary is larger."""


class ScalarLoss(Protocol):
    """φ(η, b) and its first two derivatives in η, elementwise.

    ``curvature_range`` bounds the second derivative over every η, ``concordance`` times it bounds the third, and
    ``floor`` is at most φ.
    """

    @property
    def curvature_range(self) -> tuple[float, float]: ...

    @property
    def concordance(self) -> float: ...

    def floor(self, b: Array) -> Array: ...

    def value(self, eta: Array, b: Array) -> Array: ...

    def slope(self, eta: Array, b: Array) -> Array: ...

    def curvature(self, eta: Array, b: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class LinearTerms:
    """Stacked terms of φ: A is (k, n, d), b, w and o are (k, n), shorter clients padded by rows of weight zero."""

    phi: ScalarLoss
    A: Array
    b: Array
    w: Array
    o: Array

    @property
    def k(self) -> int:
        return len(self.A)

    @property
    def d(self) -> int:
        return int(self.A.shape[2])

    @property
    def rank(self) -> int:
        return int(min(self.A.shape[1:]))

    def value(self, X: Array) -> Array:
        total = np.sum(self.w * self.phi.value(self.eta(X), self.b), axis=1)
        return np.where(np.isnan(total), np.inf, total)

    def gradient(self, X: Array) -> Array:
        return rmatvec(self.A, self.w * self.phi.slope(self.eta(X), self.b))

    def hessian(self, X: Array) -> Array:
        return gram(self._weighted(X))

    def diagonal(self, X: Array) -> Array:
        diagonal: Array = np.sum(np.square(self._weighted(X)), axis=1)
        return diagonal

    def largest(self, X: Array) -> Array:
        return largest_eigenvalue(self._weighted(X))

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        B = self._weighted(X)
        if B.shape[1] >= self.d:
            return solve_rows(add_diagonal(gram(B), D), G)
        return solve_wide(B, D, G)

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.phi.curvature_range
        if low == 0.0 and np.isinf(high):
            return np.zeros(self.k), np.full(self.k, np.inf)
        B = np.sqrt(self.w)[:, :, None] * self.A
        if B.shape[1] >= self.d:
            ell, L = extreme_eigenvalues(gram(B))
            return low * ell, high * L
        return np.zeros(self.k), high * largest_eigenvalue(B)

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        c = self.phi.concordance
        if c in (0.0, np.inf):
            return np.full(self.k, c), np.full(self.k, c)
        norm = longest(self.A, self.w)
        leverage = np.full(self.k, np.inf) if W is None else longest(np.matmul(self.A, W), self.w)
        return c * norm, c * np.where(np.isnan(leverage), np.inf, leverage)

    def floor(self) -> Array:
        total: Array = np.sum(self.w * self.phi.floor(self.b), axis=1)
        return total

    def steady(self, X: Array) -> Array:
        return np.zeros(self.k)

    def margin(self, X: Array) -> Array:
        return np.full(self.k, np.nan)

    def eta(self, X: Array) -> Array:
        """a_iᵀx_j + o_i of every observation, (k, n)."""
        eta = matvec(self.A, X)
        eta += self.o
        return eta

    def _weighted(self, X: Array) -> Array:
        """B_j with ∇²f_j(x_j) = B_jᵀB_j."""
        weights: Array = np.sqrt(self.w * self.phi.curvature(self.eta(X), self.b))
        B: Array = weights[:, :, None] * self.A
        return B


class ExponentialLoss(ScalarLoss, Protocol):
    """φ whose slope grows like an exponential of η, beyond float64."""

    def log_slope(self, eta: Array, b: Array) -> Array:
        """log|φ'|, where that is large."""


@dataclass(frozen=True, eq=False)
class ExponentialTerms(LinearTerms):
    """Terms whose gradient is ±inf, and right in every other coordinate, where a slope exceeds float64."""

    phi: ExponentialLoss

    def gradient(self, X: Array) -> Array:
        eta = self.eta(X)
        r = self.w * self.phi.slope(eta, self.b)
        g = rmatvec(self.A, r)
        return g if np.isfinite(g).all() else self._overflowing_gradient(eta, r)

    def _overflowing_gradient(self, eta: Array, r: Array) -> Array:
        """Aᵀr where a slope, or a sum of some, exceeds float64: large ones summed on the scale of the largest."""
        with np.errstate(divide="ignore"):
            log_slope = self.phi.log_slope(eta, self.b).clip(max=1e300)
            large = log_slope > 600.0
            top = np.max(np.where(large, log_slope, 0.0), axis=1, keepdims=True)
            scaled = rmatvec(
                self.A, np.where(large, np.sign(r) * self.w * np.exp(log_slope - top), 0.0)
            )
            size = np.exp(np.log(np.abs(scaled)) + top)
        g: Array = rmatvec(self.A, np.where(large, 0.0, r)) + np.copysign(size, scaled)
        return g


def longest(rows: Array, w: Array) -> Array:
    """The largest norm of a client's rows, (k, n, d) -> (k,), without the padding."""
    norm: Array = np.max(np.where(w > 0, np.linalg.norm(rows, axis=2), 0.0), axis=1)
    return norm


def least(numbers: Array, w: Array) -> Array:
    """The least of a client's numbers, (k, n) -> (k,), without the padding."""
    smallest: Array = np.min(np.where(w > 0, numbers, np.inf), axis=1)
    return smallest


def solve_wide(B: Array, D: Array, G: Array) -> Array:
    """(D + BᵀB)⁻¹ g = D⁻¹(g - Bᵀ (I + B D⁻¹ Bᵀ)⁻¹ B D⁻¹ g), Woodbury's: a system as large as B has rows."""
    M = add_diagonal(np.matmul(B / D, np.swapaxes(B, 1, 2)), np.ones(B.shape[1]))
    return (G - rmatvec(B, solve_rows(M, matvec(B, G / D)))) / D


def largest_eigenvalue(B: Array) -> Array:
    """The largest eigenvalue of every B_jᵀB_j, from the smaller of the two products."""
    return extreme_eigenvalues(
        gram(B) if B.shape[1] >= B.shape[2] else np.matmul(B, np.swapaxes(B, 1, 2))
    )[1]


def padded(n: int) -> int:
    """The stacked length of a client with n observations: n rounded up to four significant bits.

    It depends on n alone, so a client's arithmetic is the same whoever it is stacked with, and adds less than 1/8.
    """
    unit = 1 << max(0, n.bit_length() - 4)
    return -(-n // unit) * unit


def stack_linear(
    phi: ScalarLoss,
    data: Sequence[Observations],
    members: Sequence[int],
    kind: type[LinearTerms] = LinearTerms,
) -> list[Block]:
    """The terms of φ of these clients, in blocks of equal padded length."""
    return stack_rows(partial(kind, phi), data, members, data[0].A.shape[1])


def stack_rows(
    make: Callable[[Array, Array, Array, Array], Terms],
    data: Sequence[Observations],
    members: Sequence[int],
    d: int,
) -> list[Block]:
    """The terms that ``make`` makes of stacked A, b, w and o, with up to d floats of work an observation."""

    def pad(clients: Sequence[int]) -> Terms:
        k, n = len(clients), padded(data[clients[0]].b.shape[0])
        A, (b, w, o) = np.zeros((k, n, data[0].A.shape[1])), np.zeros((3, k, n))
        for row, j in enumerate(clients):
            size = data[j].b.shape[0]
            A[row, :size], b[row, :size], w[row, :size], o[row, :size] = data[j]
        return make(A, b, w, o)

    def length(j: int) -> int:
        return padded(data[j].b.shape[0])

    groups = groupby(sorted(members, key=length), key=length)
    return [
        Block(chunk, pad(chunk)) for n, group in groups for chunk in cut(list(group), 8 * n * d)
    ]


def cut(members: Sequence[int], client_bytes: int) -> Iterator[Sequence[int]]:
    """Clients in runs of about BLOCK_BYTES."""
    size = max(1, BLOCK_BYTES // client_bytes)
    for i in range(0, len(members), size):
        yield members[i : i + size]
