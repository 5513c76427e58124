"""The seam between a loss and everything that uses it: the terms of k stacked clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from fedsplit.arrays import EPS, Array, Mask, matvec, namespace, norms
from fedsplit.losses.batches import Indices, Stacked
from fedsplit.losses.designs import Design
from fedsplit.losses.systems import Latest, Woodbury


@dataclass(frozen=True, eq=False)
class Terms(ABC):
    """The loss terms f_j of k clients, without the ridge.

    Row j of every argument and of every result belongs to client j. Points ``X`` are (k, d). What
    depends on a point takes ``eta(X)``, which value, gradient and Hessian share, so that rows are
    multiplied once for a point.

    A loss has to give the five abstract members. The others have a default that is always true;
    a loss overrides those that it knows a cheaper way to, or a sharper statement of. Fields are
    arrays with one entry per client, apart from ``phi``, the loss itself.
    """

    @property
    @abstractmethod
    def k(self) -> int:
        """The number of clients."""

    @property
    @abstractmethod
    def d(self) -> int:
        """The dimension of x."""

    @abstractmethod
    def value(self, eta: Array) -> Array:
        """f_j(x_j), (k,); +inf where it exceeds float64."""

    @abstractmethod
    def gradient(self, eta: Array) -> Array:
        """∇f_j(x_j), (k, d)."""

    @abstractmethod
    def hessian(self, eta: Array) -> Array:
        """∇²f_j(x_j), (k, d, d), in a new array."""

    def eta(self, X: Array) -> Array:
        """An affine function of the points: the predictors A_jx_j + o_j, or the points."""
        return X

    # what kind of terms these are

    @property
    def gradients_per_hessian(self) -> int:
        """Gradients whose differences make one Hessian; 0 where there is a formula."""
        return 0

    @property
    def large(self) -> bool:
        """Whether a client's Hessian is too large to be held: there are only products with it."""
        return False

    @property
    def quadratic(self) -> bool:
        """Whether every f_j is quadratic."""
        return False

    @property
    def classifies(self) -> bool:
        """Whether observations belong to classes, and so have margins."""
        return False

    @property
    def rank(self) -> int:
        """A bound on the rank of every Hessian: below d if a client has fewer rows than columns."""
        return self.d

    def underdetermined(self) -> Mask:
        """Which clients have fewer observations than x has coordinates, (k,)."""
        return np.zeros(self.k, dtype=bool)

    # curvature at a point

    def diagonal(self, eta: Array) -> Array:
        """The diagonal of ∇²f_j(x_j), (k, d)."""
        result: Array = np.einsum("kii->ki", self.hessian(eta))
        return result

    def times(self, eta: Array) -> Callable[[Array], Array]:
        """The product with ∇²f_j(x_j): (k, d) -> (k, d)."""
        return partial(matvec, self.hessian(eta))

    def by_rows(self, eta: Array, D: Array, latest: Latest) -> Woodbury:
        """The inverse of ∇²f_j(x_j) + diag(D) by systems of size ``rank``."""
        B = self.root(eta)
        return Woodbury.of(B, 1.0, D, B.inner(1.0 / D))

    # what holds everywhere

    def bounds(self) -> tuple[Array, Array]:
        """ℓ_j and L_j, each (k,), that hold at every x: 0 and +inf if nothing better is known."""
        return np.zeros(self.k), np.full(self.k, np.inf)

    def convexity(self) -> Array:
        """ℓ_j of ``bounds``, (k,), where it is to be had without L_j."""
        return self.bounds()[0]

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        """How fast the Hessians can change: two bounds c_j, each (k,).

        |D³f_j[h, u, u]| ≤ c_j D²f_j[u, u] at every x and u, the first for ‖h‖ ≤ 1, the second for
        ‖W_j⁻¹h‖ ≤ 1, with W of shape (k, d, d). 0 for a quadratic; inf if no bound is known, the
        second also if W is None.
        """
        bound = np.full(self.k, 0.0 if self.quadratic else np.inf)
        return bound, bound

    def spread(self, H: Array) -> Array:
        """t_j such that ∇²f_j(x) ⪰ e^(-t_j)∇²f_j(x + h_j) at every x, (k,), with h_j the rows of H.

        0 for a quadratic; inf if nothing is known.
        """
        norm, length = self.concordance(None)[0], norms(H)
        result: Array = namespace(norm).where((norm == 0) | (length == 0), 0.0, norm * length)
        return result

    def floor(self) -> Array:
        """A lower bound on f_j, (k,); -inf if none is known."""
        return np.full(self.k, -np.inf)

    # what is known at a point, beside the curvature

    def values(self, start: Array, end: Array, shares: Sequence[float]) -> Array:
        """f_j on the way between two ``eta``, (k, len(shares)): a share of 1 is the end."""
        values = [self.value(end + (t - 1.0) * (end - start)) for t in shares]
        result: Array = namespace(end).stack(values, axis=1)
        return result

    def steady(self, X: Array, eta: Array) -> Array:
        """The radius of a ball around x_j in which ∇²f_j is constant, rounding counted, (k,).

        inf for a quadratic, 0 if no such ball is known.
        """
        return np.full(self.k, np.inf if self.quadratic else 0.0)

    def margin(self, eta: Array) -> Array:
        """How clearly x_j puts the client's worst observation in its class, (k,).

        Only if the terms classify. Positive at one x for all clients, it proves that the classes
        are separable.
        """
        raise NotImplementedError

    def gradient_error(self, X: Array, eta: Array, latest: Latest) -> Array:
        """How far rounding may have moved ∇f_j(x_j), (k,)."""
        return 8 * self.d * EPS * norms(self.gradient(eta))

    # parts of the data

    @property
    def stacked(self) -> Stacked | None:
        """How many rows the clients have; None where they keep none."""
        return None

    def subsample(self, rows: Indices, scale: Array) -> Self:
        """The terms of some of each client's rows, with their weights multiplied by ``scale``.

        Both are (k, B). Only for terms that are ``stacked``.
        """
        raise NotImplementedError

    def root(self, eta: Array) -> Design:
        """B_j with ∇²f_j(x_j) = B_jᵀB_j, as the rows of a design; only where ``stacked``."""
        raise NotImplementedError

    def largest_row(self, eta: Array | None) -> Array:
        """A bound on the largest eigenvalue of a row's Hessian, at x_j or everywhere, (k,)."""
        return np.full(self.k, np.inf)

    def take(self, rows: list[int] | slice) -> Self:
        """The terms of some of the clients; those of a slice share their arrays with these."""
        names = [field.name for field in fields(self) if field.name != "phi"]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        """Client j's terms as a CVXPY expression in the variable u; None if there is none.

        ``cp`` is the module ``cvxpy``, passed in because it is an optional dependency.
        """
        return None


class Block(NamedTuple):
    """Some of the clients, stacked."""

    clients: Sequence[int]  # their indices, in the order of the rows of ``terms``
    terms: Terms  # their loss terms

    def part(self, clients: range) -> Block:
        """The part of this block in ``clients``, which are numbered from the first of them."""
        rows = [row for row, j in enumerate(self.clients) if j in clients]
        return Block([self.clients[row] - clients.start for row in rows], self.terms.take(rows))


class Loss(Protocol):
    """A convex loss: checks the clients' data and stacks it into blocks of terms."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        """d, and blocks of which each client is in exactly one, from what each client holds.

        ``ridge``, () or (d,), is λ of the whole objective: only checked against the data, never
        added to the terms.
        """
