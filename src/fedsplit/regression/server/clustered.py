"""Standard errors that allow for rows of one client being alike: CR2 with Satterthwaite's t.

With few clusters the plain sandwich is too small, by how much depends on the leverage of each
cluster, and its variance is large. Bell and McCaffrey (2002) adjust the score of every cluster so
that the sandwich has the right mean if the model holds, and give each coefficient the degrees of
freedom of the chi-square distribution nearest to its sandwich; see Pustejovsky and Tipton (2018),
and the R package clubSandwich.

Everything follows from the gradients g_j and information matrices H_j of the clients. The rows of
client j, times the roots of their weights, are X_j with X_jᵀX_j = H_j, and V = (Σ H_j)⁻¹. The
adjusted score X_jᵀ(I - X_j V X_jᵀ)^(-1/2)e_j is (I - H_jV)^(-1/2)g_j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask

ALONE = 1e-8
"""A client whose share of the information along a direction is within this of 1 has it alone."""


class ClusteredCovariance(NamedTuple):
    """A covariance, (q, q), with degrees of freedom of Student's t, (q,), of each coefficient.

    Both are nan for coefficients that have none.
    """

    matrix: Array
    df: Array

    def without(self, lost: Mask) -> ClusteredCovariance:
        """Return the covariance with nan for some coefficients, (q,)."""
        matrix = np.where(lost[:, None] | lost, np.nan, self.matrix)
        return ClusteredCovariance(matrix, np.where(lost, np.nan, self.df))


def clustered_covariance(
    V: Array, gradients: Array, information: Array, back: Array
) -> ClusteredCovariance:
    """The covariance of q coefficients by CR2, with Satterthwaite's degrees of freedom.

    V is the inverse of Σ H_j, and ``back``, (q, d), takes the d coordinates of gradients g_j and
    ``information`` H_j to coefficients, with nan for those without an estimate. A direction that
    one client determines alone, such as its own intercept, leaves no residual of which a variance
    could be estimated: coefficients that depend on such a direction have nan.
    """
    # In coordinates in which V is the identity, H_j has eigenvalues from 0 to 1: its shares.
    R = np.linalg.cholesky(V)
    C = back @ R
    shares, Q = np.linalg.eigh(R.T @ information @ R)
    left = 1.0 - np.clip(shares, 0.0, 1.0)
    alone = left <= ALONE
    roots = np.where(alone, 0.0, 1.0 / np.sqrt(np.where(alone, 1.0, left)))
    adjusted = np.einsum("jab,jb,jcb,jc->ja", Q, roots, Q, gradients @ R)
    influence = adjusted @ C.T  # (m, q): what each client contributes to each coefficient
    matrix = influence.T @ influence
    df = np.array([_degrees_of_freedom(c, Q, shares, roots) for c in C])
    lost = np.array([_depends_on_one(c, Q, alone) for c in C])
    return ClusteredCovariance(matrix, df).without(lost)


def summed_covariance(
    V: Array, products: Array, m: int, n: int, back: Array
) -> ClusteredCovariance:
    """The covariance by CR1 with t(m - 1), where only ``products`` Σ g_j g_jᵀ are known.

    They are those of m clients with n rows; V and ``back`` are as above. Directions in which no
    client has a score, since each determines them alone or the clients are fewer than the
    coefficients, cannot be told apart: coefficients that depend on one have nan.
    """
    R = np.linalg.cholesky(V)
    C = back @ R
    sizes, Q = np.linalg.eigh(R.T @ products @ R)
    factor = m / (m - 1) * (n - 1) / (n - len(V))
    matrix = factor * (C @ (R.T @ products @ R) @ C.T)
    alone = sizes <= ALONE * sizes[-1]
    lost = np.array([_depends_on_one(c, Q[None], alone[None]) for c in C])
    return ClusteredCovariance(matrix, np.full(len(back), m - 1.0)).without(lost)


def _degrees_of_freedom(c: Array, Q: Array, shares: Array, roots: Array) -> float:
    """Satterthwaite's (tr P)²/tr P² for the coefficient cᵀx.

    P, (m, m), is the covariance of the clients' contributions under the model: with u_j the
    adjusted c, P_jk = [j = k] u_jᵀH_ju_j - (H_ju_j)ᵀ(H_ku_k). It is never formed.
    """
    u = (c @ Q) * roots  # along the eigenvectors of each H_j
    Hu = np.einsum("jab,jb->ja", Q, shares * u)
    own = np.sum(shares * u * u, axis=1)
    cross = np.sum(Hu * Hu, axis=1)
    trace_of_square = own @ own - 2.0 * (own @ cross) + np.sum(np.square(Hu.T @ Hu))
    return float(np.sum(own - cross) ** 2 / trace_of_square)


def _depends_on_one(c: Array, Q: Array, alone: Mask) -> bool:
    """Whether cᵀx has a part along a direction that a single client determines, or is unknown."""
    parts = np.sum(np.square(c @ Q) * alone, axis=1)
    return not parts.max() <= ALONE * (c @ c)
