"""The page of a fit, with its figures: one file, which loads nothing from anywhere."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from fedsplit import files
from fedsplit import html as pages
from fedsplit.arrays import Array
from fedsplit.loop.trace import Trace
from fedsplit.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, render
from fedsplit.regression.client.design import SMALLEST_CELL, Calibration
from fedsplit.regression.options import WITHOUT_NOISE, Settings
from fedsplit.regression.result.fitted import FittedModel
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.table import (
    about_classes,
    absent,
    decimals,
    fragment,
    measures,
    number,
    p_value,
    specification_lines,
    title,
)

LINE = 0.23
"""Height of one labelled line in a figure, in inches."""

MOST_CLIENTS = 40
"""The number of clients that are drawn: those whose absence would move the answer most."""


def write(model: FittedModel, path: Path) -> None:
    """Write the page of a model; the same model gives the same bytes."""
    text = pooled_html(model) if isinstance(model, Model) else noisy_html(model)
    files.check_writable(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name of a file, and so of a client, need not be valid text.
    files.write(path, text.encode("utf-8", "replace"))


def pooled_html(model: Model) -> str:
    """The text of the page of a pooled fit."""
    formula = model.plan.parsed
    interval = None  # model-based, or robust where there is no other
    if model.bse is not None or model.robust_bse is not None:
        interval = model.conf_int(robust=model.bse is None)
    columns = _coefficients(model, interval)
    fit = {each.name: each.shown for line in measures(model) for each in line if each.name}
    if model.settings.biased is None:
        fit = {"residual degrees of freedom": f"{model.df_resid:,}", **fit}
    participants = len(model.run.summed) or max(1, int((model.clients["n"] > 0).sum()))
    trace = model.run.of_rounds
    kinds = trace.kind.tolist()
    return pages.render(
        "fit.html",
        model=model,
        title=title(model),
        target=formula.target,
        intercept=formula.intercept,
        header=list(columns),
        rows=list(zip(model.estimates.names, zip(*columns.values(), strict=True), strict=True)),
        absent=list(absent(model)),
        specification=[*specification_lines(model), *about_classes(model)],
        fit=fit,
        clients=_clients(model.clients),
        attendance=[
            (
                str(row.Index),
                f"{row.answered:,}",
                decimals(row.median, ".3g"),
                decimals(row.longest, ".3g"),
                f"{row.incidents:,}",
            )
            for row in model.run.attendance.itertuples()
        ],
        measured=int(np.isfinite(trace.objective.astype(np.float64)).sum()) > 1,
        figures=_figures(model, interval),
        most_clients=MOST_CLIENTS,
        smallest_cell=SMALLEST_CELL,
        kinds={kind: kinds.count(kind) for kind in ("setup", "round", "certificate")},
        others=Counter(model.trace.kind.repeat(model.trace.questions)) - Counter(kinds),
        sent=int(model.trace.floats_up.sum()) // participants,
        received=int(model.trace.floats_down.sum()) // participants,
        settings=_settings(model.settings),
        versions=pages.versions("numpy", "scipy", "matplotlib"),
    )


def noisy_html(model: FittedModel) -> str:
    """The text of the page of a fit with noise: the table, which says what it is, and intervals."""
    interval = model.conf_int() if model.bse is not None else None
    return pages.render(
        "noisy_fit.html",
        model=model,
        title=title(model),
        target=model.plan.parsed.target,
        table=fragment(model),
        figure=svg(draw_coefficients(model, interval)),
        settings=_settings(model.settings),
        versions=pages.versions("numpy", "scipy", "matplotlib"),
    )


def _coefficients(model: Model, interval: pd.DataFrame | None) -> dict[str, list[str]]:
    """The columns of the table, by their heads."""
    columns = {"coefficient": list(map(number, model.params))}
    if model.bse is not None and model.tvalues is not None and model.pvalues is not None:
        columns["standard error"] = list(map(number, model.bse))
        columns[model.statistic] = list(map(decimals, model.tvalues))
        columns["p"] = list(map(p_value, model.pvalues))
    if interval is not None:
        columns["95 % interval"] = [
            "–" if pd.isna(low) else f"{number(low)} to {number(high)}"
            for low, high in zip(interval["lower"], interval["upper"], strict=True)
        ]
    if model.robust_bse is not None:
        columns["robust standard error"] = list(map(number, model.robust_bse))
    return columns


def _clients(clients: pd.DataFrame) -> list[tuple[str, ...]]:
    return [
        (
            str(row.Index),
            f"{row.n:,}",
            f"{row.missing:,}",
            f"{100 * row.leverage:.1f} %",
            decimals(row.score),
            decimals(row.shift, "+.2f"),
            row.coefficient or "–",
        )
        for row in clients.itertuples()
    ]


def _figures(model: Model, interval: pd.DataFrame | None) -> dict[str, bytes]:
    drawn = {
        "coefficients": draw_coefficients(model, interval),
        "convergence": draw_convergence(model),
    }
    if model.clients["shift"].notna().any():
        drawn["clients"] = draw_clients(model.clients)
    latency = model.run.of_rounds.latency
    if latency:
        drawn["attendance"] = draw_attendance(model.run.attendance, latency)
    calibration = model.fit.calibration
    if calibration is not None and calibration.rows.any():
        drawn["calibration"] = draw_calibration(calibration)
    return {name: svg(figure) for name, figure in drawn.items()}


def _settings(settings: Settings) -> dict[str, str]:
    """The options that have an effect, and their values, as people write them."""
    values = dataclasses.asdict(settings)
    if settings.dp is not None:
        values = {name: each for name, each in values.items() if name not in WITHOUT_NOISE}
        values |= {f"dp {name}": value for name, value in values.pop("dp").items()}
    return {name: _setting(value) for name, value in values.items()}


def _setting(value: object) -> str:
    """The value of an option as people write it."""
    if value is None or value == () or value == {}:
        return "none"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{column}: {_setting(each)}" for column, each in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(str(each) for each in value)
    return str(value)


def svg(figure: Figure) -> bytes:
    """A figure with its text as text, so that the reader's fonts show what matplotlib's lack."""
    with mpl.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        return render(figure, "svg")


def label(name: str, longest: int = 26) -> str:
    """A name beside an axis: one line, its middle left out where it is long, no mathematics."""
    plain = "".join(letter if letter.isprintable() else " " for letter in name)
    if len(plain) > longest:
        plain = f"{plain[: longest // 2]}…{plain[-(longest // 2 - 1) :]}"
    return plain.replace("$", r"\$")


def draw_coefficients(model: FittedModel, interval: pd.DataFrame | None) -> Figure:
    """Every coefficient and its interval, with the robust one as a thin line.

    Coefficients of similar size share an axis. Intercepts and thresholds are left out: they are of
    another size, and seldom of interest.
    """
    names, values = model.estimates.names, model.estimates.values
    blocks = model.family.blocks(model.plan.classes)
    own = sum(len(block.own) for block in blocks)
    columns = (len(names) - own) // sum(block.of_columns for block in blocks)
    sizes = [len(block.own) or columns for block in blocks]
    predictors = np.repeat(np.arange(len(sizes)), sizes)
    within = np.concatenate([np.arange(size) for size in sizes])
    shown = np.flatnonzero(np.isfinite(values))
    sloped = within > 0 if model.plan.design_columns.intercept else within >= 0
    sloped[len(names) - own :] = False
    if sloped[shown].any():
        shown = shown[sloped[shown]]
    title = "coefficient and 95 % interval"
    if interval is None:
        title = "coefficient"
        interval = pd.DataFrame({"lower": values, "upper": values})
    ends = interval.to_numpy()
    robust = ends
    if model.estimates.robust is not None:
        robust = model.conf_int(robust=True).to_numpy()
    groups = _alike(_reach(np.column_stack([ends, robust])[shown]), shown)
    figure = _figure(LINE * len(shown) + 0.7 * len(groups))
    heights = [len(group) + 1 for group in groups]
    panels = figure.subplots(len(groups), squeeze=False, height_ratios=heights)[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        _plain(axes, title)
        axes.axvline(0, color=GREY, linewidth=1)
        for y, i in enumerate(group):
            colour = (BLUE, RED, GREEN, PINK, ORANGE, BLACK)[predictors[i] % 6]
            filled = colour if ends[i, 0] * ends[i, 1] > 0 else "white"
            axes.plot(robust[i], [y, y], color=colour, linewidth=0.7)
            axes.plot(ends[i], [y, y], color=colour, linewidth=2)
            axes.plot(values[i], y, "o", color=colour, markerfacecolor=filled)
            if y and predictors[i] != predictors[group[y - 1]]:
                axes.axhline(y - 0.5, color=GREY, linewidth=0.5)
        _lines(axes, [label(names[i]) for i in group])
    return figure


def draw_convergence(model: Model) -> Figure:
    """The objective above its lowest value, round by round on a log scale, and what was proved.

    Where the objective was not measured, because the clients are remote, the length of each
    round's move takes its place.
    """
    trace = model.run.of_rounds
    rounds, values, name = _course(trace)
    figure = _figure(3.4)
    axes = figure.subplots()
    _plain(axes, "round", "y")
    titles = {"objective": "F(x) above the lowest", "move": "‖z⁺ - z‖"}
    axes.set_ylabel(titles[name], fontsize=9)
    axes.set(yscale="log", xlim=(0, model.rounds))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:.0e}")
    for kind, text, colour in (
        ("setup", "set-up round", ORANGE),
        ("certificate", "certificate round", GREEN),
    ):
        legend: str | None = text
        for t in np.flatnonzero(trace.kind == kind).tolist():
            axes.axvspan(t, t + 1, color=colour, alpha=0.25, linewidth=0, label=legend)
            legend = None  # one entry is enough
    axes.plot(rounds, values, color=BLUE, marker="o", markersize=3.5, linewidth=1.4, label=name)
    proved = [(t, gap) for t, gap in model.run.proofs if gap is not None and 0 < gap < np.inf]
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


def _course(trace: Trace) -> tuple[NDArray[np.intp], Array, str]:
    """The rounds to draw, a value for each, and its name; differences by rounding are left out."""
    objective = trace.objective.astype(np.float64)
    known = objective[np.isfinite(objective)]
    if known.size < 2:
        moves = trace.residual.astype(np.float64)
        drawn = np.flatnonzero(np.isfinite(moves) & (moves > 0))
        return drawn + 1, moves[drawn], "move"
    gap = objective - known.min()
    rounding = 4 * np.finfo(np.float64).eps * np.abs(known).max()
    drawn = np.flatnonzero(np.isfinite(gap) & (gap > rounding))
    return drawn, gap[drawn], "objective"


def draw_attendance(table: pd.DataFrame, seconds: Mapping[str, Array]) -> Figure:
    """The fastest, median and slowest answer of every client on a log scale, slowest first."""
    order = table["median"].sort_values(ascending=False).index[:MOST_CLIENTS]
    figure = _figure(LINE * len(order) + 0.9)
    axes = figure.subplots()
    _plain(axes, "seconds to an answer")
    for y, name in enumerate(order):
        answers = seconds.get(name, np.zeros(0))
        answers = answers[np.isfinite(answers) & (answers > 0)]
        if answers.size:
            axes.plot([answers.min(), answers.max()], [y, y], color=SKY, linewidth=3)
            axes.plot(np.median(answers), y, "o", color=BLUE)
    axes.set(xscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    _lines(axes, [label(str(name), 16) for name in order])
    return figure


def draw_clients(table: pd.DataFrame) -> Figure:
    """Each client's share of rows and of information, and the move without it, largest first."""
    table = table.astype({"shift": np.float64})  # which is None where it is not known
    order = np.argsort(-np.nan_to_num(np.abs(table["shift"])), kind="stable")
    drawn = table.iloc[order[:MOST_CLIENTS]]
    y = np.arange(len(drawn))
    figure = _figure(LINE * len(drawn) + 1.2)
    left, right = figure.subplots(1, 2, sharey=True)
    _plain(left, "share, %")
    left.barh(y, 100 * drawn["leverage"], color=SKY, height=0.6, label="information")
    rows = 100 * drawn["n"] / max(1, table["n"].sum())
    left.plot(rows, y, "|", color=BLACK, markersize=9, markeredgewidth=1.6, label="rows")
    _lines(left, [label(str(name), 16) for name in drawn.index])
    _plain(right, "move without it, SE")
    shift = drawn["shift"]
    right.axvline(0, color=GREY, linewidth=1)
    right.hlines(y, 0, shift, color=RED, linewidth=1.6)
    right.plot(shift, y, "o", color=RED, markersize=5, label="coefficient that moves most")
    right.tick_params(labelleft=False)
    names = right.secondary_yaxis("right")
    names.set_yticks(y, [label(name, 16) for name in drawn["coefficient"]])
    names.tick_params(length=0, labelsize=8)
    names.spines["right"].set_visible(False)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8)
    return figure


