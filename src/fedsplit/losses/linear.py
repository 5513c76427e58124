"""Losses of a linear predictor: a scalar function φ makes a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from fedsplit.arrays import (
    Array,
    Mask,
    add_diagonal,
    extreme_eigenvalues,
    gram,
    largest_eigenvalue,
    matvec,
    rmatvec,
    solve_rows,
)
from fedsplit.errors import InputError
from fedsplit.losses.batches import Indices, Stacked
from fedsplit.losses.observations import Observations, check_columns, read
from fedsplit.losses.stacking import stack_rows
from fedsplit.losses.terms import Block, Terms


@dataclass(frozen=True, eq=False)
class LinearTerms(Terms):
    """Stacked terms f_j(x) = Σ_i w_i φ(a_iᵀx + o_i, b_i).

    Attributes
    ----------
    phi : LinearLoss
        φ and its derivatives.
    A : (k, n, d) array
    b, w, o : (k, n) arrays
        Targets, weights and offsets. Clients with fewer than n observations are padded by rows
        of weight zero.
    """

    phi: LinearLoss
    A: Array
    b: Array
    w: Array
    o: Array
    _products: dict[bytes, Array] = field(default_factory=dict, init=False, repr=False)
    _latest: dict[str, tuple[Array, ...]] = field(default_factory=dict, init=False, repr=False)

    @property
    def k(self) -> int:
        return len(self.A)

    @property
    def d(self) -> int:
        return int(self.A.shape[2])

    @property
    def rank(self) -> int:
        return int(min(self.A.shape[1:]))

    @property
    def predictors(self) -> LinearTerms:
        return self

    @property
    def wide(self) -> LinearTerms | None:
        if self.A.shape[1] < self.d:
            return self
        return None

    @property
    def stacked(self) -> Stacked:
        return Stacked(np.sum(self.w > 0, axis=1), self.w.shape[1])

    def subsample(self, rows: Indices, scale: Array) -> Self:
        at = np.arange(self.k)[:, None], rows
        w = scale * self.w[at]
        return replace(self, A=self.A[at], b=self.b[at], w=w, o=self.o[at])

    def largest_row(self, X: Array | None) -> Array:
        if X is None:
            curvature = self.phi.curvature_range[1] * self.w
        else:
            curvature = self.curvature(self.eta(X))
        largest: Array = np.max(curvature * np.sum(np.square(self.A), axis=2), axis=1)
        return largest

    def underdetermined(self) -> Mask:
        few: Mask = np.sum(self.w > 0, axis=1) < self.d
        return few

    def value(self, X: Array) -> Array:
        return self.total(self.eta(X))

    def gradient(self, X: Array) -> Array:
        return self.adjoint(self.slopes(self.eta(X)))

    def hessian(self, X: Array) -> Array:
        return gram(self.root(X))

    def diagonal(self, X: Array) -> Array:
        diagonal: Array = np.sum(np.square(self.root(X)), axis=1)
        return diagonal

    def times(self, X: Array) -> Callable[[Array], Array]:
        bend = self.bend(self.eta(X))
        return lambda U: self.adjoint(bend(self.product(U)))

    def largest(self, X: Array) -> Array:
        if self.wide is None:
            return largest_eigenvalue(self.root(X))
        root = np.sqrt(self.curvature(self.eta(X)))
        K = self.row_products(np.ones(self.d))
        return extreme_eigenvalues(root[:, :, None] * K * root[:, None, :])[1]

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        if self.wide is None:
            return solve_rows(add_diagonal(gram(self.root(X)), D), G)
        # by Woodbury's identity, with systems of size n and inner products of rows that are kept
        root = np.sqrt(self.curvature(self.eta(X)))
        M = root[:, :, None] * self.row_products(D) * root[:, None, :]
        M = add_diagonal(M, np.ones(M.shape[1]))
        image = root * solve_rows(M, root * self.product(G / D))
        return (G - self.adjoint(image)) / D

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.phi.curvature_range
        if low == 0.0 and np.isinf(high):
            return super().bounds()
        B = np.sqrt(self.w)[:, :, None] * self.A
        if B.shape[1] >= self.d:
            ell, L = extreme_eigenvalues(gram(B))
            return low * ell, high * L
        return np.zeros(self.k), high * largest_eigenvalue(B)

    def convexity(self) -> Array:
        if self.phi.curvature_range[0] == 0.0:
            return np.zeros(self.k)
        return super().convexity()

    def values(self, X: Array, Y: Array, shares: Sequence[float]) -> Array:
        way = matvec(self.A, Y - X)
        eta = self.eta(Y)
        return np.stack([self.total(eta + (t - 1.0) * way) for t in shares], axis=1)

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        # D³f[h, u, u] = Σ_i w_i φ'''(η_i) (a_iᵀh)(a_iᵀu)², and |φ'''| ≤ c φ''
        c = self.phi.concordance
        if c in (0.0, np.inf):
            return np.full(self.k, c), np.full(self.k, c)
        norm = c * longest(self.A, self.w)
        if W is None:
            return norm, np.full(self.k, np.inf)
        leverage = longest(np.matmul(self.A, W), self.w)
        return norm, c * np.where(np.isnan(leverage), np.inf, leverage)

    def spread(self, H: Array) -> Array:
        c = self.phi.concordance
        if c in (0.0, np.inf):
            return super().spread(H)
        moved = np.where(self.w > 0, np.abs(matvec(self.A, H)), 0.0)
        spread: Array = c * np.max(moved, axis=1)
        return spread

    def floor(self) -> Array:
        total = np.sum(self.w * self.phi.floor(self.b), axis=1)
        return np.where(np.isnan(total), -np.inf, total)  # padding: zero times -inf

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        w = self.w[j]
        b = np.where(w > 0, self.b[j], 0.0)  # padding is a constant, whatever its target
        phi = self.phi.expression(cp, self.A[j] @ u + self.o[j], b)
        if phi is None:
            return None
        return cp.sum(cp.multiply(w, phi))

    def eta(self, X: Array) -> Array:
        """The predictor a_iᵀx_j + o_i of every observation, (k, n), not to be written to.

        The latest is kept: value, gradient and Hessian are mostly wanted at the same points.
        """
        return self._predicted(X)[1]

    def product(self, X: Array) -> Array:
        return matvec(self.A, X)

    def adjoint(self, R: Array) -> Array:
        return rmatvec(self.A, R)

    def total(self, eta: Array) -> Array:
        total = np.sum(self.w * self.phi.value(eta, self.b), axis=1)
        return np.where(np.isnan(total), np.inf, total)

    def slopes(self, eta: Array) -> Array:
        return self.w * self.phi.slope(eta, self.b)

    def curvature(self, eta: Array) -> Array:
        """w_i φ''(η_i, b_i), (k, n)."""
        return self.w * self.phi.curvature(eta, self.b)

    def row_products(self, D: Array) -> Array:
        # kept for the latest D, and for that up to a factor: for one number D, AAᵀ serves all steps
        top = D.max()
        key = (D / top).tobytes()
        unit = self._products.get(key)
        if unit is None:
            scaled = self.A * np.sqrt(top / D)
            unit = np.matmul(scaled, np.swapaxes(scaled, 1, 2))  # by symmetry, half the work
            self._products.clear()
            self._products[key] = unit
        latest = self._latest.get("row_products")
        if latest is None or latest[0].tobytes() != D.tobytes():
            latest = D, unit / top
            self._latest["row_products"] = latest
        return latest[1]

    def bend(self, eta: Array) -> Callable[[Array], Array]:
        curvature = self.curvature(eta)
        return lambda a: curvature * a

    def _predicted(self, X: Array) -> tuple[Array, Array]:
        """A_jx_j, and the predictors, both (k, n): the latest are kept."""
        latest = self._latest.get("eta")
        if latest is not None and np.array_equal(latest[0], X):
            return latest[1], latest[2]
        product = matvec(self.A, X)
        eta = product + self.o
        eta.flags.writeable = False
        self._latest["eta"] = X.copy(), product, eta
        return product, eta

    def root(self, X: Array) -> Array:
        """B_j with ∇²f_j(x_j) = B_jᵀB_j, (k, n, d)."""
        weights: Array = np.sqrt(self.curvature(self.eta(X)))
        B: Array = weights[:, :, None] * self.A
        return B


class LinearLoss(ABC):
    """A loss of the linear predictor: f_j(x) = Σ_i w_i φ(η_i, b_i), η_i = a_iᵀx + o_i.

    A subclass gives φ, convex in η, and its derivatives in η, elementwise for arrays of one shape.

    Attributes
    ----------
    curvature_range : (float, float)
        Bounds on the second derivative φ'' that hold for all η and b.
    concordance : float
        c such that the third derivative |φ'''| ≤ c φ'' everywhere: 0 for a quadratic, inf if there
        is no such bound. Certificates need it.
    terms : type
        The class of the stacked terms.
    """

    curvature_range: tuple[float, float] = (0.0, np.inf)
    concordance: float = np.inf
    terms: ClassVar[type[LinearTerms]] = LinearTerms

    @abstractmethod
    def value(self, eta: Array, b: Array) -> Array:
        """φ(η, b)."""

    @abstractmethod
    def slope(self, eta: Array, b: Array) -> Array:
        """φ'(η, b)."""

    @abstractmethod
    def curvature(self, eta: Array, b: Array) -> Array:
        """φ''(η, b)."""

    def tilt(self, eta: Array, b: Array) -> Array:
        """φ'''/φ'', which Firth's correction needs."""
        raise InputError(f"{type(self).__name__} states no third derivative")

    def floor(self, b: Array) -> Array:
        """A lower bound on φ(·, b); -inf if none is known."""
        return np.full_like(b, -np.inf)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        """φ(η, b) as a CVXPY expression, elementwise; None if there is none (``cp`` is cvxpy)."""
        return None

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw targets b from a model that this loss fits, for simulations and tests."""
        raise NotImplementedError(f"{type(self).__name__} does not state how targets are drawn")

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        """The observations with b in the coding of φ; raises InputError if a b is not allowed."""
        return data

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge)
        d = data[0].A.shape[1]
        make = partial(self.terms, self)
        return d, stack_rows(make, self.targets(data), range(len(data)), d)


def longest(rows: Array, w: Array) -> Array:
    """The largest norm of a client's rows, padding apart: (k, n, d), (k, n) -> (k,)."""
    norm: Array = np.max(np.where(w > 0, np.linalg.norm(rows, axis=2), 0.0), axis=1)
    return norm


def least(numbers: Array, w: Array) -> Array:
    """The least of a client's numbers, padding apart: (k, n), (k, n) -> (k,)."""
    smallest: Array = np.min(np.where(w > 0, numbers, np.inf), axis=1)
    return smallest
