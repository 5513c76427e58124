"""Curves of gaps F(x) - F*, one gap at the start and one after each round, and what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import fedsplit as fs
from fedsplit import plots
from fedsplit.arrays import Array
from fedsplit.paper.experiment import Measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOCAL_STEPS = (1, 5, 10)
"""Gradient steps e of the inexact prox in Figures 2 and 3 (§4.1, §4.2)."""


def rounds_to(gaps: Array, gap: float) -> float:
    """Return the first round after which the gap was at most this, NaN if there was none."""
    below = np.flatnonzero(gaps <= gap)
    return float(below[0]) if below.size else float("nan")


def floor(gaps: Array) -> float:
    """Return the gap that a run ended at: the median of its last fifth."""
    return float(np.median(gaps[-max(1, len(gaps) // 5) :]))


def linear_fit(gaps: Array, low: float) -> tuple[float, float]:
    """Fit a line to log(gap) while the gap is above ``low``, less the first sixth of these rounds.

    Returns the factor by which the gap falls in each round, and the line's R².
    """
    above = int(np.argmax(gaps <= low)) if (gaps <= low).any() else len(gaps)
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


def inexact_methods(s: float, alpha: float, suffix: str = "") -> dict[str, fs.FedSplit]:
    """FedSplit(s) with the exact prox, and with e gradient steps α from the previous iterate."""
    inexact = {
        f"fedsplit-e{e}{suffix}": fs.FedSplit(s, fs.GradientProx(e, start="iterate", step=alpha))
        for e in LOCAL_STEPS
    }
    return {f"fedsplit-exact{suffix}": fs.FedSplit(s), **inexact}


def broadcast_methods(s: float) -> dict[str, fs.FedSplit]:
    """FedSplit(s) with e gradient steps from the broadcast point, which the paper does not have."""
    return {f"fedsplit-e{e}-broadcast": fs.FedSplit(s, fs.GradientProx(e)) for e in LOCAL_STEPS}


def floors(measured: Measurements, suffix: str = "") -> list[float]:
    """Return the gap that each inexact run ended at."""
    return [floor(measured.gap(f"fedsplit-e{e}{suffix}")) for e in LOCAL_STEPS]


def draw_both(
    measured: Measurements, name: str, title: str, setting: str = ""
) -> Mapping[str, Figure]:
    """Draw the paper's figure, and ours with the inner solver started at the broadcast point."""
    paper = ["fedgd-e1", *(f"fedsplit-e{e}" for e in LOCAL_STEPS), "fedsplit-exact"]
    ours = ["fedgd-e1", *(f"fedsplit-e{e}-broadcast" for e in LOCAL_STEPS), "fedsplit-exact"]
    figures = {
        name: (f"{title}{setting}", paper),
        f"{name}-ours": (f"{title}; inner steps from the broadcast point", ours),
    }
    return draw_curves(measured, figures)
