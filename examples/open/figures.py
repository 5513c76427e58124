"""Curves and bars on a log scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

# Okabe and Ito's colours, which colour-blind readers can tell apart, with grey for their yellow
COLOURS = (
    *("#000000", "#56B4E9", "#009E73", "#E69F00"),
    *("#808080", "#CC79A7", "#D55E00", "#0072B2"),
)
MARKERS = "v^<>DPh*"


def lines(
    series: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
    title: str,
    xlabel: str,
    ylabel: str = "optimality gap  F(x) - F*",
    logarithmic: bool = False,
    lowest: float = 1e-12,
) -> Figure:
    """Draw several curves, each against numbers of its own.

    Parameters
    ----------
    series : mapping of str to pair of arrays
        x and y of each curve, by its label. A label that starts with "bound" or "closed form" is
        drawn dashed, in the colour of the curve that comes after the comma.
    title, xlabel, ylabel : str
    logarithmic : bool
        Whether x is on a log scale too.
    lowest : float
        What is below is rounding of F and not drawn.
    """
    figure, axes = _axes(title, ylabel)
    axes.set_xlabel(xlabel)
    if logarithmic:
        axes.set_xscale("log")
    computed = ("bound", "closed form")
    measured = [name for name in series if not name.startswith(computed)]
    for name, (x, y) in series.items():
        dashed = name.startswith(computed)
        i = measured.index(name.partition(", ")[2] if dashed else name)
        style: dict[str, Any] = {"linestyle": "--", "linewidth": 1.0}
        if not dashed:
            # the markers of curves that coincide stay apart
            spacing = max(1, (len(x) - 1) // 8)
            places = int(i / len(measured) * spacing), spacing
            style = {"linewidth": 1.6, "marker": MARKERS[i], "markersize": 5, "markevery": places}
        shown = y > lowest
        axes.plot(x[shown], y[shown], color=COLOURS[i], label=name, **style)
    return _with_legend(figure)


def bars(
    heights: Mapping[str, Sequence[float]], groups: Sequence[str], title: str, ylabel: str
) -> Figure:
    """Draw groups of bars; one that is infinite is left out.

    Parameters
    ----------
    heights : mapping of str to sequence of float
        By label, the height in each group.
    groups : sequence of str
        Their names.
    title, ylabel : str
    """
    figure, axes = _axes(title, ylabel)
    width = 0.85 / len(heights)
    places = np.arange(len(groups))
    for i, (label, own) in enumerate(heights.items()):
        shown = np.where(np.isfinite(own), own, np.nan)
        shift = (i - (len(heights) - 1) / 2) * width
        axes.bar(places + shift, shown, width, color=COLOURS[i], label=label)
    axes.set_xticks(places, groups, fontsize=9)
    axes.grid(visible=False, axis="x")
    return _with_legend(figure)


def _axes(title: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set(ylabel=ylabel, yscale="log")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _with_legend(figure: Figure) -> Figure:
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure
