"""Statistics at a point of a fit: costs, separation, residuals, and how well the model fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.errors import RequestError
from fedsplit.regression.client.design import BINS
from fedsplit.regression.client.guards.points import NO_DIRECTIONS
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.rows import CostAt, FitRows
from fedsplit.statistic import AnswerLimit, Computed, Part, RowSum, Shape, Statistic, Sums, Values

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


@dataclass(frozen=True)
class RowsAlong(Statistic):
    """What directions, (k, d), the first of which goes furthest, do to the losses of rows.

    ``rows`` counts those whose loss rises, those some of whose comparisons fall for ever, and those
    whose loss falls to its infimum, (1, 3).
    """

    directions: Array

    kind = "certificate"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"rows": Sums(1, 3, nonnegative=True)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        if not rows.directions and not rows.design.family.quadratic:
            raise RequestError(NO_DIRECTIONS)
        if rows.frame is None or self.directions.shape[1:] != rows.frame.ridge.shape:
            raise RequestError("the server sent directions of another number of coefficients")
        least, most = rows.design.margins(rows.frame.whiten, self.directions)
        counted = np.column_stack([least < 0, most > 0, least > 0]).astype(np.float64)
        return {"rows": RowSum(np.ones((len(counted), 1)), counted)}


MOST_RESIDUAL_COUNTS = 5
"""How often a client under rules counts the residuals of targets with the same column: where a
count changes is a number of one row."""


@dataclass(frozen=True)
class ResidualSizes(Statistic):
    """How many rows have a residual |b - η| of which size at a point x of the scaled columns.

    Under rules small counts are added to neighbouring ones, a client of few rows merges cells, and
    of targets with the same column it answers few. Rows are not left out: residuals near 0 fall
    into many cells, and without them the median would be that of larger ones. Without rules the
    counts of all clients are those of their rows together, however these are split.

    Attributes
    ----------
    x : (p,) array
    unit : float
        The residual of size 1, in the unit of the files.
    sizes : Histogram
        Of their logarithms to the base 2.
    """

    x: Array
    unit: float
    sizes: Histogram

    kind = "setup"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"counts": self.sizes.shape}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_shape(self.x)  # counts tell no more of rows whose predictors are far out
        design = rows.design
        with np.errstate(divide="ignore"):  # a residual of 0 has size -inf
            sizes = np.log2(np.abs(design.b - design.predictor(self.x)) / self.unit)
        if rows.rules.refuse:
            return {"counts": self.sizes.joined(sizes, rows.withheld)}
        return {"counts": RowSum(np.ones((len(sizes), 1)), self.sizes.every(sizes))}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        return [
            AnswerLimit(f"residuals of {column}", MOST_RESIDUAL_COUNTS)
            for column in plan.parsed.target_columns
        ]


MOST_CALIBRATIONS = 5
"""How often a client under rules counts the predictions of targets with the same column: where a
count changes is a number of one row."""


@dataclass(frozen=True)
class LogLikelihood(Statistic):
    """The log-likelihood at a point x of the scaled columns, ``total``.

    Attributes
    ----------
    x : (p,) array
    dispersion : float
        Its φ.
    """

    x: Array
    dispersion: float

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"total": Sums(finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        design = rows.design
        # by rows is much faster for many small clients
        logs = design.log_likelihood_parts(self.x, self.dispersion, not rows.rules.refuse)
        total = float(np.sum(logs)) + (design.groups.log_choices if design.groups else 0.0)
        # of a quadratic loss it follows from the moments
        sums = [] if design.family.quadratic else [_total(logs)]
        most = np.array([[max(abs(total), design.rows)]])
        return {"total": Computed(np.array([[total]]), sums, most)}


@dataclass(frozen=True)
class PearsonSquares(Statistic):
    """Pearson's X² at a point x of the scaled columns, ``total``: of amounts, counts and groups."""

    x: Array

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"total": Sums(nonnegative=True, finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        parts = rows.design.pearson_parts(self.x)
        # X² of single trials of two classes is about their number, whatever the model
        return {"total": Computed(np.zeros((1, 1))) if parts is None else _total(parts)}


@dataclass(frozen=True)
class ExpectedInformation(Statistic):
    """Σ_i w_i (dμ_i/dη_i)²/V(μ_i) a_i a_iᵀ at x: ``information`` of the columns of the rounds.

    Attributes
    ----------
    x : (p,) array
        Of the scaled columns.
    r : int
        How many columns the rounds have.
    """

    x: Array
    r: int

    matrices = 1

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"information": Sums(self.r, None, finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        design = rows.design
        weights = design.w * design.family.expected_weights(design.predictor(self.x))
        return {"information": RowSum(rows.whitened(), weights=weights)}


@dataclass(frozen=True)
class CalibrationCounts(Statistic):
    """Rows, predictions and events between ``BINS`` of predicted probabilities, (3, bins).

    Of targets with the same column a client under rules answers few: the others have no counts.
    """

    x: Array

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"bins": Sums(3, len(BINS) - 1, nonnegative=True)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        rows.check_point(self.x)
        design = rows.design
        cells, p, told = design.binned(self.x, rows.withheld)
        inside = (cells[:, None] == np.arange(len(told))) & told
        return {"bins": RowSum(np.column_stack(design.counted(p)), inside.astype(np.float64))}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        return [
            AnswerLimit(f"calibration of {column}", MOST_CALIBRATIONS)
            for column in plan.parsed.target_columns
        ]


def _total(parts: Array) -> RowSum:
    """The sum of numbers of each row, (n,)."""
    return RowSum(parts[:, None], np.ones((len(parts), 1)))
