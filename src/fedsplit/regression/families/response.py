"""The response of a client's rows: the vectors on the left of a formula, by name.

A row of s successes and f failures is fitted as two rows, of each class, with weights s and f:
coefficients, standard errors and separation follow as for single trials. What R counts and measures
by group, rather than by trial, is kept in ``Groups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from fedsplit.arrays import Array, Mask
from fedsplit.errors import RowError

if TYPE_CHECKING:  # a plan has a family, and a family reads the rows of a plan
    import pandas as pd

    from fedsplit.regression.client.plan import BasicPlan


class Groups(NamedTuple):
    """What is counted by group."""

    rows: int  # groups with at least one trial
    floor: float  # the loss of the model that predicts the share of each group
    # Σ log C(s + f, s), which the log-likelihood of trials in any order has in addition
    log_choices: float


class Targets(NamedTuple):
    """A target and its weights; those of grouped rows as rows of one class each."""

    b: Array  # (n,)
    w: Array
    # (n,): which row of the file each one comes from; None where it is its own
    rows: NDArray[np.intp] | None = None
    groups: Groups | None = None


@np.errstate(invalid="ignore")  # of infinite ones
def whole(counts: Array) -> Mask:
    """Which are whole numbers from 0 on, (n,), by R's tolerance."""
    valid: Mask = np.isfinite(counts) & (counts >= 0) & (np.abs(counts - np.rint(counts)) <= 1e-3)
    return valid


def of_counts(successes: Array, failures: Array, weights: Array) -> Targets:
    """Split k groups into rows of one class; each counts by its weight, one of 0 is left out."""
    trials = successes + failures
    used = (trials > 0) & (weights > 0)
    # two rows for each group, in the order of the groups
    w = np.column_stack([weights * successes, weights * failures]).ravel()
    b = np.tile([1.0, 0.0], len(trials))
    rows = np.repeat(np.arange(len(trials)), 2)
    kept = w > 0
    s, f, m, v = (each[used] for each in (successes, failures, trials, weights))
    floor = float(v @ -(xlogy(s, s / m) + xlogy(f, f / m)))
    choices = float(v @ (gammaln(m + 1.0) - gammaln(s + 1.0) - gammaln(f + 1.0)))
    groups = Groups(int(used.sum()), floor, choices)
    return Targets(b[kept], w[kept], rows[kept], groups)


def pearson_parts(rows: NDArray[np.intp], b: Array, w: Array, mu: Array) -> Array:
    """Pearson's (s - mμ)²/(mμ(1 - μ)) of groups of m trials, (n,), at the first row of each.

    ``rows`` says which group each row is of: the one or two rows of a group come one after the
    other. They have a class, a number of trials and a predicted probability.
    """
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    trials, residuals = (np.add.reduceat(each, first) for each in (w, w * (b - mu)))
    parts: Array = np.zeros_like(mu)
    parts[first] = np.square(residuals) / (trials * mu[first] * (1.0 - mu[first]))
    return parts


def numbers(plan: BasicPlan, frame: pd.DataFrame) -> Array:
    """The target as numbers, (n,)."""
    return plan.parsed.response(frame, plan.schema)


def codes(plan: BasicPlan, frame: pd.DataFrame) -> Array:
    """The place of each row's class among those of the plan, (n,)."""
    from fedsplit.data.texts import level_codes  # pandas takes a second to import

    column = str(plan.parsed.target_column)
    return level_codes(column, frame[column], plan.classes).astype(np.float64)


def counts(plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
    """The ``successes`` and ``failures`` of a target ``cbind(successes, failures)``."""
    formula = plan.parsed
    found = formula.pair(frame, plan.schema)
    for name, values in zip(formula.grouped or (), found, strict=True):
        why = "a count in cbind(successes, failures) is a whole number from 0 on"
        check_rows(whole(values), frame, values, where, name, why)
    return dict(zip(("successes", "failures"), found, strict=True))


def check_rows(
    valid: Mask, frame: pd.DataFrame, values: Array, where: str, column: str, why: str
) -> None:
    """Raise RowError at the first of the values, (n,), that is not valid."""
    if not valid.all():
        first = int(np.argmin(valid))
        raise RowError(
            f"{where}, row {frame.index[first] + 1}: {column} is {values[first]:g}; {why}",
            f"{where}: {column} has {int((~valid).sum())} values that cannot be used; {why} "
            "(its own log says where)",
        )
