"""The targets and weights of a client's rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.categories import level_codes
from fedsplit.data.formula.formula import Formula
from fedsplit.regression.client.grouped import Trials, of_counts, whole
from fedsplit.regression.client.plan import Plan, check_rows
from fedsplit.regression.families import FAMILIES


def observed(client: str, plan: Plan, formula: Formula, frame: pd.DataFrame) -> Trials:
    """The target and the weight of every row that is used.

    Its ``rows`` and ``groups`` are None where that is every row, and where none is a group.
    """
    w = np.ones(len(frame))
    if plan.weights is not None:
        w = frame[plan.weights].to_numpy(dtype=np.float64)
        valid = (w >= 0) & np.isfinite(w)
        why = "a weight is finite and not below zero"
        check_rows(valid, frame, w, f"client {client}", plan.weights, why)
    if formula.grouped is not None:
        return of_counts(*_counts(client, plan, formula, frame), w)
    if plan.shares:
        share = _shares(client, plan, formula, frame, w)
        return of_counts(w * share, w * (1.0 - share), np.ones_like(w))
    b = _target(client, plan, formula, frame)
    used = np.flatnonzero(w > 0)
    if len(used) == len(b):
        return Trials(b, w)
    return Trials(b[used], w[used], used)


def _counts(client: str, plan: Plan, formula: Formula, frame: pd.DataFrame) -> tuple[Array, Array]:
    """The successes and failures of every row, (n,)."""
    counts = formula.counts(frame, plan.schema)
    for name, values in zip(formula.grouped or (), counts, strict=True):
        why = "a count in cbind(successes, failures) is a whole number from 0 on"
        check_rows(whole(values), frame, values, f"client {client}", name, why)
    return counts


def _shares(client: str, plan: Plan, formula: Formula, frame: pd.DataFrame, w: Array) -> Array:
    """The share of successes of every row, (n,), whose weight is the number of trials."""
    where = f"client {client}"
    share = formula.response(frame, plan.schema)
    valid = (share >= 0) & (share <= 1)
    check_rows(valid, frame, share, where, formula.target, "a share is between 0 and 1")
    valid = (share == 0) | (share == 1) | whole(w * share)
    why = f"times the trials in {plan.weights} it must be a whole number"
    check_rows(valid, frame, share, where, formula.target, why)
    return share


def _target(client: str, plan: Plan, formula: Formula, frame: pd.DataFrame) -> Array:
    """The target as numbers, (n,)."""
    if plan.classes:
        column = str(formula.target_column)
        return level_codes(column, frame[column], plan.classes).astype(np.float64)
    family = FAMILIES[plan.family]
    b = formula.response(frame, plan.schema)
    valid = np.isfinite(b) & ~family.invalid(b)
    why = f"for {family.name} it must be {family.target}"
    check_rows(valid, frame, b, f"client {client}", formula.target, why)
    return b
