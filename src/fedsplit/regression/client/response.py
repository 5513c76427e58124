"""The targets and weights of a client's rows, from the response of the family."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families.response import Trials, check_rows, of_counts, whole


def trials(plan: Plan, frame: pd.DataFrame, where: str) -> Trials:
    """The target and the weight of every row that is used.

    Its ``rows`` and ``groups`` are None where that is every row, and where none is a group.
    """
    w = _weights(plan, frame, where)
    match plan.chosen_family.response(plan, frame, where):
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


def _weights(plan: Plan, frame: pd.DataFrame, where: str) -> Array:
    if plan.weights is None:
        return np.ones(len(frame))
    w = plan.numbers(plan.weights, frame)
    why = "a weight is finite and not below zero"
    check_rows((w >= 0) & np.isfinite(w), frame, w, where, plan.weights, why)
    return w
