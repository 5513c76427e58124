"""The seam between a loss and everything that uses it: the terms of k stacked clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal, extreme_eigenvalues, matvec, solve_rows
from fedsplit.losses.batches import Indices, Stacked
from fedsplit.losses.designs import Design
from fedsplit.losses.kernels import Kernel


@dataclass(frozen=True, eq=False)
class Terms(ABC):
    """The loss terms f_j of k clients, without the ridge, at k points.

    Row j of every argument and of every answer belongs to client j. ``X`` and ``G`` are (k, d),
    ``D`` is (d,) and positive.

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
    def value(self, X: Array) -> Array:
        """f_j(x_j), (k,); +inf where it exceeds float64."""

    @abstractmethod
    def gradient(self, X: Array) -> Array:
        """∇f_j(x_j), (k, d)."""

    @abstractmethod
    def hessian(self, X: Array) -> Array:
        """∇²f_j(x_j), (k, d, d), in a new array."""

    @property
    def exact_hessian(self) -> bool:
        """Whether Hessians are formulas, not differences of gradients."""
        return True

    @property
    def large(self) -> bool:
        """Whether a client's Hessian is too large to be held: there are only products with it."""
        return False

    @property
    def minimised(self) -> bool:
        """Whether ``minimise`` has an answer: every f_j is quadratic."""
        return False

    @property
    def rank(self) -> int:
        """A bound on the rank of every Hessian: below d if a client has fewer rows than columns."""
        return self.d

    def underdetermined(self) -> Mask:
        """Which clients have fewer observations than x has coordinates, (k,)."""
        return np.zeros(self.k, dtype=bool)

    def diagonal(self, X: Array) -> Array:
        """The diagonal of ∇²f_j(x_j), (k, d)."""
        diagonal: Array = np.einsum("kii->ki", self.hessian(X))
        return diagonal

    def times(self, X: Array) -> Callable[[Array], Array]:
        """The product with ∇²f_j(x_j): (k, d) -> (k, d)."""
        return partial(matvec, self.hessian(X))

    def largest(self, X: Array) -> Array:
        """The largest eigenvalue of ∇²f_j(x_j), (k,)."""
        return extreme_eigenvalues(self.hessian(X))[1]

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        """(diag(D) + ∇²f_j(x_j))⁻¹ g_j, (k, d); to 1e-12 of g_j where they are ``large``."""
        return solve_rows(add_diagonal(self.hessian(X), D), G)

    def minimise(self, D: Array, Q: Array) -> Array:
        """argmin_u f_j(u) + ½ uᵀdiag(D)u - ⟨q_j, u⟩, (k, d), if the terms are ``minimised``.

        It is (diag(D) + H_j)⁻¹(q_j - ∇f_j(0)), with a factor made once for each D.
        """
        raise NotImplementedError

    def bounds(self) -> tuple[Array, Array]:
        """ℓ_j and L_j, each (k,), that hold at every x: 0 and +inf if nothing better is known."""
        return np.zeros(self.k), np.full(self.k, np.inf)

    def convexity(self) -> Array:
        """ℓ_j of ``bounds``, (k,), where it is to be had without L_j."""
        return self.bounds()[0]

    def values(self, X: Array, Y: Array, shares: Sequence[float]) -> Array:
        """f_j(x_j + t(y_j - x_j)) for every t of ``shares``, (k, len(shares))."""
        return np.stack([self.value(X + t * (Y - X)) for t in shares], axis=1)

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        """How fast the Hessians can change: two bounds c_j, each (k,).

        |D³f_j[h, u, u]| ≤ c_j D²f_j[u, u] at every x and u, the first for ‖h‖ ≤ 1, the second for
        ‖W_j⁻¹h‖ ≤ 1, with W of shape (k, d, d). 0 for a quadratic; inf if no bound is known, the
        second also if W is None.
        """
        return np.full(self.k, np.inf), np.full(self.k, np.inf)

    def spread(self, H: Array) -> Array:
        """t_j such that ∇²f_j(x) ⪰ e^(-t_j)∇²f_j(x + h_j) at every x, (k,), with h_j the rows of H.

        0 for a quadratic; inf if nothing is known.
        """
        norm, _ = self.concordance(None)
        length = np.sqrt(np.sum(np.square(H), axis=1))
        return np.where((norm == 0) | (length == 0), 0.0, norm * length)

    def floor(self) -> Array:
        """A lower bound on f_j, (k,); -inf if none is known."""
        return np.full(self.k, -np.inf)

    def steady(self, X: Array) -> Array:
        """The radius of a ball around x_j in which ∇²f_j is constant, (k,).

        inf for a quadratic, 0 if no such ball is known.
        """
        return np.zeros(self.k)

    def margin(self, X: Array) -> Array:
        """How clearly x_j puts the client's worst observation in its class, (k,).

        nan if the loss has no classes. Positive at one x for all clients, it proves that the
        classes are separable.
        """
        return np.full(self.k, np.nan)

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        """Client j's terms as a CVXPY expression in the variable u; None if there is none.

        ``cp`` is the module ``cvxpy``, passed in because it is an optional dependency.
        """
        return None

    @property
    def predictors(self) -> Predictors | None:
        """These terms as functions of predictors; None if they are not."""
        return None

    @property
    def wide(self) -> Rows | None:
        """These terms as functions of one predictor a row, if there are fewer rows than columns."""
        return None

    @property
    def stacked(self) -> Stacked | None:
        """How many rows the clients have; None where they keep none."""
        return None

    def subsample(self, rows: Indices, scale: Array) -> Self:
        """The terms of some of each client's rows, with their weights multiplied by ``scale``.

        Both are (k, B). Only for terms that are ``stacked``.
        """
        raise NotImplementedError

    def root(self, X: Array) -> Design:
        """B_j with ∇²f_j(x_j) = B_jᵀB_j, as the rows of a design; only where ``stacked``."""
        raise NotImplementedError

    def largest_row(self, X: Array | None) -> Array:
        """A bound on the largest eigenvalue of a row's Hessian, at x_j or everywhere, (k,)."""
        return np.full(self.k, np.inf)

    def take(self, rows: list[int] | slice) -> Self:
        """The terms of some of the clients; those of a slice share their arrays with these."""
        cut = {
            field.name: getattr(self, field.name)[rows]
            for field in fields(self)
            if field.init and field.name != "phi"
        }
        return replace(self, **cut)


