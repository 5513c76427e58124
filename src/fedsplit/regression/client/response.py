"""The response of a client's rows: named vectors, and the targets and weights made of them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.categories import level_codes
from fedsplit.regression.client.grouped import Trials, of_counts, whole
from fedsplit.regression.client.plan import Plan, check_rows
from fedsplit.regression.families import FAMILIES


def trials(plan: Plan, frame: pd.DataFrame, where: str) -> Trials:
    """The target and the weight of every row that is used.

    Its ``rows`` and ``groups`` are None where that is every row, and where none is a group.
    """
    w = _weights(plan, frame, where)
    match response(plan, frame, where):
        case {"successes": successes, "failures": failures}:
            return of_counts(successes, failures, w)
        case {"share": share}:
            whole_counts = (share == 0) | (share == 1) | whole(w * share)
            why = f"times the trials in {plan.weights} it must be a whole number"
            target = plan.parsed.target
            check_rows(whole_counts, frame, share, where, target, why)
            return of_counts(w * share, w * (1.0 - share), np.ones_like(w))
        case {"target": b}:
            used = np.flatnonzero(w > 0)
            if len(used) == len(b):
                return Trials(b, w)
            return Trials(b[used], w[used], used)
    raise TypeError("a response that is neither a target nor a count")


def response(plan: Plan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
    """The vectors on the left of the formula, each (n,), by name.

    ``successes`` and ``failures``, or a ``share`` of as many trials as the weights say, or a
    ``target``: a number, or the place of a class.
    """
    formula, family = plan.parsed, FAMILIES[plan.family]
    if formula.grouped is not None:
        counts = formula.counts(frame, plan.schema)
        for name, values in zip(formula.grouped, counts, strict=True):
            why = "a count in cbind(successes, failures) is a whole number from 0 on"
            check_rows(whole(values), frame, values, where, name, why)
        return dict(zip(("successes", "failures"), counts, strict=True))
    if plan.classes:
        column = str(formula.target_column)
        codes = level_codes(column, frame[column], plan.classes)
        return {"target": codes.astype(np.float64)}
    values = formula.response(frame, plan.schema)
    if plan.shares:
        valid = (values >= 0) & (values <= 1)
        check_rows(valid, frame, values, where, formula.target, "a share is between 0 and 1")
        return {"share": values}
    valid = np.isfinite(values) & ~family.invalid(values)
    why = f"for {family.name} it must be {family.target}"
    check_rows(valid, frame, values, where, formula.target, why)
    return {"target": values}


def _weights(plan: Plan, frame: pd.DataFrame, where: str) -> Array:
    if plan.weights is None:
        return np.ones(len(frame))
    w = plan.numbers(plan.weights, frame)
    why = "a weight is finite and not below zero"
    check_rows((w >= 0) & np.isfinite(w), frame, w, where, plan.weights, why)
    return w