def draw_calibration(counts: Calibration) -> Figure:
    """The observed share in each bin of predicted probabilities, with Wilson's intervals."""
    used = counts.rows > 0
    rows = counts.rows[used]
    predicted = counts.predicted[used] / rows
    observed = counts.observed[used] / rows
    low, high = wilson(observed, rows)
    figure = _figure(3.8, width=3.8)
    axes = figure.subplots()
    _plain(axes, "mean predicted probability", "both")
    top = min(1.0, 1.1 * max(high.max(), predicted.max()))
    axes.plot([0, top], [0, top], color=GREY, linewidth=1)
    axes.vlines(predicted, low, high, color=BLUE, linewidth=1.6)
    areas = 20 + 150 * rows / rows.max()
    axes.scatter(predicted, observed, areas, color=BLUE, alpha=0.6, linewidth=0, clip_on=False)
    axes.set_ylabel("observed share", fontsize=9)
    axes.set(xlim=(0, top), ylim=(0, top), aspect="equal")
    return figure


def wilson(share: Array, rows: Array, z: float = 1.96) -> tuple[Array, Array]:
    """Wilson's interval of a share: both ends."""
    centre = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * np.sqrt(share * (1 - share) / rows + np.square(z / (2 * rows)))
    return centre - half, centre + half


