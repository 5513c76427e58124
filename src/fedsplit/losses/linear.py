"""Losses of linear predictors: a scalar function φ makes a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from fedsplit.arrays import EPS, Array, Mask, chosen, like, namespace, norms, on_host, to_host
from fedsplit.errors import InputError
from fedsplit.losses.batches import Indices, Stacked
from fedsplit.losses.designs import Design, extremes
from fedsplit.losses.observations import Observations, as_labels, check_columns, read, stack_rows
from fedsplit.losses.systems import Latest, Woodbury
from fedsplit.losses.terms import Block, Terms


class RowLoss(ABC):
    """A loss of rows: f_j(x) = Σ_i w_i φ(η_i, b_i) with predictors η_i that are linear in x."""

    # (float, float): bounds on the second derivative φ'' that hold for all η and b
    curvature_range: tuple[float, float] = (0.0, np.inf)
    # how many predictors a row has, each with a coefficient for every column. x holds all those of
    # the first predictor, then those of the next
    predictors: int = 1

    @property
    @abstractmethod
    def terms(self) -> Callable[[Design, Array, Array, Array], Terms]:
        """Make the terms of k clients from their rows, and b, w and o of shape (k, n)."""

    @abstractmethod
    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        """The observations with b in the coding of φ; raises InputError if a b is not allowed."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge, self.predictors)
        d = self.predictors * data[0].A.shape[1]
        return d, stack_rows(self.terms, self.targets(data), range(len(data)), d)


class LinearLoss(RowLoss):
    """A loss of the linear predictor: f_j(x) = Σ_i w_i φ(η_i, b_i), η_i = a_iᵀx + o_i.

    A subclass gives φ, convex in η, and its derivatives in η, elementwise for arrays of one shape.
    Written over ``arrays.namespace(eta)``, they run on any array library; with ``code`` beside
    them, on a GPU in kernels too.

    Attributes
    ----------
    curvature_range : (float, float)
        Bounds on the second derivative φ'' that hold for all η and b.
    concordance : float
        c such that the third derivative |φ'''| ≤ c φ'' everywhere: 0 for a quadratic, inf if there
        is no such bound. Certificates need it.
    steepest : float
        A bound on |φ'| that holds for all η and b; inf if there is none.
    classifies : bool
        Whether b is -1 or 1 and φ falls where bη grows: then classes may be separable.
    code : str
        φ, φ' and φ'' in CUDA C++, as functions ``value``, ``slope`` and ``bend`` of (η, b); empty
        if there are no kernels for it.
    """

    concordance: float = np.inf
    steepest: float = np.inf
    classifies: bool = False
    code: str = ""

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

    def log_slope(self, eta: Array, b: Array) -> Array:
        """log|φ'(η, b)|, needed only where φ' is beyond float64."""
        return np.log(np.abs(self.slope(eta, b)))

    def room(self, eta: Array, b: Array) -> Array:
        """How far η can move before φ'' changes: 0 unless φ is quadratic around η."""
        result: Array = namespace(eta).zeros_like(eta)
        return result

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
        return as_labels(data) if self.classifies else data

    @property
    def terms(self) -> Callable[[Design, Array, Array, Array], Terms]:
        return partial(LinearTerms, self)


