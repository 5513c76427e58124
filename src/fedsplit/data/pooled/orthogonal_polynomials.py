"""Orthogonal polynomials on the values of a column, as R's ``poly`` has them.

They are given by the recurrence of monic polynomials on standardised values z,

    p_0 = 1,  p_{j+1} = (z - alpha_j) p_j - (norm2_j / norm2_{j-1}) p_{j-1},

where norm2_j = Σ p_j(z)² over all rows. What clients have to add up is the Gram matrix of
polynomials that are orthogonal already, or nearly so: powers would lose half of the digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array


class Recurrence(NamedTuple):
    """Polynomials of degree 0 to k.

    Attributes
    ----------
    alpha : sequence of float
        alpha_0 to alpha_{k-1}.
    norm2 : sequence of float
        norm2_0 to norm2_k.
    """

    alpha: Sequence[float]
    norm2: Sequence[float]

    @classmethod
    def legendre(cls, degree: int) -> Recurrence:
        """Legendre's, orthogonal for values spread evenly with mean 0 and variance 1.

        On [-1, 1] the ratio of the norms is j²/(4j² - 1), and the variance is 1/3.
        """
        norm2 = [1.0]
        for j in range(1, degree + 1):
            norm2.append(3.0 * norm2[-1] * j**2 / (4 * j**2 - 1))
        return cls([0.0] * degree, norm2)

    @property
    def degree(self) -> int:
        return len(self.alpha)

    def values(self, z: Array) -> Array:
        """p_j(z)/√norm2_j for j = 0 to k, (n, k + 1)."""
        norms = np.sqrt(self.norm2)
        found = np.empty((len(z), self.degree + 1))
        found[:, 0] = 1.0 / norms[0]
        before = np.zeros(len(z))
        for j in range(self.degree):
            # of normalised polynomials, whose values stay near one where monic ones overflow
            step = (z - self.alpha[j]) * found[:, j]
            if j > 0:
                step -= before * (norms[j] / norms[j - 1])
            before = found[:, j]
            found[:, j + 1] = step * (norms[j] / norms[j + 1])
        return found

    def orthogonalised(self, gram: Array) -> Recurrence | None:
        """The polynomials that are orthogonal on the rows of a Gram matrix.

        Parameters
        ----------
        gram : (k + 1, k + 1) array
            Σ q_i q_j over all rows, where q are the values of these polynomials.

        Returns
        -------
        Recurrence or None
            None if the matrix is singular to rounding: there are too few distinct values.
        """
        if not condition(gram) < 1e12:
            return None
        # q = L p with p orthonormal, so that the monic p_j is q_j + c_j q_{j-1} + ...
        inverse = np.linalg.inv(np.linalg.cholesky(gram))
        norms = np.sqrt(self.norm2)
        leading = np.diag(inverse)
        c = np.zeros(self.degree + 1)
        c[1:] = np.diag(inverse, -1) / leading[1:] * norms[1:] / norms[:-1]
        alpha = np.array(self.alpha) + c[:-1] - c[1:]
        norm2 = np.square(norms / leading)
        return Recurrence(alpha.tolist(), norm2.tolist())


def condition(gram: Array) -> float:
    """The condition number of a Gram matrix whose diagonal is scaled to ones."""
    scale = np.sqrt(np.diag(gram))
    if not (np.isfinite(gram).all() and (scale > 0).all()):
        return float("inf")
    eigenvalues = np.linalg.eigvalsh(gram / np.outer(scale, scale))
    return float(eigenvalues[-1] / max(eigenvalues[0], np.finfo(np.float64).tiny))
