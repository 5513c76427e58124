"""The moments of all clients together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from fedsplit.arrays import Array, Mask
from fedsplit.errors import InputError
from fedsplit.regression.client.design import Moments, Scaling

ALIKE = 1e-13
"""A column whose deviation is a smaller share of its mean is constant, but for rounding."""


class Pool:
    """The moments of all clients, and what they reveal about the columns.

    Parameters
    ----------
    moments : sequence of Moments
        One per client, of the same p columns.
    intercept : int or None
        Which column is the constant term, if there is one.
    centred : bool
        Whether the loss has a constant beside the columns, such as thresholds.

    Attributes
    ----------
    names : list of str
        Of the columns.
    n, weight : int, float
        Rows, and the sum of their weights.
    mean, scatter : (p,) and (p, p) arrays
        Of the columns, as in ``Moments``.
    target, spread : float
        Mean and standard deviation of the target.
    net_target, cross : float, (p,) array
        As ``net_mean`` and ``cross`` in ``Moments``.
    log_exposure : float
        The logarithm of the mean of e^offset.
    classes : (K,) array
        Rows of each class; empty unless the target is a class.
    floor : float
        Of all clients, as in ``Moments``.
    """

    # overflow is reported below, by the name of the column
    @np.errstate(over="ignore", invalid="ignore")
    def __init__(
        self, moments: Sequence[Moments], intercept: int | None, centred: bool = False
    ) -> None:
        self.intercept = intercept
        self.centred = centred or intercept is not None
        self.names = list(moments[0].names)
        self.n = sum(each.n for each in moments)
        self.weight = sum(each.weight for each in moments)
        shares = np.array([each.weight for each in moments]) / self.weight
        means = np.stack([each.mean for each in moments])
        self.mean: Array = shares @ means
        between = np.sqrt(shares * self.weight)[:, None] * (means - self.mean)
        within = np.sum([each.scatter for each in moments], axis=0)
        self.scatter: Array = within + between.T @ between
        targets = np.array([each.target_mean for each in moments])
        self.target = float(shares @ targets)
        target_within = sum(each.target_scatter for each in moments)
        target_between = self.weight * float(shares @ np.square(targets - self.target))
        self.spread = float(np.sqrt((target_within + target_between) / self.weight))
        nets = np.array([each.net_mean for each in moments])
        self.net_target = float(shares @ nets)
        self.cross: Array = np.sum([each.cross for each in moments], axis=0)
        if self.cross.size:
            self.cross = self.cross + (shares * (nets - self.net_target)) @ means * self.weight
        exposed = logsumexp([each.log_exposed for each in moments])
        self.log_exposure = float(exposed - np.log(self.weight))
        self.classes = np.sum([each.classes for each in moments], axis=0)
        self.floor = sum(each.floor for each in moments)
        squares = zip(self.names, np.diag(self.scatter), strict=True)
        for name, value in [("the target", self.spread), *squares]:
            if not np.isfinite(value):
                raise InputError(
                    f"{name}: the squares of its values are beyond float64, use another unit"
                )

    @property
    def constant(self) -> Mask:
        """Which columns have the same value in every row, (p,)."""
        variance = np.diag(self.scatter) / self.weight
        size = np.maximum(np.square(self.mean), np.finfo(np.float64).tiny)
        same: Mask = variance <= ALIKE**2 * size
        return same

    @property
    def sizes(self) -> Array:
        """The root mean square of every column, (p,)."""
        sizes: Array = np.hypot(np.sqrt(np.diag(self.scatter) / self.weight), self.mean)
        return sizes

    @property
    def empty(self) -> Mask:
        """Which columns are zero, or constant beside a constant of the model, (p,)."""
        empty: Mask = self.sizes == 0
        if self.centred:
            empty = empty | self.constant
        if self.intercept is not None:
            empty[self.intercept] = False
        return empty

    @property
    def deviation(self) -> float:
        """The target's standard deviation from its mean, or from zero without a constant."""
        if not self.centred:
            return float(np.hypot(self.spread, self.target))
        return self.spread

    @property
    def target_varies(self) -> bool:
        """Whether the target has anything to fit beside the intercept."""
        return self.deviation > 1e-13 * abs(self.target)

    def scaling(self, has_units: bool) -> Scaling:
        """Columns of unit deviation, centred beside a constant; constant ones unchanged.

        The same holds for the target, if it has units.
        """
        constant = self.constant
        second = np.diag(self.scatter) / self.weight
        centre = np.zeros_like(self.mean)
        if not self.centred:
            second = second + np.square(self.mean)
        else:
            centre = np.where(constant, 0.0, self.mean)
        scale = np.where(constant | (second == 0), 1.0, np.sqrt(second))
        if not has_units:
            return Scaling(centre, scale, 1.0)
        origin = 0.0
        if self.intercept is not None:
            origin = self.target
        return Scaling(centre, scale, self.deviation, origin)

    def products(self, scaling: Scaling) -> Array:
        """Σ w a aᵀ of the scaled columns, (p, p)."""
        mean = (self.mean - scaling.centre) / scaling.scale
        centred = self.scatter / np.outer(scaling.scale, scaling.scale)
        return centred + self.weight * np.outer(mean, mean)

    def target_products(self, scaling: Scaling) -> Array:
        """Σ w a y of the scaled columns and the scaled target, (p,), of a quadratic loss."""
        mean = (self.mean - scaling.centre) / scaling.scale
        target = (self.net_target - scaling.origin) / scaling.unit
        return self.cross / (scaling.scale * scaling.unit) + self.weight * target * mean