@dataclass(frozen=True, eq=False)
class RowTerms(Terms):
    """Stacked terms f_j(x) = Σ_i w_i φ(η_i, b_i), with what follows from the rows alone."""

    phi: RowLoss  # φ and its derivatives
    design: Design  # the rows of the k clients, A
    # (k, n): targets, weights and offsets. Clients with fewer than n observations are padded by
    # rows of weight zero
    b: Array
    w: Array
    o: Array

    @abstractmethod
    def row_values(self, eta: Array) -> Array:
        """w_i φ(η_i, b_i), (k, n)."""

    @abstractmethod
    def slopes(self, eta: Array) -> Array:
        """w_i φ'(η_i, b_i), in the shape of η."""

    @abstractmethod
    def product(self, X: Array) -> Array:
        """A_jx_j: the predictors without offsets."""

    @abstractmethod
    def adjoint(self, R: Array) -> Array:
        """A_jᵀr_j, (k, d), for r_j in the shape of the predictors."""

    @abstractmethod
    def curvature(self, eta: Array) -> Array:
        """w_i φ''(η_i, b_i), or a bound on its largest eigenvalue, (k, n)."""

    @property
    def k(self) -> int:
        return self.design.shape[0]

    @property
    def d(self) -> int:
        return self.phi.predictors * self.design.shape[2]

    @property
    def A(self) -> Array:  # noqa: N802  # the paper's name
        """The rows as an array, (k, n, p), where they are not sparse."""
        return self.design.array

    @property
    def large(self) -> bool:
        return self.design.large

    @property
    def rank(self) -> int:
        return self.phi.predictors * min(self.design.shape[1:])

    @property
    def stacked(self) -> Stacked:
        return Stacked(np.sum(to_host(self.w) > 0, axis=1), self.w.shape[1])

    def subsample(self, rows: Indices, scale: Array) -> Self:
        b, w, o = (chosen(numbers, rows) for numbers in (self.b, self.w, self.o))
        return replace(self, design=self.design.chosen(rows), b=b, w=like(scale, w) * w, o=o)

    def underdetermined(self) -> Mask:
        return self.stacked.sizes < self.design.shape[2]

    def value(self, eta: Array) -> Array:
        xp = namespace(eta)
        total = xp.sum(self.row_values(eta), axis=1)
        result: Array = xp.where(xp.isnan(total), np.inf, total)
        return result

    def gradient(self, eta: Array) -> Array:
        return self.adjoint(self.slopes(eta))

    def hessian(self, eta: Array) -> Array:
        return self.root(eta).gram()  # symmetric to the last bit, in half the operations

    def diagonal(self, eta: Array) -> Array:
        return self.root(eta).squares()

    def largest_row(self, eta: Array | None) -> Array:
        curvature = self.phi.curvature_range[1] * self.w if eta is None else self.curvature(eta)
        # without a bound on φ'' padding gives inf·0, but then L_j = inf, and nobody uses this
        result: Array = namespace(self.w).max(curvature * self.design.lengths() ** 2, axis=1)
        return result

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.phi.curvature_range
        if low == 0.0 and np.isinf(high):
            unknown = 0.0 * self.w[:, 0]
            return unknown, unknown + np.inf
        ell, L = extremes(self.design.scaled(self.w**0.5))
        return low * ell, high * L

    def convexity(self) -> Array:
        # the usual case, without eigenvalues
        return 0.0 * self.w[:, 0] if self.phi.curvature_range[0] == 0.0 else super().convexity()

    def longest(self, lengths: Array) -> Array:
        """The largest length of a client's rows, padding apart: (k, n) -> (k,)."""
        xp = namespace(self.w)
        result: Array = xp.max(xp.where(self.w > 0, lengths, 0.0), axis=1)
        return result

    def least(self, numbers: Array) -> Array:
        """The least of a client's numbers, padding apart: (k, n) -> (k,)."""
        xp = namespace(self.w)
        result: Array = xp.min(xp.where(self.w > 0, numbers, np.inf), axis=1)
        return result


