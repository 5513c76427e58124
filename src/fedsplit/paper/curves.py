"""What a curve of gaps F(x) - F* shows, one gap at the start and one after each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedsplit import plots
from fedsplit.arrays import Array
from fedsplit.paper.measurements import Measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rounds_to(gaps: Array, gap: float) -> float:
    """Return the first round after which the gap was at most this, NaN if there was none."""
    below = np.flatnonzero(gaps <= gap)
    if not below.size:
        return float("nan")
    return float(below[0])


def floor(gaps: Array) -> float:
    """Return the gap that a run ended at: the median of its last fifth."""
    return float(np.median(gaps[-max(1, len(gaps) // 5) :]))


def linear_fit(gaps: Array, low: float) -> tuple[float, float]:
    """Fit a line to log(gap) while the gap is above ``low``, less the first sixth of these rounds.

    Returns
    -------
    factor : float
        By which the gap falls in each round.
    R2 : float
        The share of the variance of log(gap) that the line explains.
    """
    above = len(gaps)
    if (gaps <= low).any():
        above = int(np.argmax(gaps <= low))
    t = np.arange(above // 6, above)
    y = np.log(gaps[t])
    slope, offset = np.polyfit(t, y, 1)
    residual = y - (slope * t + offset)
    return float(np.exp(slope)), float(1 - residual @ residual / np.sum((y - y.mean()) ** 2))


def draw_curves(
    measured: Measurements, figures: Mapping[str, tuple[str, Sequence[str]]]
) -> dict[str, Figure]:
    """Draw figures of gaps against rounds: each has a title and the names of its curves."""
    return {
        file: plots.curves(measured.tables, names, title)
        for file, (title, names) in figures.items()
    }
