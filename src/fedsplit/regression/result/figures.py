"""The figures of a fit's page: coefficients, convergence, clients, attendance, calibration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.formula import Formula
from fedsplit.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, render
from fedsplit.regression.client.design import Calibration

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model

WIDTH, ROW = 4.9, 0.23
"""Of a figure, and of one line in it, in inches: so narrow that a phone shows it at its size."""

SPAN = 30.0
"""Coefficients share an axis where none is more than so many times as large as another."""

MOST_CLIENTS = 40
"""So many clients are drawn, those that move the answer most."""


def svg(figure: Figure) -> bytes:
    """A figure with its text as text, so that the reader's fonts show letters that matplotlib's may lack."""
    with mpl.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        return render(figure, "svg")


def label(name: str, longest: int = 26) -> str:
    """A name that fits beside an axis: one line, without its middle where it is long, and never mathematics."""
    plain = "".join(letter if letter.isprintable() else " " for letter in name)
    if len(plain) > longest:
        plain = f"{plain[: longest // 2]}…{plain[-(longest // 2 - 1) :]}"
    return plain.replace("$", r"\$")


def coefficients(model: Model, interval: pd.DataFrame | None) -> Figure:
    """Each coefficient and its interval, the robust one as a thin line; those of like size share an axis.

    The intercept is left out: it is of another size, and seldom of interest.
    """
    d = len(model.names)
    classes = max(1, model.family.count_classes(model.plan.classes) - 1)
    terms = d // classes
    shown = np.arange(d)
    if Formula(model.formula).intercept and terms > 1:
        shown = shown[shown % terms > 0]
    ends = np.column_stack([model.coef, model.coef]) if interval is None else interval.to_numpy()
    robust = ends if model.robust_ is None else model.conf_int(robust=True).to_numpy()
    groups = _alike(_reach(np.column_stack([ends, robust])[shown]), shown)
    figure = _figure(WIDTH, ROW * len(shown) + 0.7 * len(groups))
    panels = figure.subplots(
        len(groups), squeeze=False, height_ratios=[len(group) + 1 for group in groups]
    )[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        _plain(axes, "coefficient" if interval is None else "coefficient and 95 % interval")
        axes.axvline(0, color=GREY, linewidth=1)
        for y, i in enumerate(group):
            low, high = ends[i]
            colour = (BLUE, RED, GREEN, PINK, ORANGE, BLACK)[i // terms % 6]
            axes.plot(robust[i], [y, y], color=colour, linewidth=0.7)
            axes.plot([low, high], [y, y], color=colour, linewidth=2)
            axes.plot(
                model.coef[i],
                y,
                "o",
                color=colour,
                markerfacecolor=colour if low * high > 0 else "white",
            )
            if y and i // terms != group[y - 1] // terms:
                axes.axhline(y - 0.5, color=GREY, linewidth=0.5)
        axes.set_yticks(range(len(group)), [label(model.names[i]) for i in group])
        axes.set_ylim(len(group) - 0.4, -0.6)
    return figure


def convergence(model: Model) -> Figure:
    """The objective above its lowest on a log scale, round by round, and what was proved.

    Where it was not measured, because the clients are elsewhere, the move of each round in its place.
    """
    rounds, values, name = _course(model)
    figure = _figure(WIDTH, 3.4)
    axes = figure.subplots()
    _plain(axes, "round", "y")
    axes.set_ylabel("F(x) above the lowest" if name == "objective" else "‖z⁺ - z‖", fontsize=9)
    axes.set(yscale="log", xlim=(0, len(model.trace)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:.0e}")
    for kind, text, colour in (
        ("setup", "set-up round", ORANGE),
        ("certificate", "certificate round", GREEN),
    ):
        for i, t in enumerate(np.flatnonzero(model.trace.kind == kind).tolist()):
            axes.axvspan(
                t, t + 1, color=colour, alpha=0.25, linewidth=0, label=text if i == 0 else None
            )
    axes.plot(rounds, values, color=BLUE, marker="o", markersize=3.5, linewidth=1.4, label=name)
    proved = [
        (t, proof)
        for t, proof in model.proofs
        if proof is not None and np.isfinite(proof) and proof > 0
    ]
    if proved:
        axes.plot(
            *zip(*proved, strict=True),
            "D",
            color=RED,
            markersize=6,
            clip_on=False,
            label="proved gap",
        )
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8)
    return figure


def _course(model: Model) -> tuple[NDArray[np.intp], Array, str]:
    """The rounds to draw, a value for each, and what it is; differences that are rounding are left out."""
    objective = model.trace.objective.astype(np.float64)
    known = objective[np.isfinite(objective)]
    if known.size < 2:
        moves = model.trace.residual.astype(np.float64)
        drawn = np.flatnonzero(np.isfinite(moves) & (moves > 0))
        return drawn + 1, moves[drawn], "move"
    gap = objective - known.min()
    rounding = 4 * np.finfo(np.float64).eps * np.abs(known).max()
    drawn = np.flatnonzero(np.isfinite(gap) & (gap > rounding))
    return drawn, gap[drawn], "objective"


def attendance(table: pd.DataFrame, seconds: Mapping[str, Array]) -> Figure:
    """By client, from the quickest to the slowest answer on a log scale, and the median; the slowest first."""
    order = table["median"].sort_values(ascending=False).index[:MOST_CLIENTS]
    figure = _figure(WIDTH, ROW * len(order) + 0.9)
    axes = figure.subplots()
    _plain(axes, "seconds to an answer")
    for y, name in enumerate(order):
        told = seconds.get(name, np.zeros(0))
        told = told[np.isfinite(told) & (told > 0)]
        if told.size:
            axes.plot([told.min(), told.max()], [y, y], color=SKY, linewidth=3)
            axes.plot(np.median(told), y, "o", color=BLUE)
    axes.set(xscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(order)), [label(str(name), 16) for name in order])
    axes.set_ylim(len(order) - 0.4, -0.6)
    return figure


def clients(table: pd.DataFrame) -> Figure:
    """Each client's share of rows and of information, and how far the answer moves without it; most first."""
    shift = table["shift"].to_numpy(dtype=np.float64)
    order = np.argsort(-np.nan_to_num(np.abs(shift)), kind="stable")[:MOST_CLIENTS]
    told, y = table.iloc[order], np.arange(len(order))
    figure = _figure(WIDTH, ROW * len(order) + 1.2)
    left, right = figure.subplots(1, 2, sharey=True)
    _plain(left, "share, %")
    share = 100 * told["leverage"].to_numpy(dtype=np.float64)
    left.barh(y, share, color=SKY, height=0.6, label="information")
    rows = 100 * told["n"].to_numpy(dtype=np.float64) / max(1, table["n"].sum())
    left.plot(rows, y, "|", color=BLACK, markersize=9, markeredgewidth=1.6, label="rows")
    left.set_yticks(y, [label(str(name), 16) for name in told.index])
    left.set_ylim(len(order) - 0.4, -0.6)
    _plain(right, "move without it, SE")
    right.axvline(0, color=GREY, linewidth=1)
    right.hlines(y, 0, shift[order], color=RED, linewidth=1.6)
    right.plot(shift[order], y, "o", color=RED, markersize=5, label="coefficient that moves most")
    right.tick_params(labelleft=False)
    names = right.secondary_yaxis("right")
    names.set_yticks(y, [label(name, 16) for name in told["coefficient"]])
    names.tick_params(length=0, labelsize=8)
    names.spines["right"].set_visible(False)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8)
    return figure


