"""``poly(x, k)``: polynomials that are orthogonal over the rows of all clients, as R has them.

They are given by the recurrence of monic polynomials on standardised values z,

    p_0 = 1,  p_{j+1} = (z - alpha_j) p_j - (norm2_j / norm2_{j-1}) p_{j-1},

where norm2_j = Σ p_j(z)² over all rows. What clients have to add up is the Gram matrix of
polynomials that are orthogonal already, or nearly so: powers would lose half of the digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.data.pooled.function import PooledFunction, State, mean_and_deviation, numbered
from fedsplit.dialogue import Dialogue
from fedsplit.statistic import RowSum, Shape, StatisticPart, Sums

MOST_DEGREE = 20
"""The highest degree of the polynomials whose products a client adds up."""


class Recurrence(NamedTuple):
    """Polynomials of degree 0 to k, by alpha_0 to alpha_{k-1} and norm2_0 to norm2_k."""

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
        columns = np.empty((len(z), self.degree + 1))
        columns[:, 0] = 1.0 / norms[0]
        before = np.zeros(len(z))
        for j in range(self.degree):
            # of normalised polynomials, whose values stay near one where monic ones overflow
            step = (z - self.alpha[j]) * columns[:, j]
            if j > 0:
                step -= before * (norms[j] / norms[j - 1])
            before = columns[:, j]
            columns[:, j + 1] = step * (norms[j] / norms[j + 1])
        return columns

    def orthogonalised(self, gram: Array) -> Recurrence | None:
        """The polynomials that are orthogonal on the rows of a Gram matrix, (k + 1, k + 1).

        It is Σ q_i q_j over them, where q are the values of these polynomials. None if it is
        singular to rounding: there are too few distinct values.
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


@dataclass(frozen=True)
class GramMatrix:
    """Products of polynomials q_0 to q_k of z = (x - centre)/scale: Σ q_i q_j, (k + 1, k + 1).

    ``alpha`` and ``norm2`` are their recurrence.
    """

    centre: float
    scale: float
    alpha: tuple[float, ...]
    norm2: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = (self.centre, self.scale, *self.alpha, *self.norm2)
        if not all(math.isfinite(each) for each in numbers):
            raise ValueError("polynomials of numbers that are not finite")
        if min(self.scale, *self.norm2) <= 0 or len(self.norm2) != len(self.alpha) + 1:
            raise ValueError("polynomials without a norm")
        if len(self.alpha) > MOST_DEGREE:
            raise ValueError(f"polynomials of a degree above {MOST_DEGREE}")

    @property
    def sums(self) -> int:
        """They are worth the sums of z to z^2k."""
        return 2 * len(self.alpha)

    @property
    def shape(self) -> Shape:
        return Sums(len(self.norm2), None)

    def part(self, x: Array, limit: Withheld) -> StatisticPart:
        z = (x - self.centre) / self.scale
        return RowSum(Recurrence(self.alpha, self.norm2).values(z))


@dataclass(frozen=True)
class Poly(PooledFunction):
    """R's ``poly(x, degree, raw)``: columns of degree 1 to k, each of norm 1; powers if raw."""

    degree: int = 1
    raw: bool = False

    def agreement(self) -> Dialogue[State] | None:
        return None if self.raw else self._agree()

    def _agree(self) -> Dialogue[State]:
        _, mean, deviation = yield from mean_and_deviation()
        p: Recurrence | None = Recurrence.legendre(self.degree)
        for _ in range(4):  # the second time is nearly always the last
            if p is None:
                break
            gram = yield GramMatrix(mean, deviation, tuple(p.alpha), tuple(p.norm2))
            p = p.orthogonalised(gram)
            # A Gram matrix in poor condition gives polynomials that are orthogonal only roughly.
            if condition(gram) < 1e3 and p is not None:
                known = {"center": [mean], "scale": [deviation]}
                return {**known, "alpha": p.alpha, "norm2": p.norm2}
        raise ValueError(
            f"its column has too few different values for degree {self.degree}: use a lower one"
        )

    def labels(self, state: State) -> list[str]:
        return numbered(self.degree)

    def values(self, x: Array, state: State) -> Array:
        if self.raw:
            powers: Array = x[:, None] ** np.arange(1, self.degree + 1)
            return powers
        [centre], [scale] = state["center"], state["scale"]
        return Recurrence(state["alpha"], state["norm2"]).values((x - centre) / scale)[:, 1:]
