"""The limit of a fit in which some coefficients grow without bound.

Along a direction of recession the losses of some rows fall to their infimum, and those of the
others stay the same. In the limit the former say nothing, and the fit is that of the others. What
these do not determine has no estimate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.regression.client.design import Recession
from fedsplit.regression.client.findings import in_lines
from fedsplit.regression.server.agreement import Agreement
from fedsplit.regression.server.federation import FederatedRows
from fedsplit.regression.server.identifiability import Unbounded
from fedsplit.regression.server.task import Task

NEXT_TO = 1e-8
"""A direction so near to those that the other rows leave open is one of them, but for rounding."""

PART = 1e-6
"""A smaller part of a direction is rounding."""


def without_receding(agreement: Agreement, task: Task, error: Unbounded) -> Agreement:
    """The clients that have rows at rest along a direction, agreed on these rows alone."""
    assert error.direction is not None
    recession, rest = task.recession(error.direction)
    if not rest:
        raise separable(error)
    old = agreement.rows
    recessions = (*old.recessions, recession)
    rows = FederatedRows(old.members.only(rest), agreement.plan, task.settings.strict, recessions)
    coded = rows.code()
    findings = [finding for each in coded for finding in each.warnings]
    return replace(
        agreement,
        rows=rows,
        moments=[each.moments for each in coded],
        warnings=list(dict.fromkeys([*agreement.warnings, *in_lines(findings)])),
    )


def separable(error: Unbounded) -> InputError:
    """The error if the rows at rest say nothing either."""
    return InputError(str(error).replace("quasi-separable", "separable"))


def not_estimable(first: Task, last: Task) -> dict[str, str]:
    """The coefficients that have no estimate, with "+inf" or "-inf".

    Parameters
    ----------
    first : Task
        Of all rows.
    last : Task
        Of the rows that are at rest along all directions of recession.

    Raises
    ------
    InputError
        If the rows at rest determine the coefficients along one of the directions: that they do
        not is part of the proof that it is one.
    """
    nulls = [
        _in_units(last, i, null) for i, null in last.coordinates.nulls.items() if first.kept[i]
    ]
    N = np.array(nulls).reshape(-1, len(last.names)).T
    ways = [_along(recession, N, last.pool.intercept) for recession in last.rows.recessions]
    signs = {}
    # in units in which columns have about the same size
    parts = np.abs(N) * first.pool.sizes[:, None]
    reach = (parts / parts.max(axis=0)).max(axis=1)
    for j in np.flatnonzero(reach > PART).tolist():
        sizes = [float(way[j] * first.pool.sizes[j]) for way in ways]
        # the first direction goes furthest
        sign = next((size for size in sizes if abs(size) > PART), sum(sizes))
        signs[last.names[j]] = "+inf"
        if sign < 0:
            signs[last.names[j]] = "-inf"
    return signs


def _along(recession: Recession, N: Array, intercept: int | None) -> Array:
    """A direction of recession in coefficients of the columns, (p,), as a combination of N, (p, k).

    Raises InputError unless it is one, in the coordinates in which it was found.
    """
    centre, scale, whiten, direction = map(np.array, recession)
    scaled = N * scale[:, None]
    if intercept is not None:
        scaled[intercept] += centre @ N
    coordinates = np.linalg.lstsq(whiten, scaled, rcond=None)[0]
    weights = np.linalg.lstsq(coordinates, direction, rcond=None)[0]
    left = np.linalg.norm(direction - coordinates @ weights)
    if left > NEXT_TO * np.linalg.norm(direction):
        raise InputError(
            "the data are quasi-separable, or nearly: add a ridge, or leave a column out"
        )
    way: Array = N @ weights
    return way / np.linalg.norm(direction)


def _in_units(task: Task, i: int, null: Array) -> Array:
    """A combination of the scaled columns that is zero, as one of the columns, (p,)."""
    if null.any():
        found: Array = null / task.scaling.scale
        if task.pool.intercept is not None:
            found[task.pool.intercept] -= found @ task.scaling.centre
        return found
    only = np.zeros(len(task.names))
    only[i] = 1.0
    if task.pool.intercept is not None:
        only[task.pool.intercept] = -task.pool.mean[i]
    return only
