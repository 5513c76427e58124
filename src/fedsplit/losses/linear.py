"""Losses of a linear predictor: a scalar function φ makes a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal, extreme_eigenvalues, solve_rows
from fedsplit.errors import InputError
from fedsplit.losses.batches import Indices, Stacked
from fedsplit.losses.conjugate_gradients import conjugate_gradients
from fedsplit.losses.designs import Design
from fedsplit.losses.kernels import Kernel, KernelMatrix
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
    design : Design
        The rows of the k clients, A.
    b, w, o : (k, n) arrays
        Targets, weights and offsets. Clients with fewer than n observations are padded by rows
        of weight zero.
    """

    phi: LinearLoss
    design: Design
    b: Array
    w: Array
    o: Array
    _kernel: dict[str, tuple[Array, Kernel]] = field(default_factory=dict, init=False, repr=False)
    _products: dict[bytes, Array] = field(default_factory=dict, init=False, repr=False)
    _latest: dict[str, tuple[Array, ...]] = field(default_factory=dict, init=False, repr=False)

    @property
    def k(self) -> int:
        return self.design.shape[0]

    @property
    def d(self) -> int:
        return self.design.shape[2]

    @property
    def A(self) -> Array:  # noqa: N802  # the paper's name
        """The rows as an array, (k, n, d), where they are not sparse."""
        return self.design.array

    @property
    def large(self) -> bool:
        return self.design.large

    @property
    def rank(self) -> int:
        return min(self.design.shape[1:])

    @property
    def predictors(self) -> LinearTerms:
        return self

    @property
    def wide(self) -> LinearTerms | None:
        if self.design.shape[1] < self.d:
            return self
        return None

    @property
    def stacked(self) -> Stacked:
        return Stacked(np.sum(self.w > 0, axis=1), self.w.shape[1])

    def subsample(self, rows: Indices, scale: Array) -> Self:
        at = np.arange(self.k)[:, None], rows
        design = self.design.chosen(rows)
        return replace(self, design=design, b=self.b[at], w=scale * self.w[at], o=self.o[at])

    def largest_row(self, X: Array | None) -> Array:
        if X is None:
            curvature = self.phi.curvature_range[1] * self.w
        else:
            curvature = self.curvature(self.eta(X))
        largest: Array = np.max(curvature * np.square(self.design.lengths()), axis=1)
        return largest

    def underdetermined(self) -> Mask:
        few: Mask = np.sum(self.w > 0, axis=1) < self.d
        return few

    def value(self, X: Array) -> Array:
        return self.total(self.eta(X))

    def gradient(self, X: Array) -> Array:
        return self.adjoint(self.slopes(self.eta(X)))

    def hessian(self, X: Array) -> Array:
        return self.root(X).gram()

    def diagonal(self, X: Array) -> Array:
        return self.root(X).squares()

    def times(self, X: Array) -> Callable[[Array], Array]:
        bend = self.bend(self.eta(X))
        return lambda U: self.adjoint(bend(self.product(U)))

    def times_in_rows(self, X: Array) -> Callable[[Array], Array]:
        root = np.sqrt(self.curvature(self.eta(X)))
        return lambda R: root * self.product(self.adjoint(root * R))

    def largest(self, X: Array) -> Array:
        if self.large or self.wide is None:
            return self.root(X).largest()
        root = np.sqrt(self.curvature(self.eta(X)))
        K = self.row_products(np.ones(self.d))
        return extreme_eigenvalues(root[:, :, None] * K * root[:, None, :])[1]

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        if self.large:
            times = self.times(X)
            return conjugate_gradients(lambda U: D * U + times(U), D + self.diagonal(X), G)
        if self.wide is None:
            return solve_rows(add_diagonal(self.hessian(X), D), G)
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
        ell, L = self.design.scaled(np.sqrt(self.w)).extremes()
        return low * ell, high * L

    def convexity(self) -> Array:
        if self.phi.curvature_range[0] == 0.0:
            return np.zeros(self.k)
        return super().convexity()

    def values(self, X: Array, Y: Array, shares: Sequence[float]) -> Array:
        way = self.product(Y - X)
        eta = self.eta(Y)
        return np.stack([self.total(eta + (t - 1.0) * way) for t in shares], axis=1)

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        # D³f[h, u, u] = Σ_i w_i φ'''(η_i) (a_iᵀh)(a_iᵀu)², and |φ'''| ≤ c φ''
        c = self.phi.concordance
        if c in (0.0, np.inf):
            return np.full(self.k, c), np.full(self.k, c)
        norm = c * longest(self.design.lengths(), self.w)
        if W is None:
            return norm, np.full(self.k, np.inf)
        leverage = longest(np.linalg.norm(self.design.within(W), axis=2), self.w)
        return norm, c * np.where(np.isnan(leverage), np.inf, leverage)

    def spread(self, H: Array) -> Array:
        c = self.phi.concordance
        if c in (0.0, np.inf):
            return super().spread(H)
        moved = np.where(self.w > 0, np.abs(self.product(H)), 0.0)
        spread: Array = c * np.max(moved, axis=1)
        return spread

    def floor(self) -> Array:
        total = np.sum(self.w * self.phi.floor(self.b), axis=1)
        return np.where(np.isnan(total), -np.inf, total)  # padding: zero times -inf

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        w = self.w[j]
        b = np.where(w > 0, self.b[j], 0.0)  # padding is a constant, whatever its target
        phi = self.phi.expression(cp, self.design.matrix(j) @ u + self.o[j], b)
        if phi is None:
            return None
        return cp.sum(cp.multiply(w, phi))

    def eta(self, X: Array) -> Array:
        """The predictor a_iᵀx_j + o_i of every observation, (k, n), not to be written to.

        The latest is kept: value, gradient and Hessian are mostly wanted at the same points.
        """
        return self._predicted(X)[1]

    def product(self, X: Array) -> Array:
        return self.design.product(X)

    def adjoint(self, R: Array) -> Array:
        return self.design.adjoint(R)

    def total(self, eta: Array) -> Array:
        total = np.sum(self.w * self.phi.value(eta, self.b), axis=1)
        return np.where(np.isnan(total), np.inf, total)

    def slopes(self, eta: Array) -> Array:
        return self.w * self.phi.slope(eta, self.b)

    def curvature(self, eta: Array) -> Array:
        """w_i φ''(η_i, b_i), (k, n)."""
        return self.w * self.phi.curvature(eta, self.b)

    def kernel(self, D: Array) -> Kernel:
        if not self.large:
            return KernelMatrix(self.row_products(D))
        top = float(D.max())
        unit = D / top
        kept = self._kernel.get("latest")
        if kept is None or not np.array_equal(kept[0], unit):
            kept = unit, self.design.kernel(1.0 / unit)
            self._kernel["latest"] = kept
        return kept[1].over(top)

    def row_products(self, D: Array) -> Array:
        """A_j diag(D)⁻¹A_jᵀ, (k, n, n)."""
        # kept for the latest D, and for that up to a factor: for one number D, AAᵀ serves all steps
        top = D.max()
        key = (D / top).tobytes()
        unit = self._products.get(key)
        if unit is None:
            unit = self.design.inner(top / D)
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
        product = self.design.product(X)
        eta = product + self.o
        eta.flags.writeable = False
        self._latest["eta"] = X.copy(), product, eta
        return product, eta

    def root(self, X: Array) -> Design:
        return self.design.scaled(np.sqrt(self.curvature(self.eta(X))))


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


def longest(lengths: Array, w: Array) -> Array:
    """The largest length of a client's rows, padding apart: (k, n), (k, n) -> (k,)."""
    norm: Array = np.max(np.where(w > 0, lengths, 0.0), axis=1)
    return norm


def least(numbers: Array, w: Array) -> Array:
    """The least of a client's numbers, padding apart: (k, n), (k, n) -> (k,)."""
    smallest: Array = np.min(np.where(w > 0, numbers, np.inf), axis=1)
    return smallest