class Predictors(Protocol):
    """Terms f_j(x) = Φ_j(η), η = A_jx + o_j: steps along Ap then need no product with A.

    Predictors are (k, n), or (k, c, n) where an observation has several.
    """

    def eta(self, X: Array) -> Array:
        """A_jx_j + o_j."""

    def product(self, X: Array) -> Array:
        """A_jx_j."""

    def adjoint(self, R: Array) -> Array:
        """A_jᵀr_j, (k, d)."""

    def total(self, eta: Array) -> Array:
        """Φ_j, (k,); +inf where it exceeds float64."""

    def slopes(self, eta: Array) -> Array:
        """Φ_j', in the shape of η."""

    def bend(self, eta: Array) -> Callable[[Array], Array]:
        """The product with Φ_j''(η), in the shape of η."""

    def hessian(self, X: Array) -> Array:
        """∇²f_j(x_j), (k, d, d)."""

    def take(self, rows: list[int]) -> Self:
        """Those of some of the clients."""


class Rows(Predictors, Protocol):
    """Predictors of which each observation has one."""

    def kernel(self, D: Array) -> Kernel:
        """A_j diag(D)⁻¹A_jᵀ."""

    def curvature(self, eta: Array) -> Array:
        """The diagonal of Φ_j'', (k, n)."""

    def times_in_rows(self, X: Array) -> Callable[[Array], Array]:
        """The product with B_jB_jᵀ, (k, n) -> (k, n), where B_jᵀB_j = ∇²f_j(x_j)."""


class Block(NamedTuple):
    """Some of the clients, stacked.

    Attributes
    ----------
    clients : sequence of int
        Their indices, in the order of the rows of ``terms``.
    terms : Terms
        Their loss terms.
    """

    clients: Sequence[int]
    terms: Terms

    def part(self, clients: range) -> Block:
        """Those of ``clients`` that are in this block, numbered from the first of ``clients``."""
        rows = [row for row, j in enumerate(self.clients) if j in clients]
        return Block([self.clients[row] - clients.start for row in rows], self.terms.take(rows))


class Loss(Protocol):
    """A convex loss: checks the clients' data and stacks it into blocks of terms."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        """Check and stack the data of all clients.

        Parameters
        ----------
        clients : sequence
            What each client holds.
        ridge : () or (d,) array
            λ of the whole objective; only checked against the data, never added to the terms.

        Returns
        -------
        d : int
            The dimension of x.
        blocks : list of Block
            Every client is in exactly one of them.
        """
