"""Exact and inexact FedSplit side by side, as in Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import fedsplit as fs
from fedsplit.paper.curves import draw_curves, floor
from fedsplit.paper.measurements import Measurements
from fedsplit.paper.runs import PlannedRun, algorithm1

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOCAL_STEPS = (1, 5, 10)
"""Gradient steps e of the inexact prox (§4.1, §4.2)."""


def inexact_runs(s: float, alpha: float, rounds: int, suffix: str = "") -> dict[str, PlannedRun]:
    """FedSplit(s) with the exact prox, and with e gradient steps α from the previous iterate."""
    runs = {f"fedsplit-exact{suffix}": PlannedRun(algorithm1(s), rounds)}
    for e in LOCAL_STEPS:
        prox = fs.GradientProx(e, start="iterate", step=alpha)
        runs[f"fedsplit-e{e}{suffix}"] = PlannedRun(algorithm1(s, prox), rounds)
    return runs


def broadcast_runs(s: float, rounds: int) -> dict[str, PlannedRun]:
    """FedSplit(s) with e gradient steps from the broadcast point, which the paper does not have."""
    return {
        f"fedsplit-e{e}-broadcast": PlannedRun(algorithm1(s, fs.GradientProx(e)), rounds)
        for e in LOCAL_STEPS
    }


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