def _reach(ends: Array) -> Array:
    """How far from zero each interval reaches; the smallest of these where it is 0 or unknown."""
    reach: Array = np.fmax.reduce(np.abs(ends), axis=1)  # nan where there is no robust interval
    known = np.isfinite(reach) & (reach > 0)
    if not known.any():
        return np.ones_like(reach)
    reach[~known] = reach[known].min()
    return reach


def _alike(reach: Array, which: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """``which`` in groups of a factor of 30 at most, largest first, cut at the widest gaps."""
    order = np.argsort(-reach, kind="stable")
    sizes = reach[order]
    if not len(which) or sizes[0] <= 30.0 * sizes[-1]:
        return [which]
    cut = int(np.argmax(sizes[:-1] / sizes[1:])) + 1
    parts = (np.sort(order[:cut]), np.sort(order[cut:]))
    return [group for part in parts for group in _alike(reach[part], which[part])]


def _figure(height: float, width: float = 4.9) -> Figure:
    """A transparent figure, for light and dark pages, in inches."""
    # 4.9 inches are narrow enough for a phone to show a figure at its size
    return Figure((width, height), layout="constrained", facecolor="none")


def _plain(axes: Axes, xlabel: str, grid: Literal["x", "y", "both"] = "x") -> None:
    axes.set_facecolor("none")
    axes.set_xlabel(xlabel, fontsize=9)
    axes.grid(axis=grid, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _lines(axes: Axes, names: Sequence[str]) -> None:
    """Name the lines of a figure from top to bottom."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
