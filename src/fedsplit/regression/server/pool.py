"""The moments of all clients together: the global mean and scale, constant and dependent columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from fedsplit.arrays import Array, Mask
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.design import Moments, Scaling

ALIKE = 1e-13
"""A column whose deviation is below this share of its mean is the same in every row, as far as float64 can tell."""

DEPENDENT = 1e-11
"""A column of which the others leave no more than this share of its variance is a combination of them."""


class Pool:
    """The moments of all clients together, and what they show.

    Attributes
    ----------
    n, weight : rows, and the sum of their weights.
    mean, scatter : of the columns, as in ``Moments``.
    target : the target's mean.
    mean_offset : log of the mean of e^offset.
    spread : the target's standard deviation.
    """

    def __init__(self, moments: Sequence[Moments]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(moments)
        for name, value in [
            ("the target", self.spread),
            *zip(self.names, np.diag(self.scatter), strict=True),
        ]:
            if not np.isfinite(value):
                raise InputError(
                    f"{name}: the squares of its values are beyond float64, use another unit"
                )

    def _add(self, moments: Sequence[Moments]) -> None:
        self.names = list(moments[0].names)
        self.n = sum(each.n for each in moments)
        self.weight = sum(each.weight for each in moments)
        shares = np.array([each.weight for each in moments]) / self.weight
        means = np.stack([each.mean for each in moments])
        self.mean: Array = shares @ means
        away = np.sqrt(shares * self.weight)[:, None] * (means - self.mean)
        self.scatter: Array = np.sum([each.scatter for each in moments], axis=0) + away.T @ away
        targets = np.array([each.target_mean for each in moments])
        self.target = float(shares @ targets)
        self.mean_offset = float(
            logsumexp([each.log_exposed for each in moments]) - np.log(self.weight)
        )
        within = sum(each.target_scatter for each in moments)
        self.spread = float(
            np.sqrt(
                (within + self.weight * float(shares @ np.square(targets - self.target)))
                / self.weight
            )
        )
        self.classes = np.sum([each.classes for each in moments], axis=0)

    @property
    def constant(self) -> Mask:
        """Which columns are the same in every row."""
        variance, size = np.diag(self.scatter) / self.weight, np.square(self.mean)
        same: Mask = variance <= ALIKE**2 * np.maximum(size, np.finfo(np.float64).tiny)
        return same

    def deviation(self, intercept: int | None) -> float:
        """The target's standard deviation; from zero, where there is no intercept."""
        return self.spread if intercept is not None else float(np.hypot(self.spread, self.target))

    def varies(self, intercept: int | None) -> bool:
        """Whether there is something in the target to fit, beside the intercept."""
        return self.deviation(intercept) > 1e-13 * abs(self.target)

    def scaling(self, intercept: int | None, unit: float) -> Scaling:
        """Columns centred, where there is an intercept, and of unit deviation; a constant one stays as it is."""
        constant = self.constant
        second = np.diag(self.scatter) / self.weight + (
            0.0 if intercept is not None else np.square(self.mean)
        )
        scale = np.where(constant | (second == 0), 1.0, np.sqrt(second))
        centre = (
            np.where(constant, 0.0, self.mean)
            if intercept is not None
            else np.zeros_like(self.mean)
        )
        return Scaling(centre, scale, unit)

    def products(self, scaling: Scaling) -> Array:
        """Σ w a aᵀ of the scaled columns."""
        mean = (self.mean - scaling.centre) / scaling.scale
        return self.scatter / np.outer(scaling.scale, scaling.scale) + self.weight * np.outer(
            mean, mean
        )

    def whitening(self, scaling: Scaling) -> Array:
        """W such that the scaled columns times W are orthonormal: Σ w (Wᵀa)(Wᵀa)ᵀ is the identity times the weight."""
        L = np.linalg.cholesky(self.products(scaling) / self.weight)
        W: Array = np.ascontiguousarray(
            solve_triangular(L, np.eye(len(L)), lower=True).T
        )  # as it arrives elsewhere
        return W

    def dependent(self, intercept: int | None) -> dict[int, Array]:
        """The columns that others before them determine but for a constant, with the weights of those in each, (p,).

        One that is the same in every row, beside an intercept, or zero, has no weights.
        """
        p = len(self.names)
        products = self._products(intercept)
        sizes = np.sqrt(np.diag(products))
        empty = (sizes == 0) | (self.constant & (intercept is not None))
        kept: list[int] = []
        found: dict[int, Array] = {
            i: np.zeros(p) for i in np.flatnonzero(empty).tolist() if i != intercept
        }
        L = np.zeros(
            (p, p)
        )  # LLᵀ are the correlations of those kept: what is left of 1 is what the others do not tell
        for i in (i for i in range(p) if i != intercept and i not in found):
            k, row = len(kept), products[i, kept] / (sizes[i] * sizes[kept])
            row = solve_triangular(L[:k, :k], row, lower=True) if k else row
            left = 1.0 - float(row @ row)
            if left > DEPENDENT:
                L[k, : k + 1] = [*row, np.sqrt(left)]
                kept.append(i)
                continue
            found[i] = np.zeros(p)
            found[i][kept] = sizes[i] / sizes[kept] * solve_triangular(L[:k, :k].T, row)
        return found

    def check_independent(self, intercept: int | None) -> None:
        """Refuse a constant column beside the intercept, and one that the columns before it determine."""
        for i, weights in self.dependent(intercept).items():
            if weights.any():
                sizes = np.sqrt(np.diag(self._products(intercept)))
                parts = [
                    self.names[j] for j in np.flatnonzero(np.abs(weights) * sizes > 1e-6 * sizes[i])
                ]
                raise InputError(
                    f"column {self.names[i]} is a combination of {listed(parts)} over all clients, "
                    "to five digits at least: leave one of them out, or add a ridge"
                )
            raise InputError(
                f"column {self.names[i]} is {self.mean[i]:g} in every row of every client: leave it out, or add a ridge"
            )

    def _products(self, intercept: int | None) -> Array:
        """Σ w a aᵀ, of centred columns where there is an intercept."""
        return (
            self.scatter
            if intercept is not None
            else self.scatter + self.weight * np.outer(self.mean, self.mean)
        )
