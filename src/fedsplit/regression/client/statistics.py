"""The statistics of a fit, and what they are made of: a client's rows, or its cost at a point.

Of the complete rows of a table, on which functions such as ``poly`` and ``cut`` depend; of coded
rows, whose moments the coordinates of a fit rest on; and at a point of the fit: costs, separation,
residuals, and how well the model fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from fedsplit.arrays import Array
from fedsplit.data.formula.pooled_functions import ColumnStatistic, ModelFrame
from fedsplit.data.pooled.column_statistics import Histogram, Withheld
from fedsplit.errors import InputError, RequestError, RowError
from fedsplit.losses.least_squares import reduce_rows
from fedsplit.losses.observations import Observations
from fedsplit.regression.client.design import BINS, Design, Frame, Moments, Scaling
from fedsplit.regression.client.guards.requests import check_scaling, check_whitening
from fedsplit.regression.client.guards.rules import NO_DIRECTIONS, Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families.response import pearson_parts
from fedsplit.statistic import (
    STATISTICS,
    AboutMeans,
    AnswerLimit,
    Computed,
    LogOfSum,
    MeanProducts,
    Pairs,
    RowSum,
    Shape,
    Statistic,
    StatisticPart,
    Sums,
    Values,
    indices,
    triangle,
)


class CostAt(NamedTuple):
    """The cost of one client at a point of the rounds, without a ridge."""

    value: float
    slope: Array  # (d,)
    curvature: Callable[[], Array]  # computes the Hessian, (d, d), where that is wanted
    # the sums over rows that all of it was made of; None where they are not known
    discloses: Callable[[], list[RowSum]] | None


@dataclass(frozen=True)
class FitRows:
    """The rows of one client by a plan, and their cost."""

    design: Design  # in the units of the files, or scaled where there is a frame
    rules: Rules  # those under which the client answers
    m: int = 0  # how many clients take part
    frame: Frame | None = None  # the coordinates of the rounds
    cost: Callable[[Array], CostAt] | None = None  # the cost at a point of the rounds

    @property
    def plan(self) -> Plan:
        return self.design.plan

    def check_shape(self, x: Array) -> None:
        """Refuse a point of the scaled columns of another size."""
        size = self.design.family.size(self.design.A.shape[1], self.design.classes)
        if x.shape != (size,):
            raise RequestError(f"the server sent a point of shape {x.shape}, expected ({size},)")

    def predictor(self, x: Array) -> Array:
        """η at a point of the scaled columns, which is refused if it has another size, or if under
        rules it is too far out."""
        self.check_shape(x)
        eta = self.design.predictor(x)
        if self.rules.refuse and not self.design.family.quadratic:
            self.rules.check_size(self.design.name, eta)
        return eta

    def whitened(self) -> Array:
        """The columns of the rounds, (n, r)."""
        return self.design.in_coordinates(None if self.frame is None else self.frame.whiten)


@dataclass(frozen=True)
class TableRows:
    """The complete rows of a client, before there is a design."""

    name: str  # of the client
    plan: Plan
    frame: ModelFrame
    withheld: Withheld  # which counts do not leave the client

    def argument(self, text: str) -> Array:
        """The argument of a function in the formula, (n,), by the text of its call."""
        calls = {call.text: call for call in self.plan.parsed.pooled}
        if text not in calls:
            raise InputError(f"client {self.name}: {text} is not in the formula")
        try:
            with np.errstate(all="ignore"):  # values that are not finite are named below
                values = calls[text].argument(self.frame)
        except ValueError as error:
            raise InputError(f"client {self.name}: {text}: {error}") from None
        valid = np.isfinite(values)
        if not valid.all():
            first = int(np.argmin(valid))
            row = self.frame.frame.index[first] + 1
            where = f"client {self.name}"
            raise RowError(
                f"{where}, row {row}: the column of {text} is {values[first]:g}; it must be finite",
                f"{where}: the column of {text} has {int((~valid).sum())} values that are not "
                "finite (its own log says where)",
            )
        return values


@dataclass(frozen=True)
class RowsInside(Statistic):
    """How many complete rows have a value in every function: ``rows``."""

    of_table = True

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"rows": Sums(nonnegative=True)}

    def sums(self, rows: TableRows) -> Mapping[str, StatisticPart]:
        used = rows.plan.has_values(rows.frame.frame).astype(np.float64)[:, None]
        return {"rows": RowSum(used, np.ones_like(used))}


@dataclass(frozen=True)
class OfArgument(Statistic):
    """A statistic of the argument of a function in the formula: ``part``."""

    text: str  # of the call, such as ``scale(x)``
    statistic: ColumnStatistic

    of_table = True

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"part": self.statistic.shape}

    def sums(self, rows: TableRows) -> Mapping[str, StatisticPart]:
        return {"part": self.statistic.part(rows.argument(self.text), rows.withheld)}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        """Histograms of a column are few.

        The same one is recognised by what was asked for: whether two columns have the same values
        is an answer about rows.
        """
        if not isinstance(self.statistic, Histogram):
            return []
        derived = (set(column.plan.types) for column in plan.derived.values())
        same = self.text, self.statistic, sorted(set(plan.types).union(*derived))
        columns = [call.columns for call in plan.parsed.pooled if call.text == self.text]
        most = 8
        return [
            AnswerLimit(
                f"histogram of {column}",
                most,
                same,
                f"it has disclosed {most} histograms of column {column}, and its rules "
                f"allow no more: write the knots or breaks of {self.text}",
            )
            for column in dict.fromkeys(column for own in columns for column in own)
        ]


@dataclass(frozen=True)
class DesignMoments(Statistic):
    """Rows, weights, means, and products about the means of the columns and the target.

    ``moments`` has the p columns and the target, and, where the target has units, the target less
    its offset, whose products with the columns determine the fit. ``exposed`` is log Σ w e^offset,
    ``classes`` counts rows of each, ``floor`` is how far the best loss of a model that knows every
    row is above the floor of the loss. ``withholds`` counts clients that tell no matrices in the
    rounds, and those that tell nothing of directions.
    """

    def shapes(self, plan: Plan) -> Mapping[str, Shape]:
        classes = plan.chosen_family.count_classes(plan.classes)
        shapes: dict[str, Shape] = {
            "n": Sums(nonnegative=True),
            "moments": _shape(plan),
            "exposed": LogOfSum(),
            "floor": Sums(nonnegative=True),
            "withholds": Sums(1, 2, nonnegative=True),
        }
        return shapes | {"classes": Sums(1, classes, nonnegative=True)} if classes else shapes

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design = rows.design
        A, b, w, o = design.determining, design.b, design.w, design.o
        one = np.ones((len(b), 1))
        pairs = _pairs(A.shape[1], design.family.has_units)
        columns = [A, b[:, None], (b - o)[:, None]][: 2 + design.family.has_units]
        # counts and settings of the client are no sums that a row could hide in
        n = Computed(np.array([[float(design.rows)]]), [RowSum(one, one)])
        exposed = np.array([[logsumexp(o, b=w) if o.any() else np.log(w.sum())]])
        exposures = [RowSum(w[:, None], np.exp(o - o.max())[:, None])] if o.any() else []
        floor = 0.0 if design.groups is None else design.groups.floor
        parts: dict[str, StatisticPart] = {
            "n": n,
            "moments": MeanProducts(np.hstack(columns), w, pairs),
            "exposed": Computed(exposed, exposures, np.maximum(np.abs(exposed), 1.0)),
            "floor": Computed(np.array([[floor]]), limits=np.array([[floor]])),
            "withholds": Computed(
                # directions of the server's choice are for clients without rules
                np.array([[float(not rows.rules.matrices), float(rows.rules.refuse)]])
            ),
        }
        if design.classes:
            of_class = (b[:, None] == np.arange(design.classes)).astype(np.float64)
            parts["classes"] = RowSum(one, of_class)
        return parts

    def check(self, values: Values, shapes: Mapping[str, Shape]) -> str:
        if wrong := super().check(values, shapes):
            return wrong
        if not (values["n"] > 0 and values["moments"][0] > 0):
            return "no rows, or weights that are not positive"
        return ""


def moments_of(values: Values, plan: Plan) -> Moments:
    """The moments of the rows of one client, or of all together."""
    p = plan.width
    weight, means, products = _shape(plan).split(values["moments"])
    has_net = len(means) > p + 1
    i, j = indices(triangle(p))
    scatter = np.zeros((p, p))
    scatter[i, j] = scatter[j, i] = products[: len(i)]
    return Moments(
        names=plan.names,
        n=round(float(values["n"][0, 0])),
        weight=weight,
        mean=means[:p],
        scatter=scatter,
        target_mean=float(means[p]),
        target_scatter=float(products[len(i)]),
        log_exposed=float(values["exposed"][0, 0]),
        classes=tuple(round(each) for each in values.get("classes", np.zeros((1, 0)))[0].tolist()),
        floor=float(values["floor"][0, 0]),
        net_mean=float(means[p + 1]) if has_net else 0.0,
        cross=products[len(i) + 2 :],
    )


def _shape(plan: Plan) -> AboutMeans:
    net = plan.chosen_family.has_units
    return AboutMeans(plan.width + 1 + net, _pairs(plan.width, net))


@lru_cache(maxsize=64)
def _pairs(p: int, net: bool) -> Pairs:
    """Those of p columns, the square of the target, and those with the target less its offset."""
    crossed = ((p + 1, p + 1), *((k, p + 1) for k in range(p))) if net else ()
    return (*triangle(p), (p, p), *crossed)


@dataclass(frozen=True)
class CombinedProducts(Statistic):
    """Σ w y yᵀ of combinations y = Dᵀa of the scaled columns a: ``products``, (k, k)."""

    scaling: Scaling
    directions: Array  # (p, k): D

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"products": Sums(self.directions.shape[1], None)}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design = rows.design
        check_scaling(self.scaling, design)
        check_whitening(self.directions, design)
        own = replace(design, A=design.determining, scaling=self.scaling)
        return {"products": RowSum(own.in_coordinates(self.directions), weights=design.w)}


LEAST_CLUSTERS = 10
"""The products of gradients are added up over so many clients at least: gradients of few clients,
which add up to zero, all but follow from it."""


@dataclass(frozen=True)
class CostAlong(Statistic):
    """The cost at a point x of the rounds, (d,), without its ridge, along k directions.

    The parts are ``value``, f(x); ``slope``, Dᵀ∇f(x); and ``curvature``, Dᵀ∇²f(x)D.
    """

    x: Array  # (d,)
    directions: Array  # (d, k): D
    curved: bool = False  # whether the curvature is wanted too

    kind = "end"

    @property
    def matrices(self) -> int:  # type: ignore[override]  # of every statistic of this class
        return int(self.curved)

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        k = self.directions.shape[1]
        # far out a cost can be beyond float64
        shapes: dict[str, Shape] = {"value": Sums(finite=False), "slope": Sums(k, 1, finite=False)}
        return shapes | {"curvature": Sums(k, None, finite=False)} if self.curved else shapes

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        at = cost_at(rows, self.x, self.directions)
        D = self.directions
        parts = {
            "value": Computed(np.array([[at.value]]), at.discloses),
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

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        if rows.m < LEAST_CLUSTERS:
            raise RequestError(f"products of gradients are for {LEAST_CLUSTERS} clients on")
        at = cost_at(rows, self.x)
        # in a limit the gradient of rows that have all receded is 0, and no cluster
        clusters = np.array([[float(at.slope.any())]])
        products = np.outer(at.slope, at.slope)
        return {
            "products": Computed(products, at.discloses),
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

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        if rows.rules.refuse and not rows.design.family.quadratic:
            raise RequestError(NO_DIRECTIONS)
        if rows.frame is None or self.directions.shape[1:] != rows.frame.ridge.shape:
            raise RequestError("the server sent directions of another number of coefficients")
        # the first direction goes furthest: the others count where those before them leave a row,
        # or a comparison of its class with another one, as it is
        family, b = rows.design.family, rows.design.b
        least, most = family.margins(rows.whitened(), b, self.directions)
        counted = np.column_stack([least < 0, most > 0, least > 0]).astype(np.float64)
        return {"rows": RowSum(np.ones((len(counted), 1)), counted)}


@dataclass(frozen=True)
class ResidualSizes(Statistic):
    """How many rows have a residual |b - η| of which size at a point x of the scaled columns.

    Under rules small counts are added to neighbouring ones, a client of few rows merges cells, and
    of targets with the same column it answers few. Rows are not left out: residuals near 0 fall
    into many cells, and without them the median would be that of larger ones. Without rules the
    counts of all clients are those of their rows together, however these are split.
    """

    x: Array  # (p,)
    unit: float  # the residual of size 1, in the unit of the files
    sizes: Histogram  # of their logarithms to the base 2

    kind = "setup"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"counts": self.sizes.shape}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        rows.check_shape(self.x)  # counts tell no more of rows whose predictors are far out
        design = rows.design
        with np.errstate(divide="ignore"):  # a residual of 0 has size -inf
            sizes = np.log2(np.abs(design.b - design.predictor(self.x)) / self.unit)
        if rows.rules.refuse:
            return {"counts": self.sizes.joined(sizes, rows.rules.withheld)}
        return {"counts": RowSum(np.ones((len(sizes), 1)), self.sizes.every(sizes))}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        # where a count changes is a number of one row
        return [AnswerLimit(f"residuals of {each}", 5) for each in plan.parsed.target_columns]


@dataclass(frozen=True)
class LogLikelihood(Statistic):
    """The log-likelihood at a point x of the scaled columns, ``total``."""

    x: Array  # (p,)
    dispersion: float  # its φ

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"total": Sums(finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design, family = rows.design, rows.design.family
        if not family.has_likelihood:
            logs = np.full(1, np.nan)
        elif rows.rules.refuse and family.quadratic:
            # by the Gram matrix, as the cost of the rounds: predictors far out would round single
            # rows
            rows.check_shape(self.x)
            A, b, w, o = design.observations()
            terms = reduce_rows([Observations(A, b - o, w, o)])
            squares = 2.0 * design.target_scale[0] ** 2 * terms.value(terms.eta(self.x[None]))
            perfect = family.log_likelihood(design.b, design.b, w, self.dispersion)
            logs = np.append(perfect, -0.5 * squares / self.dispersion)
        else:  # by rows is much faster for many small clients
            eta = rows.predictor(self.x)
            logs = family.log_likelihood(design.b, eta, design.w, self.dispersion)
        total = float(np.sum(logs)) + (design.groups.log_choices if design.groups else 0.0)
        # of a quadratic loss it follows from the moments
        sums = [] if family.quadratic else [_total(logs)]
        most = np.array([[max(abs(total), design.rows)]])
        return {"total": Computed(np.array([[total]]), sums, most)}


@dataclass(frozen=True)
class PearsonSquares(Statistic):
    """Pearson's X² at a point x of the scaled columns, ``total``: of amounts, counts and groups."""

    x: Array

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"total": Sums(nonnegative=True, finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design, family = rows.design, rows.design.family
        if design.groups is None and not family.has_pearson:
            # X² of single trials of two classes is about their number, whatever the model
            return {"total": Computed(np.zeros((1, 1)))}
        mu = family.link.mean(rows.predictor(self.x))
        if design.groups is None:
            return {"total": _total(design.w * family.pearson(design.b, mu))}
        return {"total": _total(pearson_parts(design.row_ids, design.b, design.w, mu))}


@dataclass(frozen=True)
class ExpectedInformation(Statistic):
    """Σ_i w_i (dμ_i/dη_i)²/V(μ_i) a_i a_iᵀ at x: ``information`` of the columns of the rounds."""

    x: Array  # (p,): of the scaled columns
    r: int  # how many columns the rounds have

    matrices = 1

    kind = "end"

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"information": Sums(self.r, None, finite=False)}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design = rows.design
        weights = design.w * design.family.expected_weights(rows.predictor(self.x))
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

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        design, limit = rows.design, rows.rules.withheld
        p = design.family.link.mean(rows.predictor(self.x))
        bins = len(BINS) - 1
        at = np.clip(np.searchsorted(BINS, p, side="right") - 1, 0, bins - 1)
        counted = [design.times, design.times * p, design.times * design.b]
        trials, _, events = (np.bincount(at, each, bins) for each in counted)
        small = np.zeros(bins, dtype=bool)
        for count in (events, trials - events):
            small |= (count != 0) & (count < limit.smallest)
        told = ~small & (trials > 0)
        if limit.together and told.any() and 0 < trials[small].sum() < limit.smallest:
            # all rows but these would be counted: one more bin is withheld with them
            told[np.argmin(np.where(told, trials, np.inf))] = False
        inside = ((at[:, None] == np.arange(bins)) & told).astype(np.float64)
        return {"bins": RowSum(np.column_stack(counted), inside)}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        # where a count changes is a number of one row
        return [AnswerLimit(f"calibration of {each}", 5) for each in plan.parsed.target_columns]


def _total(parts: Array) -> RowSum:
    """The sum of numbers of each row, (n,)."""
    return RowSum(parts[:, None], np.ones((len(parts), 1)))


STATISTICS.update(
    (each.__name__, each)
    for each in (
        CalibrationCounts,
        CombinedProducts,
        CostAlong,
        DesignMoments,
        ExpectedInformation,
        LogLikelihood,
        OfArgument,
        PearsonSquares,
        ResidualSizes,
        RowsAlong,
        RowsInside,
        ScoreProducts,
    )
)
