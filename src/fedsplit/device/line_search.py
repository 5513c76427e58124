"""A backtracking line search of every client at once, over the array API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fedsplit.device.backend import DeviceArray
from fedsplit.device.rows import DeviceRows

HALVINGS = 40
"""After so many, a step is below rounding."""

SHARE = 1e-4
"""The share of the linear decrease that a step has to bring."""

Point = TypeVar("Point")


def searched(
    rows: DeviceRows,
    value: DeviceArray,
    slope: DeviceArray,
    ahead: Callable[[DeviceArray], tuple[Point, DeviceArray]],
) -> tuple[Point, DeviceArray, DeviceArray]:
    """The first of the steps 1, ½, ¼, … by which a function falls enough, for every client.

    Parameters
    ----------
    rows : DeviceRows
    value, slope : (m,) arrays
        The function at the start, and its derivative along the step.
    ahead : callable
        From the lengths of the steps, (m, 1), the points there, and the function, (m,).

    Returns
    -------
    points : what ``ahead`` returns
    values : (m,) array
    refused : (m,) mask
        The clients to whom no step is short enough, and who have to stay.
    """
    xp = rows.xp
    slack = 8.0 * float(xp.finfo(rows.A.dtype).eps) * xp.abs(value)
    t = xp.ones_like(value)
    for _ in range(HALVINGS):
        points, found = ahead(rows.cast(t)[:, None])
        refused = ~(found <= value + SHARE * t * slope + slack)
        if not bool(xp.any(refused)):
            break
        t = xp.where(refused, 0.5 * t, t)
    return points, found, refused
