"""Exact and inexact FedSplit side by side, as in Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from fedsplit import plots
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.paper.curves import floor
from fedsplit.paper.measurements import Measurements
from fedsplit.paper.runs import SolvedProblem
from fedsplit.plots import Columns
from fedsplit.local.gradient import GradientProx

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOCAL_STEPS = (1, 5, 10)
"""Gradient steps e of the inexact prox."""


def curves_of(
    solved: SolvedProblem,
    s: float,
    rounds: int,
    step: float | Literal["paper"],
    exact_cost: float = 1.0,
) -> dict[str, Columns]:
    """Run FedSplit with the exact prox, and with e gradient steps from the previous iterate.

    Parameters
    ----------
    solved : SolvedProblem
    s : float
        The step of the method.
    rounds : int
    step : float or "paper"
        Of the gradient steps.
    exact_cost : float
        Of a round with the exact prox, in gradients.
    """
    tables = {"fedsplit-exact": solved.curve(FedSplitVectors(s), rounds, cost=exact_cost)}
    for e in LOCAL_STEPS:
        solver = GradientProx(e, start="iterate", step=step)
        tables[f"fedsplit-e{e}"] = solved.curve(FedSplitVectors(s, solver), rounds, cost=e + 1)
    return tables


def broadcast_curves(solved: SolvedProblem, s: float, rounds: int) -> dict[str, Columns]:
    """Run FedSplit with e gradient steps from the broadcast point, which the paper does not."""
    tables = {}
    for e in LOCAL_STEPS:
        method = FedSplitVectors(s, GradientProx(e))
        tables[f"fedsplit-e{e}-broadcast"] = solved.curve(method, rounds, cost=e + 1)
    return tables


def floors(measured: Measurements, suffix: str = "") -> list[float]:
    """Return the gap that each inexact run ended at."""
    return [floor(measured.gap(f"fedsplit-e{e}{suffix}")) for e in LOCAL_STEPS]


def draw_both(
    measured: Measurements, name: str, title: str, setting: str = ""
) -> Mapping[str, Figure]:
    """Draw the paper's figure, and ours with the inner solver started at the broadcast point."""
    drawn = {}
    for kind, start, caption in (
        ("", "", f"{title}{setting}"),
        ("-ours", "-broadcast", f"{title}; inner steps from the broadcast point"),
    ):
        inexact = [f"fedsplit-e{e}{start}" for e in LOCAL_STEPS]
        names = ["fedgd-e1", *inexact, "fedsplit-exact"]
        drawn[f"{name}{kind}"] = plots.curves(measured.tables, names, caption)
    return drawn
