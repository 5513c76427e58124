"""The seam between a loss and everything that uses it: the terms of k stacked clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple, Protocol

import numpy as np

from fedsplit.arrays import Array


class Terms(Protocol):
    """The loss terms of k clients at k points: row j of every argument and answer belongs to client j.

    ``X`` is (k, d). ``D`` is (d,) and positive.
    """

    @property
    def k(self) -> int: ...

    @property
    def d(self) -> int: ...

    @property
    def rank(self) -> int:
        """A bound on the rank of every Hessian: below d where a client has fewer observations than columns."""

    def value(self, X: Array) -> Array:
        """f_j(x_j), (k,)."""

    def gradient(self, X: Array) -> Array:
        """∇f_j(x_j), (k, d)."""

    def hessian(self, X: Array) -> Array:
        """∇²f_j(x_j), (k, d, d)."""

    def diagonal(self, X: Array) -> Array:
        """The diagonal of ∇²f_j(x_j), (k, d)."""

    def largest(self, X: Array) -> Array:
        """The largest eigenvalue of ∇²f_j(x_j), (k,)."""

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        """(diag(D) + ∇²f_j(x_j))⁻¹ g_j, (k, d)."""

    def bounds(self) -> tuple[Array, Array]:
        """ℓ_j and L_j, true at every x: 0 and +inf where there is no better one."""

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        """c_j such that |D³f_j[h, u, u]| ≤ c_j D²f_j[u, u] wherever ‖h‖ ≤ 1, and wherever ‖W_j⁻¹h‖ ≤ 1.

        inf where there is no such c_j, or no W.
        """

    def floor(self) -> Array:
        """A lower bound on f_j, -inf where none is known."""

    def steady(self, X: Array) -> Array:
        """The radius around x_j within which ∇²f_j is constant, (k,): inf for a quadratic, 0 where none is known."""

    def margin(self, X: Array) -> Array:
        """By how much x_j classifies every observation right, (k,), nan where the loss has no classes.

        Positive at one x for all clients, it proves that the classes are separable.
        """


class QuadraticTerms(ABC):
    """Terms whose Hessian is constant: their prox is linear, from a factorisation made once for each D."""

    @abstractmethod
    def minimise(self, D: Array, Q: Array) -> Array:
        """argmin_u f_j(u) + ½ uᵀdiag(D)u - ⟨q_j, u⟩ = (diag(D) + H_j)⁻¹(q_j - ∇f_j(0)), (k, d)."""


class Block(NamedTuple):
    """Terms, and which clients they belong to: indices in the order of the rows."""

    clients: Sequence[int]
    terms: Terms

    def part(self, clients: range) -> Block:
        """Those of these clients that are here, numbered from the first of them."""
        rows = [i for i, j in enumerate(self.clients) if j in clients]
        return Block([self.clients[i] - clients.start for i in rows], _rows(self.terms, rows))


def _rows(terms: Terms, rows: Sequence[int]) -> Terms:
    """The terms of some of the clients: every field that has one entry a client, cut; what is cached, gone."""
    cut: dict[str, object] = {}
    for field in fields(terms):  # type: ignore[arg-type]  # every implementation is a dataclass
        value = getattr(terms, field.name)
        if isinstance(value, np.ndarray) and value.shape[:1] == (terms.k,):
            cut[field.name] = value[list(rows)]
        elif isinstance(value, list) and len(value) == terms.k:
            cut[field.name] = [value[i] for i in rows]
        elif isinstance(value, dict):
            cut[field.name] = {}
    return replace(terms, **cut)  # type: ignore[type-var]  # the same


class Loss(Protocol):
    """A convex loss: checks the clients' data and stacks it into blocks of terms."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        """The dimension d, and every client's terms in some block."""


def extreme_eigenvalues(H: Array) -> tuple[Array, Array]:
    """Smallest and largest eigenvalue of every H_j; a smallest one at the level of rounding is 0."""
    spectrum = np.linalg.eigvalsh(H)
    smallest, largest = spectrum[:, 0], spectrum[:, -1]
    rounding = 4 * H.shape[-1] * np.finfo(np.float64).eps * largest
    return np.where(smallest > rounding, smallest, 0.0), np.maximum(largest, 0.0)
