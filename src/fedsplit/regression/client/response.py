"""The response of a client's rows: named vectors, and the targets and weights made of them.

A row of s successes and f failures is fitted as two rows, of each class, with weights s and f:
coefficients, standard errors and separation follow as for single trials. What R counts and measures
by group, rather than by trial, is in ``Groups``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from fedsplit.arrays import Array, Mask
from fedsplit.data.categories import level_codes
from fedsplit.regression.client.plan import Plan, check_rows
from fedsplit.regression.families import FAMILIES

WHOLE = 1e-3
"""The tolerance of R for a count that is not a whole number."""


class Groups(NamedTuple):
    """What is counted by group.

    Attributes
    ----------
    rows : int
        Groups with at least one trial.
    floor : float
        The loss of the model that predicts the share of each group.
    log_choices : float
        Σ log C(s + f, s), which the log-likelihood of trials in any order has in addition.
    """

    rows: int
    floor: float
    log_choices: float


class Trials(NamedTuple):
    """A target and its weights; those of grouped rows as rows of one class each.

    Attributes
    ----------
    b, w : (n,) arrays
        Target and weight.
    rows : (n,) array of int or None
        Which row of the file each one comes from; None where it is its own.
    groups : Groups or None
    """

    b: Array
    w: Array
    rows: NDArray[np.intp] | None = None
    groups: Groups | None = None


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


def whole(counts: Array) -> Mask:
    """Which are whole numbers from 0 on, (n,)."""
    valid: Mask = np.isfinite(counts) & (counts >= 0) & (np.abs(counts - np.rint(counts)) <= WHOLE)
    return valid


def of_counts(successes: Array, failures: Array, weights: Array) -> Trials:
    """Split groups into rows of one class.

    Parameters
    ----------
    successes, failures : (k,) arrays
    weights : (k,) array
        How often each group counts; a group of weight 0 is left out.
    """
    total = successes + failures
    used = (total > 0) & (weights > 0)
    # two rows for each group, in the order of the groups
    w = np.column_stack([weights * successes, weights * failures]).ravel()
    b = np.tile([1.0, 0.0], len(total))
    rows = np.repeat(np.arange(len(total)), 2)
    positive = w > 0
    s, f, m, v = (each[used] for each in (successes, failures, total, weights))
    floor = float(v @ -(xlogy(s, s / m) + xlogy(f, f / m)))
    choices = float(v @ (gammaln(m + 1.0) - gammaln(s + 1.0) - gammaln(f + 1.0)))
    groups = Groups(int(used.sum()), floor, choices)
    return Trials(b[positive], w[positive], rows[positive], groups)