@dataclass(frozen=True, eq=False)
class LinearTerms(RowTerms):
    """Stacked terms of one predictor, η_i = a_iᵀx + o_i."""

    phi: LinearLoss

    @property
    def quadratic(self) -> bool:
        return self.phi.concordance == 0.0

    @property
    def classifies(self) -> bool:
        return self.phi.classifies

    def eta(self, X: Array) -> Array:
        return self.design.product(X) + self.o

    def product(self, X: Array) -> Array:
        return self.design.product(X)

    def adjoint(self, R: Array) -> Array:
        return self.design.adjoint(R)

    def row_values(self, eta: Array) -> Array:
        return self.w * self.phi.value(eta, self.b)

    def slopes(self, eta: Array) -> Array:
        return self.w * self.phi.slope(eta, self.b)

    def curvature(self, eta: Array) -> Array:
        return self.w * self.phi.curvature(eta, self.b)

    def gradient(self, eta: Array) -> Array:
        r = self.slopes(eta)
        g = self.adjoint(r)
        xp = namespace(g)
        if not on_host(g) or xp.isfinite(g).all():  # a device would have to be waited for
            return g
        # A slope, or a sum of slopes, exceeds float64, and inf - inf or 0·inf may have given nan.
        # The large slopes are summed on the scale of the largest one, the others as they are.
        with np.errstate(divide="ignore"):
            log_slope = self.phi.log_slope(eta, self.b).clip(max=1e300)
            large = log_slope > 600.0
            top = np.max(np.where(large, log_slope, 0.0), axis=1, keepdims=True)
            shares = np.where(large, np.sign(r) * self.w * np.exp(log_slope - top), 0.0)
            scaled = self.adjoint(shares)
            size = np.exp(np.log(np.abs(scaled)) + top)
        g = self.adjoint(np.where(large, 0.0, r))
        # exp and log have lost the sign
        g += np.copysign(size, scaled)
        return g

    def gradient_error(self, X: Array, eta: Array, latest: Latest) -> Array:
        # ∇f = Σ_i s_i a_i is off by the rounding of the sum, n·eps·Σ|s_i|‖a_i‖, by that of the
        # predictors, d·eps·(‖a_i‖‖x‖ + |o_i|), times φ''_i‖a_i‖, and by that of φ', whose terms are
        # at most |φ'| + φ'' for exponentials
        length = latest.get("row lengths", None, self.design.lengths)
        xp = namespace(eta)
        moved = 1.0 + length * norms(X)[:, None] + xp.abs(self.o)
        sizes = (xp.abs(self.slopes(eta)) + self.curvature(eta) * moved) * length
        total: Array = xp.sum(xp.where(self.w > 0, sizes, 0.0), axis=1)
        result: Array = (length.shape[1] + self.d + 16) * EPS * total
        return result

    def root(self, eta: Array) -> Design:
        return self.design.scaled(self.curvature(eta) ** 0.5)

    def times(self, eta: Array) -> Callable[[Array], Array]:
        curvature = self.curvature(eta)  # once for all products
        return lambda U: self.adjoint(curvature * self.product(U))

    def by_rows(self, eta: Array, D: Array, latest: Latest) -> Woodbury:
        # up to a factor: for one number D, the inner products of rows serve all steps
        top = float(namespace(D).max(D))
        unit = D / top
        key = to_host(unit).tobytes()
        inner = latest.get("row products", key, lambda: self.design.inner(1.0 / unit))
        root = self.curvature(eta) ** 0.5
        scaled = root / top**0.5
        products = scaled[:, :, None] * inner
        products *= scaled[:, None, :]
        return Woodbury.of(self.design, root, D, products)

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        # D³f[h, u, u] = Σ_i w_i φ'''(η_i) (a_iᵀh)(a_iᵀu)², and |φ'''| ≤ c φ''
        c = self.phi.concordance
        if c in (0.0, np.inf):
            return (c + 0.0 * self.w[:, 0],) * 2
        norm = c * self.longest(self.design.lengths())
        if W is None:
            return norm, np.inf + 0.0 * norm
        xp = namespace(W)
        leverage = self.longest(xp.linalg.vector_norm(self.design.within(W), axis=2))
        return norm, c * xp.where(xp.isnan(leverage), np.inf, leverage)

    def spread(self, H: Array) -> Array:
        c = self.phi.concordance
        if c in (0.0, np.inf):
            return super().spread(H)
        return c * self.longest(namespace(H).abs(self.product(H)))

    def floor(self) -> Array:
        xp = namespace(self.b)
        total = xp.sum(self.w * like(self.phi.floor(to_host(self.b)), self.b), axis=1)
        result: Array = xp.where(xp.isnan(total), -np.inf, total)  # padding: zero times -inf
        return result

    def steady(self, X: Array, eta: Array) -> Array:
        # η_i moves by at most ‖a_i‖‖h‖, and is itself known to some rounding errors only
        xp = namespace(eta)
        room = self.phi.room(eta, self.b)
        if not xp.any(room != 0):
            return 0.0 * self.w[:, 0]
        length = self.design.lengths()
        rounding = 2 * (self.d + 4) * EPS
        size = length * norms(X)[:, None] + xp.abs(self.o) + xp.abs(self.b)
        left = xp.clip(room - rounding * size, 0.0, None)
        radius = xp.where(length > 0, left / xp.where(length > 0, length, 1.0), np.inf)
        return (1.0 - rounding) * self.least(radius)

    def margin(self, eta: Array) -> Array:
        # Offsets are taken out: they do not grow with x, so they separate nothing for ever. What
        # rounding may have left of them does not count as a margin.
        rounding = 4 * EPS * namespace(eta).abs(self.o)
        return self.least(self.b * (eta - self.o) - rounding)

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        w = self.w[j]
        b = np.where(w > 0, self.b[j], 0.0)  # padding is a constant, whatever its target
        phi = self.phi.expression(cp, self.design.matrix(j) @ u + self.o[j], b)
        return None if phi is None else cp.sum(cp.multiply(w, phi))
