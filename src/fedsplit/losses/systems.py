"""Linear systems with Hessians: by rows where they are few, by products where all is large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from fedsplit.arrays import Array, Factors, add_diagonal, dots
from fedsplit.losses.designs import Design

Made = TypeVar("Made")


class Latest:
    """What is expensive to derive from the costs of one block: by name, the latest of each.

    Asked for with the key that it was made for, it comes as it is; with another key it is made
    anew, and replaces the one before: matrices are large, and a method with a fixed step needs
    one. No answer depends on what is here, only the time that it takes.
    """

    def __init__(self) -> None:
        self._made: dict[object, tuple[object, Any]] = {}

    def get(self, name: object, key: object, make: Callable[[], Made]) -> Made:
        """What ``make`` makes for this key."""
        latest = self._made.get(name)
        if latest is None or latest[0] != key:
            latest = key, make()
            self._made[name] = latest
        return cast(Made, latest[1])


class Solver(Protocol):
    """Inverses of k symmetric, positive (semi)definite matrices."""

    def solve(self, G: Array) -> Array:
        """M_j⁻¹ g_j: (k, d) -> (k, d)."""


@dataclass(frozen=True, eq=False)
class Woodbury:
    """(diag(D) + B_jᵀB_j)⁻¹ = D⁻¹ - D⁻¹B_jᵀ(I + B_jD⁻¹B_jᵀ)⁻¹B_jD⁻¹, B_j = diag(root_j)A_j.

    The systems have the size of the rows, which are fewer than the columns.

    Attributes
    ----------
    rows : Design
        The A_j, (k, n, d).
    root : (k, n) array or float
    D : (d,) array
        Above 0.
    small : Factors
        Of I + B_jD⁻¹B_jᵀ, (k, n, n).
    """

    rows: Design
    root: Array | float
    D: Array
    small: Factors

    @classmethod
    def of(cls, rows: Design, root: Array | float, D: Array, products: Array) -> Woodbury:
        """Given B_jD⁻¹B_jᵀ, (k, n, n), which is overwritten."""
        return cls(rows, root, D, Factors(add_diagonal(products, 1.0), overwrite=True))

    def inverted(self) -> Woodbury:
        """The same, for many systems."""
        self.small.inverted()  # that of the rows is the smaller one
        return self

    def solve(self, G: Array) -> Array:
        image = self.root * self.small.solve(self.root * self.rows.product(G / self.D))
        return (G - self.rows.adjoint(image)) / self.D


@dataclass(frozen=True, eq=False)
class ByProducts:
    """The inverse of one client's matrix by conjugate gradients.

    Attributes
    ----------
    times : callable
        The product with the matrix: (1, d) -> (1, d).
    diagonal : (1, d) array
    tolerance : float
    """

    times: Callable[[Array], Array]
    diagonal: Array
    tolerance: float

    def solve(self, G: Array) -> Array:
        [g] = G
        return conjugate_gradients(self.times, self.diagonal[0], g, self.tolerance)[None]


def conjugate_gradients(
    times: Callable[[Array], Array],
    diagonal: Array,
    g: Array,
    tolerance: float = 1e-12,
    most_products: int = 2000,
) -> Array:
    """u with ‖g - Mu‖ ≤ tolerance·‖g‖, by SciPy's conjugate gradients.

    Parameters
    ----------
    times : callable
        The product with M, which is positive definite: (1, d) -> (1, d).
    diagonal : (d,) array
        That of M, by which the system is preconditioned.
    g : (d,) array
    tolerance : float
        The default is rounding, nearly; whoever needs it checks the residual itself.
    most_products : int
        Enough for a condition number of 1e6. What a system that is nearly singular leaves then is
        a residual like any other.
    """
    d = len(g)
    M = LinearOperator((d, d), matvec=lambda u: times(u[None])[0], dtype=np.float64)
    # columns on different scales would take as many products as their ratio is large
    P = LinearOperator((d, d), matvec=lambda u: u / diagonal, dtype=np.float64)
    u: Array = cg(M, g, rtol=tolerance, maxiter=most_products, M=P)[0]
    return u


def truncated_cg(
    times: Callable[[Array], Array],
    G: Array,
    diagonal: Array,
    tolerance: float = 1e-10,
    flat: float = 1e-3,
    most: int = 500,
) -> Array:
    """H_j⁻¹g_j, (k, d), by conjugate gradients with the diagonal as preconditioner.

    Where H_j is singular and g_j has a part along its kernel, there is no solution. A direction p
    along which H_j has hardly any curvature ends the iterations of that client (Steihaug, 1983):
    what is known until then goes downhill.

    Parameters
    ----------
    times : callable
        The products with the H_j: (k, d) -> (k, d).
    G : (k, d) array
    diagonal : (k, d) array
        Of the H_j.
    tolerance : float
        The residual to end with, relative to g_j, in the norm of the inverse diagonal.
    flat : float
        A smaller pᵀHp, relative to p² in the norm of the diagonal, is none: a client with few rows
        would go far along directions that it knows little of.
    most : int
        The most iterations.
    """
    D = np.where(diagonal > 0, diagonal, 1.0)
    X = np.zeros_like(G)
    R = G
    Z = R / D
    P = Z
    size = dots(R, Z)
    enough = tolerance**2 * size
    active = size > 0
    for _ in range(most):
        HP = times(P)
        curvature = dots(P, HP)
        active = active & (curvature > flat * dots(P, D * P))
        if not active.any():
            break
        step = np.where(active, size / np.where(active, curvature, 1.0), 0.0)[:, None]
        X = X + step * P
        R = R - step * HP
        Z = R / D
        left = dots(R, Z)
        P = Z + (left / np.where(size > 0, size, 1.0))[:, None] * P
        size = left
        active = active & (size > enough)
    # a client without curvature along its first direction knows no better one
    untouched = ~X.any(axis=1)
    return np.where(np.asarray(untouched)[:, None], G / D, X)
