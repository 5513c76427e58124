"""Figures of convergence, with one colour and marker per method in all of them."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""A table: named columns of equal length."""

BLACK, ORANGE, SKY, GREEN, GREY, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#808080", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
"""Okabe and Ito's palette, which colour-blind readers can tell apart.

Grey takes the place of its yellow, which is too pale on white paper.
"""


class Style(NamedTuple):
    """How the curve of a method looks: its label in the legend, colour, and Matplotlib's marker."""

    label: str
    colour: str
    marker: str


STYLES: dict[str, Style] = {
    "fedgd-e1": Style("FedGD, e = 1", RED, "s"),
    "fedgd-e10": Style("FedGD, e = 10", ORANGE, "D"),
    "fedgd-e100": Style("FedGD, e = 100", GREY, "P"),
    "fedprox": Style("FedProx", PINK, "X"),
    "fedsplit": Style("FedSplit, Algorithm 1", BLUE, "o"),
    "fedsplit-steps5": Style("FedSplit, 5 local steps", GREEN, "<"),
    "fedsplit-exact": Style("FedSplit, exact", BLUE, "o"),
    "fedsplit-e1": Style("FedSplit, e = 1", BLACK, "v"),
    "fedsplit-e5": Style("FedSplit, e = 5", SKY, "^"),
    "fedsplit-e10": Style("FedSplit, e = 10", GREEN, "<"),
    "fedsplit-e1-broadcast": Style("FedSplit, e = 1, from x", BLACK, "v"),
    "fedsplit-e5-broadcast": Style("FedSplit, e = 5, from x", SKY, "^"),
    "fedsplit-e10-broadcast": Style("FedSplit, e = 10, from x", GREEN, "<"),
    "fedsplit-e100-broadcast": Style("FedSplit, e = 100, from x", BLACK, ">"),
    "quasi-newton": Style("QuasiNewton", BLACK, "D"),
    "information": Style("FedSplitInformation", ORANGE, "P"),
    "newton": Style("Newton", GREY, "x"),
    "cg": Style("CG", PINK, "v"),
    "lbfgs": Style("L-BFGS", SKY, "^"),
}

LOWEST = 1e-12
"""Gaps below this are rounding of F and not drawn."""


def style_of(name: str, position: int) -> Style:
    """Return a method's own style, or one by its position in the figure."""
    colours = (BLACK, SKY, GREEN, ORANGE, GREY, PINK, RED, BLUE)
    i = position % len(colours)
    return STYLES.get(name, Style(name, colours[i], "v^<>DPh*"[i]))


def check_target(path: Path) -> None:
    """Raise InputError, before any work is done, if a figure cannot be written to this file."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"{path}: a figure is .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written")


def curves(tables: Mapping[str, Columns], names: Sequence[str], title: str) -> Figure:
    """Draw gap against rounds on a log scale: a curve for each of these tables.

    They have the columns ``round`` and ``gap``.
    """
    figure, axes = _axes(title)
    gaps = [tables[name]["gap"] for name in names]
    last = max(len(each) for each in gaps) - 1
    for i, name in enumerate(names):
        _curve(axes, style_of(name, i), tables[name]["round"], gaps[i], last, i / len(names))
    # a run that diverges leaves the figure
    _limits(axes, last, np.concatenate(gaps), top=10 * max(each[0] for each in gaps))
    return _with_legend(figure)


def spread(
    tables: Mapping[str, Columns], names: Sequence[str], kappas: Sequence[float], title: str
) -> Figure:
    """Draw gap against rounds for three condition numbers, as medians in bands over the seeds.

    The table of a method is called ``NAME-kappaKAPPA``, with a column ``round`` and one of gaps per
    seed.
    """
    figure, axes = _axes(title)
    everything = []
    for name in names:
        style = style_of(name, 0)
        for i, (dash, kappa) in enumerate(zip(("-", "--", ":"), kappas, strict=True)):
            table = tables[f"{name}-kappa{kappa:g}"]
            seeds = np.array([column for key, column in table.items() if key != "round"])
            everything.append(seeds.ravel())
            last = len(table["round"]) - 1
            # A round is drawn only if the gaps of all seeds are above rounding there.
            shown = (seeds > LOWEST).all(axis=0)
            labelled = style._replace(label=f"{style.label}, κ = {kappa:g}")
            gaps = _band(axes, style, table["round"][shown], seeds[:, shown])
            _curve(axes, labelled, table["round"][shown], gaps, last, i / 3, dash)
    _limits(axes, last, np.concatenate(everything), top=np.inf)
    return _with_legend(figure)


def conditioning(
    table: Columns, slopes: Mapping[str, float], title: str, dashed: Collection[str] = ()
) -> Figure:
    """Draw rounds against κ on log scales, as medians in bands over the seeds.

    The table has a row per condition number and seed: ``kappa``, and the rounds of each method.
    ``slopes`` are those that were fitted to the methods to draw. Curves that are ``dashed`` leave
    others visible that are below them.
    """
    figure, axes = _axes(title, "condition number κ", "rounds T(ε, κ)")
    axes.set_xscale("log")
    kappas = np.unique(table["kappa"])
    for i, (name, slope) in enumerate(slopes.items()):
        style = style_of(name, i)
        seeds = np.array([table[name][table["kappa"] == kappa] for kappa in kappas]).T
        rounds = _band(axes, style, kappas, seeds)
        labelled = style._replace(label=f"{style.label}: slope {slope:z.2f}")
        _curve(
            axes, labelled, kappas, rounds, len(kappas) - 1, 0.0, "--" if name in dashed else "-"
        )
    return _with_legend(figure)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends in."""
    files.write(path, render(figure, path.suffix.lstrip(".")))


def render(figure: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a file of this kind; the same figure gives the same bytes."""
    import matplotlib as mpl

    no_date: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "fedsplit"}):
        figure.savefig(content, dpi=150, metadata=no_date, format=kind)
    return content.getvalue()


def _axes(
    title: str, xlabel: str = "rounds", ylabel: str = "optimality gap  F(x) - F*"
) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # takes as long to import as all of fedsplit

    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _band(axes: Axes, style: Style, x: NDArray[Any], seeds: NDArray[Any]) -> NDArray[Any]:
    """Shade what lies between the least and the largest over the seeds, and return the medians."""
    axes.fill_between(
        x, seeds.min(axis=0), seeds.max(axis=0), color=style.colour, alpha=0.2, linewidth=0
    )
    result: NDArray[Any] = np.median(seeds, axis=0)
    return result


def _curve(
    axes: Axes,
    style: Style,
    rounds: NDArray[Any],
    gaps: NDArray[Any],
    last: int,
    offset: float,
    dash: str = "-",
) -> None:
    """Draw one curve, its markers shifted by this share of their spacing.

    So the markers of curves that coincide stay apart.
    """
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
    """Show all rounds, and all gaps but those of runs that grow beyond ``top``."""
    visible = gaps[(gaps > LOWEST) & (gaps < top)]
    axes.set(xlim=(0, last), ylim=(visible.min() / 3, visible.max() * 3))


def _with_legend(figure: Figure) -> Figure:
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure
