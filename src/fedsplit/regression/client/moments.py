"""Statistics on which the coordinates of a fit rest: of the complete rows of a table, on which
functions such as ``poly`` and ``cut`` depend, and moments of coded rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import logsumexp

from fedsplit.arrays import Array, Mask
from fedsplit.data.formula.model_frame import ModelFrame
from fedsplit.data.formula.pooled_functions import outside
from fedsplit.data.pooled.column_statistics import ColumnStatistic, Histogram, Withheld
from fedsplit.errors import InputError, RowError
from fedsplit.regression.client.coding import check_scaling, check_whitening
from fedsplit.regression.client.design import Moments, Scaling
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.rows import FitRows
from fedsplit.statistic import (
    AboutMeans,
    AnswerLimit,
    Computed,
    LogOfSum,
    MeanProducts,
    Pairs,
    Part,
    RowSum,
    Shape,
    Statistic,
    Sums,
    Values,
    indices,
    triangle,
)

MOST_HISTOGRAMS = 8
"""Of a column of the file, in all studies. A fit needs one for a function without knots, and the
same one again is free. Which counts are withheld tells something about single rows each time."""


@dataclass(frozen=True)
class TableRows:
    """The complete rows of a client, before there is a design.

    Attributes
    ----------
    name : str
        Of the client.
    plan : Plan
    frame : ModelFrame
    withheld : Withheld
        Which counts do not leave the client.
    """

    name: str
    plan: Plan
    frame: ModelFrame
    withheld: Withheld

    @property
    def used(self) -> Mask:
        """Which rows have a value in every function: ``cut`` may lack one."""
        return ~outside(self.plan.parsed.pooled, self.frame)

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

    def sums(self, rows: TableRows) -> Mapping[str, Part]:
        used = rows.used.astype(np.float64)[:, None]
        return {"rows": RowSum(used, np.ones_like(used))}


@dataclass(frozen=True)
class OfArgument(Statistic):
    """A statistic of the argument of a function in the formula: ``part``.

    Attributes
    ----------
    text : str
        Of the call, such as ``scale(x)``.
    statistic : ColumnStatistic
    """

    text: str
    statistic: ColumnStatistic

    of_table = True

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"part": self.statistic.shape}

    def sums(self, rows: TableRows) -> Mapping[str, Part]:
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
        return [
            AnswerLimit(
                f"histogram of {column}",
                MOST_HISTOGRAMS,
                same,
                f"it has disclosed {MOST_HISTOGRAMS} histograms of column {column}, and its rules "
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

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
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
        parts: dict[str, Part] = {
            "n": n,
            "moments": MeanProducts(np.hstack(columns), w, pairs),
            "exposed": Computed(exposed, exposures, np.maximum(np.abs(exposed), 1.0)),
            "floor": Computed(np.array([[floor]]), limits=np.array([[floor]])),
            "withholds": Computed(
                np.array([[float(not rows.matrices), float(not rows.directions)]])
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
    """Σ w y yᵀ of combinations y = Dᵀa of the scaled columns a: ``products``, (k, k).

    Attributes
    ----------
    scaling : Scaling
    directions : (p, k) array
        D.
    """

    scaling: Scaling
    directions: Array

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"products": Sums(self.directions.shape[1], None)}

    def sums(self, rows: FitRows) -> Mapping[str, Part]:
        A = rows.design.determining
        check_scaling(self.scaling, rows.design)
        check_whitening(self.directions, rows.design)
        if rows.design.scaling is None:
            A = (A - self.scaling.centre) / self.scaling.scale
        return {"products": RowSum(A @ self.directions, weights=rows.design.w)}
