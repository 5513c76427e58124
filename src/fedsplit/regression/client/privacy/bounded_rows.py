"""The rows of a client that fit what a study declares, each of bounded length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from fedsplit.arrays import Array, Mask
from fedsplit.data.categories import level_codes
from fedsplit.data.formula.formula import Formula
from fedsplit.data.tables import Source
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.privacy.columns import DeclaredColumns
from fedsplit.regression.client.privacy.privacy import Privacy


class BoundedRows(NamedTuple):
    """Rows a with ‖a‖ ≤ R.

    Attributes
    ----------
    A : (n, p) array
        In declared units, scaled down where they were longer.
    b, w, o : (n,) arrays
        Target, weights and offsets.
    """

    A: Array
    b: Array
    w: Array
    o: Array


def bounded_rows(source: Source, plan: Plan, privacy: Privacy, where: str) -> BoundedRows:
    """Read the rows that can be used, in units of the declared columns.

    A row that cannot be used, for a value that is missing or not of its type, a level that is not
    declared, or a target that the family does not allow, is left out without a word: a refusal
    would tell of that row.
    """
    columns = list(dict.fromkeys([*plan.columns, *plan.others]))
    frame = plan.read_leniently(source, columns, where)
    frame = frame[~frame.isna().any(axis=1)]
    formula = Formula(plan.formula)
    levels = dict(plan.levels)
    if plan.classes:
        levels[str(formula.target_column)] = plan.classes
    for column, known in levels.items():
        frame = frame[frame[column].isin(list(known))]
    design = formula.compile(plan.schema)
    with np.errstate(all="ignore"):
        frame = frame[plan.has_values(frame)]  # a row outside the breaks of cut() has none
    with np.errstate(all="ignore"):
        A, o = formula.evaluate(design, frame)
        if plan.offset is not None:
            o = o + plan.numbers(plan.offset, frame)
        if plan.exposure is not None:
            o = o + np.log(plan.numbers(plan.exposure, frame))
        b, w = _target(plan, formula, frame), _weights(plan, frame)
    used = np.isfinite(A).all(axis=1) & np.isfinite(o) & _valid(plan, b) & np.isfinite(w) & (w > 0)
    declared = DeclaredColumns.of(design.names, privacy.ranges or {}, formula.intercept)
    return BoundedRows(shortened(declared.scaled(A[used]), privacy.clip), b[used], w[used], o[used])


def shortened(A: Array, clip: float) -> Array:
    """Rows scaled down to length R where they are longer, (n, p)."""
    largest = np.abs(A).max(axis=1, initial=0.0, keepdims=True)
    unit = np.where(largest > 0, largest, 1.0)
    # in units of the largest number: squares overflow, and factors of tiny size have few digits
    scaled = A / unit
    most = clip / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
    rows: Array = np.where(unit > most, most * scaled, A)
    return rows


def _target(plan: Plan, formula: Formula, frame: pd.DataFrame) -> Array:
    if plan.classes:
        column = str(formula.target_column)
        return level_codes(column, frame[column], plan.classes).astype(np.float64)
    return formula.response(frame, plan.schema)


def _weights(plan: Plan, frame: pd.DataFrame) -> Array:
    if plan.weights is None:
        return np.ones(len(frame))
    return plan.numbers(plan.weights, frame)


def _valid(plan: Plan, b: Array) -> Mask:
    finite = np.isfinite(b)
    valid: Mask = finite & ~plan.chosen_family.invalid(np.where(finite, b, 1.0))
    return valid
