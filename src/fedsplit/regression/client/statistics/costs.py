"""The cost at a point of the rounds, along some directions, and products of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import RequestError
from fedsplit.regression.client.rows import CostAt, FitRows
from fedsplit.statistic import Computed, Part, Shape, Statistic, Sums, Values

LEAST_CLUSTERS = 10
"""The products of gradients are added up over so many clients at least: gradients of few clients,
which add up to zero, all but follow from it."""


@dataclass(frozen=True)
class CostAlong(Statistic):
    """The cost at a point x of the rounds, (d,), without its ridge, along k directions.

    The parts are ``value``, f(x); ``slope``, Dᵀ∇f(x); and ``curvature``, Dᵀ∇²f(x)D.

    Attributes
    ----------
    x : (d,) array
    directions : (d, k) array
        D.
    curved : bool
        Whether the curvature is wanted too.
    """

    x: Array
    directions: Array
    curved: bool = False

    kind = "end"

    @property
    def matrices(self) -> int:  # type: ignore[override]  # of every statistic of this class
        return int(self.curved)

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        k = self.directions.shape[1]
        # far out a cost can be beyond float64
        shapes: dict[str, Shape] = {
            "value": Sums(finite=False),
            "slope": Sums(k, 1, finite=False),
        }
        return shapes | {"curvature": Sums(k, None, finite=False)} if self.curved else shapes

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        at = cost_at(rows, self.x, self.directions)
        D = self.directions
        parts = {
            "value": Computed(np.array([[at.value]]), partial(at.discloses, self.curved)),
            "slope": Computed((D.T @ at.slope)[:, None]),
        }
        return parts | {"curvature": Computed(D.T @ at.curvature() @ D)} if self.curved else parts


@dataclass(frozen=True)
class ScoreProducts(Statistic):
    """The gradient at x times itself, (d, d), and of how many clients that is.

    The products are those of sums, and no sums over rows; they follow from the gradient.
    """

    x: Array

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        d = len(self.x)
        return {"products": Sums(d, None), "clusters": Sums(nonnegative=True)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        if rows.m < LEAST_CLUSTERS:
            raise RequestError(f"products of gradients are for {LEAST_CLUSTERS} clients on")
        at = cost_at(rows, self.x)
        # in a limit the gradient of rows that have all receded is 0, and no cluster
        clusters = np.array([[float(at.slope.any())]])
        products = np.outer(at.slope, at.slope)
        return {
            "products": Computed(products, partial(at.discloses, False)),
            "clusters": Computed(clusters),
        }


def cost_at(rows: FitRows, x: Array, directions: Array | None = None) -> CostAt:
    """The cost at a point of the right size."""
    if rows.cost is None or rows.frame is None:
        raise RequestError("a cost is asked about in the coordinates of a fit")
    d = len(rows.frame.ridge)
    shape = (d, 1) if directions is None else directions.shape
    if x.shape != (d,) or len(shape) != 2 or shape[0] != d or shape[1] > d:
        raise RequestError(f"the server sent a point and directions of {shape}, where d is {d}")
    return rows.cost(x)


def with_ridge(cost: Values, x: Array, share: Array) -> Values:
    """A cost along all directions, with a client's share of a ridge."""
    found = dict(cost)
    found["value"] = cost["value"] + 0.5 * float(share @ np.square(x))
    found["slope"] = cost["slope"] + (share * x)[:, None]
    if "curvature" in cost:
        found["curvature"] = cost["curvature"] + np.diag(share)
    return found
