"""The page of a fit: one file, which loads nothing from anywhere."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedsplit import files
from fedsplit import html as pages
from fedsplit.data.formula.formula import Formula
from fedsplit.regression.client.design import SMALLEST_CELL
from fedsplit.regression.options import WITHOUT_NOISE, Settings
from fedsplit.regression.result import figures
from fedsplit.regression.result.facts import (
    about_classes,
    absent,
    decimals,
    measures,
    number,
    p_value,
    specification_lines,
    title,
)
from fedsplit.regression.result.table import fragment

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model


def write(text: str, path: Path) -> None:
    """Write a page; the same model gives the same bytes."""
    files.check_writable(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name of a file, and so of a client, need not be valid text.
    files.write(path, text.encode("utf-8", "replace"))


def pooled_html(model: Model) -> str:
    """The text of the page of a pooled fit."""
    formula = Formula(model.formula)
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
        most_clients=figures.MOST_CLIENTS,
        smallest_cell=SMALLEST_CELL,
        kinds={kind: kinds.count(kind) for kind in ("setup", "round", "certificate")},
        others=Counter(model.trace.kind.repeat(model.trace.questions)) - Counter(kinds),
        sent=int(model.trace.floats_up.sum()) // participants,
        received=int(model.trace.floats_down.sum()) // participants,
        settings=_settings(model.settings),
        versions=pages.versions("numpy", "scipy", "matplotlib"),
    )


def noisy_html(model: Model) -> str:
    """The text of the page of a fit with noise: the table, which says what it is, and intervals."""
    interval = None
    if model.bse is not None:
        interval = model.conf_int()
    return pages.render(
        "noisy_fit.html",
        model=model,
        title=title(model),
        target=Formula(model.formula).target,
        table=fragment(model),
        figure=figures.svg(figures.coefficients(model, interval)),
        settings=_settings(model.settings),
        versions=pages.versions("numpy", "scipy", "matplotlib"),
    )


def _coefficients(model: Model, interval: pd.DataFrame | None) -> dict[str, list[str]]:
    """The columns of the table, by their heads."""
    columns = {"coefficient": [number(value) for value in model.params]}
    if model.bse is not None and model.tvalues is not None and model.pvalues is not None:
        columns["standard error"] = [number(value) for value in model.bse]
        columns[model.statistic] = [decimals(value) for value in model.tvalues]
        columns["p"] = [p_value(value) for value in model.pvalues]
    if interval is not None:
        ends = zip(interval["lower"], interval["upper"], strict=True)
        columns["95 % interval"] = [_range(low, high) for low, high in ends]
    if model.robust_bse is not None:
        columns["robust standard error"] = [number(value) for value in model.robust_bse]
    return columns


def _range(low: float, high: float) -> str:
    """Both ends of an interval, or a dash where there is none."""
    if pd.isna(low):
        return "–"
    return f"{number(low)} to {number(high)}"


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
        "coefficients": figures.coefficients(model, interval),
        "convergence": figures.convergence(model),
    }
    if model.clients["shift"].notna().any():
        drawn["clients"] = figures.clients(model.clients)
    latency = model.run.of_rounds.latency
    if latency:
        drawn["attendance"] = figures.attendance(model.run.attendance, latency)
    calibration = model.fit.calibration
    if calibration is not None and calibration.rows.any():
        drawn["calibration"] = figures.calibration(calibration)
    return {name: figures.svg(figure) for name, figure in drawn.items()}


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
