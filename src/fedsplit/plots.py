"""Figures: one colour and marker for each method through all of them, readable in print and by colour-blind readers."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.errors import InputError

FORMATS = ("png", "svg", "pdf")
Columns = Mapping[str, NDArray[Any]]

BLACK, ORANGE, SKY, GREEN, GREY, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#808080", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
"""Okabe and Ito's palette, which colour-blind readers can tell apart; grey for its yellow, too pale on white paper."""


class Style(NamedTuple):
    """How one method's curve looks, everywhere."""

    label: str
    colour: str
    marker: str


STYLES: dict[str, Style] = {
    "fedgd-e1": Style("FedGD, e = 1", RED, "s"),
    "fedgd-e10": Style("FedGD, e = 10", ORANGE, "D"),
    "fedgd-e100": Style("FedGD, e = 100", GREY, "P"),
    "fedprox": Style("FedProx", PINK, "X"),
    "fedsplit": Style("FedSplit", BLUE, "o"),
    "fedsplit-plain": Style("FedSplit, plain", SKY, "^"),
    "fedsplit-steps5": Style("FedSplit, 5 local steps", GREEN, "<"),
    "fedsplit-exact": Style("FedSplit, exact", BLUE, "o"),
    "fedsplit-e1": Style("FedSplit, e = 1", BLACK, "v"),
    "fedsplit-e5": Style("FedSplit, e = 5", SKY, "^"),
    "fedsplit-e10": Style("FedSplit, e = 10", GREEN, "<"),
    "fedsplit-e1-broadcast": Style("FedSplit, e = 1, from x", BLACK, "v"),
    "fedsplit-e5-broadcast": Style("FedSplit, e = 5, from x", SKY, "^"),
    "fedsplit-e10-broadcast": Style("FedSplit, e = 10, from x", GREEN, "<"),
    "fedsplit-e100-broadcast": Style("FedSplit, e = 100, from x", BLACK, ">"),
}

OTHERS = [
    ("v", BLACK),
    ("^", SKY),
    ("<", GREEN),
    (">", ORANGE),
    ("D", GREY),
    ("P", PINK),
    ("h", RED),
    ("*", BLUE),
]
"""For methods without a style of their own."""

LOWEST = 1e-12
"""Gaps below this are rounding of F, and not drawn."""


def style_of(name: str, position: int) -> Style:
    """A method's own style, or one by its position."""
    if name in STYLES:
        return STYLES[name]
    marker, colour = OTHERS[position % len(OTHERS)]
    return Style(name, colour, marker)


def check_target(path: Path) -> None:
    """Refuse a file that a figure could not be written to, before the work is done."""
    if path.suffix.lstrip(".") not in FORMATS:
        raise InputError(f"{path}: a figure is .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written")


def curves(tables: Mapping[str, Columns], names: Sequence[str], title: str) -> Figure:
    """Gap against rounds on a log scale, one curve a method."""
    figure, axes = _axes(title, "rounds", "optimality gap  F(x) - F*")
    last = max(len(tables[name]["gap"]) for name in names) - 1
    for i, name in enumerate(names):
        _curve(
            axes,
            style_of(name, i),
            tables[name]["round"],
            tables[name]["gap"],
            last,
            i / len(names),
        )
    shown = [tables[name]["gap"] for name in names]
    _limits(axes, last, np.concatenate(shown), top=10 * max(gap[0] for gap in shown))
    return _with_legend(figure)


def spread(
    tables: Mapping[str, Columns], names: Sequence[str], kappas: Sequence[float], title: str
) -> Figure:
    """Gap against rounds for several condition numbers: the median over the seeds, and a band from least to most."""
    figure, axes = _axes(title, "rounds", "optimality gap  F(x) - F*")
    everything = []
    for name in names:
        style = style_of(name, 0)
        for dash, kappa in zip(("-", "--", ":"), kappas, strict=True):
            table = tables[f"{name}-kappa{kappa:g}"]
            seeds = np.array([column for key, column in table.items() if key != "round"])
            gaps = np.where(seeds > LOWEST, seeds, np.nan)
            last = len(table["round"]) - 1
            shown = ~np.isnan(gaps).any(axis=0)
            rounds = table["round"][shown]
            axes.fill_between(
                rounds,
                gaps[:, shown].min(axis=0),
                gaps[:, shown].max(axis=0),
                color=style.colour,
                alpha=0.2,
            )
            labelled = style._replace(label=f"{style.label}, κ = {kappa:g}")
            _curve(
                axes,
                labelled,
                rounds,
                np.median(gaps[:, shown], axis=0),
                last,
                kappas.index(kappa) / 3,
                dash,
            )
            everything.append(seeds.ravel())
    _limits(axes, last, np.concatenate(everything), top=np.inf)
    return _with_legend(figure)


def conditioning(table: Columns, slopes: Mapping[str, float], title: str) -> Figure:
    """Rounds against κ on log scales: the median over the seeds, a band from least to most, and the fitted slope."""
    figure, axes = _axes(title, "condition number κ", "rounds T(ε, κ)")
    axes.set_xscale("log")
    kappas = np.unique(table["kappa"])
    for i, (name, slope) in enumerate(slopes.items()):
        style = style_of(name, i)
        seeds = np.array([table[name][table["kappa"] == kappa] for kappa in kappas])
        axes.fill_between(
            kappas, seeds.min(axis=1), seeds.max(axis=1), color=style.colour, alpha=0.25
        )
        label = f"{style.label}: slope {slope:.2f}"
        axes.plot(
            kappas,
            np.median(seeds, axis=1),
            color=style.colour,
            marker=style.marker,
            label=label,
            linewidth=1.6,
        )
    return _with_legend(figure)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its name; the same figure gives the same bytes."""
    files.write(path, render(figure, path.suffix.lstrip(".")))


def render(figure: Figure, kind: str) -> bytes:
    """A figure as the bytes of a file."""
    no_date: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "fedsplit"}):
        figure.savefig(content, dpi=150, metadata=no_date, format=kind)
    return content.getvalue()


def _axes(title: str, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _curve(
    axes: Axes,
    style: Style,
    rounds: NDArray[Any],
    gaps: NDArray[Any],
    last: int,
    offset: float,
    dash: str = "-",
) -> None:
    """One curve, its markers shifted by ``offset`` of their spacing so that those of equal curves stay apart."""
    shown = gaps > LOWEST
    spacing = max(1, last // 8)
    axes.plot(
        rounds[shown],
        gaps[shown],
        color=style.colour,
        linestyle=dash,
        linewidth=1.6,
        marker=style.marker,
        markersize=5,
        markevery=(int(offset * spacing), spacing),
        label=style.label,
    )


def _limits(axes: Axes, last: int, gaps: NDArray[Any], top: float) -> None:
    """All rounds, and all gaps but those of runs that grow beyond ``top``."""
    visible = gaps[(gaps > LOWEST) & (gaps < top)]
    axes.set(xlim=(0, last), ylim=(visible.min() / 3, visible.max() * 3))


def _with_legend(figure: Figure) -> Figure:
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure
