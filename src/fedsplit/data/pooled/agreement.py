"""How clients agree on what a function has to know of all their rows.

Every agreement is a dialogue. It yields a statistic of its column, is sent that of all clients, and
returns what was agreed at the end.
"""

from __future__ import annotations

import numpy as np

from fedsplit.data.pooled.column_statistics import ColumnMoments
from fedsplit.data.pooled.knots import Spread, coarse_grid
from fedsplit.dialogue import Dialogue


def moments() -> Dialogue[tuple[float, float, float]]:
    """Ask for the number of rows, the mean, and the sum of squares about it."""
    n, mean, scatter = yield ColumnMoments()
    return float(n), float(mean), float(scatter)


def mean_and_deviation() -> Dialogue[tuple[float, float, float]]:
    """Ask for the number of rows, the mean, and the standard deviation, which is above zero."""
    n, mean, scatter = yield from moments()
    deviation = float(np.sqrt(scatter / max(n - 1.0, 1.0)))
    check_varies(mean, deviation)
    return n, mean, deviation


def check_varies(mean: float, deviation: float) -> None:
    """Raise ValueError if all values are the same, to the rounding of their mean."""
    if not deviation > 4 * np.spacing(abs(mean)):
        raise ValueError("its column does not vary over the clients")


def spread() -> Dialogue[Spread]:
    """Ask for the mean and the deviation, then for a histogram on a grid given by them."""
    n, mean, deviation = yield from mean_and_deviation()
    grid = coarse_grid(mean, deviation)
    counts = yield grid
    return Spread(grid, counts[0], n)
