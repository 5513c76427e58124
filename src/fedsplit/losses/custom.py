"""A loss of the user's own: any convex function, given by its value and gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array, add_diagonal, solve_rows
from fedsplit.checks import count
from fedsplit.errors import InputError
from fedsplit.losses.terms import Block, extreme_eigenvalues
from fedsplit.losses.work import counter


@dataclass(frozen=True)
class CustomLoss:
    """f_j(x) = value(x, data_j) for a convex, differentiable function of your own.

    Parameters
    ----------
    value : callable
        ``value(x, data) -> float``; x is (d,), data is what the list of clients holds for this client.
    gradient : callable
        ``gradient(x, data) -> (d,)``.
    d : int
        The dimension of x.
    hessian : callable, optional
        ``hessian(x, data) -> (d, d)``. Without it, central differences of the gradient stand in: 2d gradients for
        each Hessian, so prefer ``GradientProx`` when d is large.
    curvature : callable, optional
        ``curvature(data) -> (ell, L)``: bounds on the Hessian's eigenvalues that hold everywhere.
    """

    value: Callable[[Array, Any], float]
    gradient: Callable[[Array, Any], Array]
    d: int
    hessian: Callable[[Array, Any], Array] | None = None
    curvature: Callable[[Any], tuple[float, float]] | None = None

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        count("CustomLoss: d", self.d)
        data = list(clients)
        if not data:
            raise InputError("there is no client: pass a list with one item of data a client")
        terms = CustomTerms(self, data)
        zero = np.zeros((len(data), self.d))
        for j, (f, g) in enumerate(zip(terms.value(zero), terms.gradient(zero), strict=True)):
            if np.isnan(f) or np.isnan(g).any():
                raise InputError(f"client {j}: the value or the gradient at x = 0 is not a number")
        return self.d, [Block(range(len(data)), terms)]


@dataclass(frozen=True, eq=False)
class CustomTerms:
    """The user's function at every client, one call after the other."""

    loss: CustomLoss
    data: Sequence[object]

    @property
    def k(self) -> int:
        return len(self.data)

    @property
    def d(self) -> int:
        return self.loss.d

    @property
    def rank(self) -> int:
        return self.d

    def value(self, X: Array) -> Array:
        return np.array([self._value(j, x) for j, x in enumerate(X)])

    def gradient(self, X: Array) -> Array:
        return np.stack([self._gradient(j, x) for j, x in enumerate(X)])

    def hessian(self, X: Array) -> Array:
        if self.loss.hessian is None:
            counter.gradients += 2 * self.d
        return np.stack([self._hessian(j, x) for j, x in enumerate(X)])

    def diagonal(self, X: Array) -> Array:
        diagonal: Array = np.einsum("kii->ki", self.hessian(X))
        return diagonal

    def largest(self, X: Array) -> Array:
        return extreme_eigenvalues(self.hessian(X))[1]

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        return solve_rows(add_diagonal(self.hessian(X), D), G)

    def bounds(self) -> tuple[Array, Array]:
        if self.loss.curvature is None:
            return np.zeros(self.k), np.full(self.k, np.inf)
        try:
            ell, L = np.array([self.loss.curvature(data) for data in self.data], dtype=np.float64).T
        except (TypeError, ValueError):
            raise InputError(
                "curvature must return two numbers, ell and L, for each client"
            ) from None
        wrong = np.flatnonzero(~((ell >= 0) & (ell <= L)))
        if wrong.size:
            j = int(wrong[0])
            raise InputError(
                f"client {j}: curvature must be 0 <= ell <= L, not ({ell[j]:g}, {L[j]:g})"
            )
        return ell, L

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        return np.full(self.k, np.inf), np.full(self.k, np.inf)

    def floor(self) -> Array:
        return np.full(self.k, -np.inf)

    def steady(self, X: Array) -> Array:
        return np.zeros(self.k)

    def margin(self, X: Array) -> Array:
        return np.full(self.k, np.nan)

    def _value(self, j: int, x: Array) -> float:
        f = np.asarray(self.loss.value(x, self.data[j]))
        if f.shape != () or f.dtype.kind not in "biuf":
            raise InputError(f"client {j}: value must return a number, it returned {f!r}")
        return float(f)

    def _gradient(self, j: int, x: Array) -> Array:
        g: Array = np.asarray(self.loss.gradient(x, self.data[j]), dtype=np.float64)
        if g.shape != (self.d,):
            raise InputError(
                f"client {j}: gradient must return shape ({self.d},), it returned {g.shape}"
            )
        return g

    def _hessian(self, j: int, x: Array) -> Array:
        if self.loss.hessian is None:
            h = np.cbrt(np.finfo(np.float64).eps) * np.maximum(1.0, np.abs(x))
            steps = np.diag(h)
            H = np.stack([(self._gradient(j, x + e) - self._gradient(j, x - e)) for e in steps]) / (
                2 * h[:, None]
            )
        else:
            H = np.asarray(self.loss.hessian(x, self.data[j]), dtype=np.float64)
        if H.shape != (self.d, self.d):
            raise InputError(
                f"client {j}: hessian must return shape ({self.d}, {self.d}), it returned {H.shape}"
            )
        symmetric: Array = 0.5 * (H + H.T)
        return symmetric
