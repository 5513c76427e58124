"""Moments of coded rows, from which the coordinates of a fit follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import logsumexp

from fedsplit.arrays import Array
from fedsplit.regression.client.design import Moments, Scaling
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.rows import FitRows
from fedsplit.regression.client.validation import check_scaling, check_whitening
from fedsplit.statistic import (
    AboutMeans,
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
