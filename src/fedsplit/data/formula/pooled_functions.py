"""The tables of functions that depend on the rows of all clients."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedsplit.arrays import Mask
from fedsplit.data.categories import Level
from fedsplit.data.formula.model_frame import ModelFrame
from fedsplit.data.pooled.cutting import Cut
from fedsplit.data.pooled.function import PooledCall, PooledCategory, PooledNumbers
from fedsplit.data.pooled.polynomials import Poly
from fedsplit.data.pooled.scaling import Center, Scale
from fedsplit.data.pooled.spline_functions import SplineFunction, beyond_boundary

NUMBERS: dict[str, PooledNumbers] = {
    "poly": Poly(),
    "scale": Scale(),
    "center": Center(),
    "bs": SplineFunction(natural=False),
    "ns": SplineFunction(natural=True),
}
"""Those with columns of numbers."""

CATEGORIES: dict[str, PooledCategory] = {"cut": Cut()}
"""Those with the levels of a category."""


def function_of(call: PooledCall) -> PooledNumbers | PooledCategory:
    """The function of a call."""
    if call.function in CATEGORIES:
        return CATEGORIES[call.function]
    return NUMBERS[call.function]


def counted(calls: Iterable[PooledCall], rows: ModelFrame) -> dict[str, dict[Level, int]]:
    """Return how many rows have each level that a function makes, by the text of its call."""
    found: dict[str, dict[Level, int]] = {}
    for call in calls:
        if call.function in CATEGORIES:
            function = CATEGORIES[call.function]
            state = rows.schema.state.get(call.text, {})
            levels = function.levels(call.options, state)
            codes = function.codes(call.argument(rows), call.options, state)
            counts = np.bincount(codes[codes >= 0], minlength=len(levels))
            found[call.text] = dict(zip(levels, counts.tolist(), strict=True))
    return found


def extrapolated(calls: Iterable[PooledCall], rows: ModelFrame) -> list[str]:
    """Return the calls of ``bs`` that some row lies beyond the boundary knots of."""
    return [
        call.text
        for call in calls
        if call.function == "bs" and beyond_boundary(call.argument(rows), call.options)
    ]


def outside(calls: Iterable[PooledCall], rows: ModelFrame) -> Mask:
    """Return which rows, (n,), have a value that no level is for, as those beyond all breaks.

    A function whose state is still to be agreed leaves no row out.
    """
    found = np.zeros(len(rows.frame), dtype=np.bool_)
    for call in calls:
        function = CATEGORIES.get(call.function)
        if function is None:
            continue
        state = rows.schema.state.get(call.text, {})
        if state or function.asking(call.options) is None:
            found |= function.codes(call.argument(rows), call.options, state) < 0
    return found