def calibration(told: Calibration) -> Figure:
    """The observed share in each bin of predicted probabilities, with Wilson's intervals."""
    rows = told.rows[told.rows > 0]
    predicted, observed = (part[told.rows > 0] / rows for part in (told.predicted, told.observed))
    low, high = wilson(observed, rows)
    figure = _figure(3.8, 3.8)
    axes = figure.subplots()
    _plain(axes, "mean predicted probability", "both")
    top = min(1.0, 1.1 * max(high.max(), predicted.max()))
    axes.plot([0, top], [0, top], color=GREY, linewidth=1)
    axes.vlines(predicted, low, high, color=BLUE, linewidth=1.6)
    axes.scatter(
        predicted,
        observed,
        20 + 150 * rows / rows.max(),
        color=BLUE,
        alpha=0.6,
        linewidth=0,
        clip_on=False,
    )
    axes.set_ylabel("observed share", fontsize=9)
    axes.set(xlim=(0, top), ylim=(0, top), aspect="equal")
    return figure


def wilson(share: Array, rows: Array, z: float = 1.96) -> tuple[Array, Array]:
    """Wilson's interval of a share."""
    centre = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * np.sqrt(share * (1 - share) / rows + np.square(z / (2 * rows)))
    return centre - half, centre + half


def _reach(ends: Array) -> Array:
    """How far from zero each interval reaches; where that is zero or unknown, as far as the nearest one."""
    reach = np.abs(ends).max(axis=1)
    known = np.isfinite(reach) & (reach > 0)
    return np.where(known, reach, reach[known].min() if known.any() else 1.0)


def _alike(reach: Array, which: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """``which`` in groups, largest reach first, cut at the widest gaps until each is within SPAN."""
    order = np.argsort(-reach, kind="stable")
    sizes = reach[order]
    if sizes[0] <= SPAN * sizes[-1]:
        return [which]
    cut = int(np.argmax(sizes[:-1] / sizes[1:])) + 1
    parts = (np.sort(order[:cut]), np.sort(order[cut:]))
    return [group for part in parts for group in _alike(reach[part], which[part])]


def _figure(width: float, height: float) -> Figure:
    """Transparent, for light and dark pages."""
    return Figure((width, height), layout="constrained", facecolor="none")


def _plain(axes: Axes, xlabel: str, grid: Literal["x", "y", "both"] = "x") -> None:
    axes.set_facecolor("none")
    axes.set_xlabel(xlabel, fontsize=9)
    axes.grid(axis=grid, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
