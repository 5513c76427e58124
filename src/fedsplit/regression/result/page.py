"""The page of a fit: one file with its table, figures, proof and settings, nothing loaded from anywhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedsplit import files
from fedsplit import html as pages
from fedsplit.data.categories import as_text
from fedsplit.data.formula import Formula
from fedsplit.regression.client.design import SMALLEST_CELL
from fedsplit.regression.result import figures
from fedsplit.regression.result.table import number

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model


def write(model: Model, path: Path) -> None:
    """Write the page; the same model gives the same bytes."""
    files.check_writable(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(
        path, html(model).encode("utf-8", "replace")
    )  # a file's name, and so a client's, need not be text


def html(model: Model) -> str:
    """The page."""
    formula = Formula(model.formula)
    interval = _interval(model)
    columns = _columns(model, interval)
    taking_part = max(1, int((model.clients["n"] > 0).sum()))
    return pages.render(
        "fit.html",
        model=model,
        target=formula.target,
        intercept=formula.intercept,
        reference=as_text(model.plan.classes[0]) if model.family.has_reference else None,
        header=list(columns),
        rows=list(zip(model.names, zip(*columns.values(), strict=True), strict=True)),
        fit={
            "log-likelihood": _long(model.log_likelihood),
            "deviance": _long(model.deviance),
            "AIC": _long(model.aic),
            "dispersion": _long(model.dispersion),
        },
        clients=[
            (str(name), *row)
            for name, row in zip(model.clients.index, _client_cells(model.clients), strict=True)
        ],
        attendance=[
            (
                str(name),
                f"{row.answered:,}",
                _seconds(row.median),
                _seconds(row.longest),
                f"{row.incidents:,}",
            )
            for name, row in zip(model.attendance.index, model.attendance.itertuples(), strict=True)
        ],
        measured=int(np.isfinite(model.trace.objective.astype(np.float64)).sum()) > 1,
        figures=_figures(model, interval),
        most_clients=figures.MOST_CLIENTS,
        smallest_cell=SMALLEST_CELL,
        kinds={
            kind: int((model.trace.kind == kind).sum())
            for kind in ("setup", "round", "certificate")
        },
        sent=int(model.trace.floats_up.sum()) // taking_part,
        received=int(model.trace.floats_down.sum()) // taking_part,
        settings={
            name: _setting(value) for name, value in dataclasses.asdict(model.settings).items()
        },
        versions=pages.versions("numpy", "scipy", "matplotlib"),
    )


def _interval(model: Model) -> pd.DataFrame | None:
    """95 %: model-based; robust where there are no others."""
    if model.covariance_ is None and model.robust_ is None:
        return None
    return model.conf_int(robust=model.covariance_ is None)


def _columns(model: Model, interval: pd.DataFrame | None) -> dict[str, list[str]]:
    """The table of coefficients, by the heads of its columns."""
    columns = {"coefficient": [number(value) for value in model.coef]}
    if model.se is not None and model.zvalues is not None and model.pvalues is not None:
        columns["standard error"] = [number(value) for value in model.se]
        columns["z"] = [_fixed(value) for value in model.zvalues]
        columns["p"] = [_p(value) for value in model.pvalues]
    if interval is not None:
        ends = zip(interval.lower, interval.upper, strict=True)
        columns["95 % interval"] = [f"{number(low)} to {number(high)}" for low, high in ends]
    if model.robust_ is not None:
        columns["robust standard error"] = [
            number(value) for value in np.sqrt(np.diag(model.robust_))
        ]
    return columns


def _client_cells(clients: pd.DataFrame) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.n:,}",
            f"{row.missing:,}",
            f"{100 * row.leverage:.1f} %",
            _fixed(row.score),
            _fixed(row.shift, "+.2f"),
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
    if model.trace.latency:
        drawn["attendance"] = figures.attendance(model.attendance, model.trace.latency)
    if model.calibration is not None and model.calibration.rows.any():
        drawn["calibration"] = figures.calibration(model.calibration)
    return {name: figures.svg(figure) for name, figure in drawn.items()}


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else _fixed(value)


def _fixed(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None or pd.isna(value) else format(value, form)


def _seconds(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.3g}"


def _long(value: float | None) -> str:
    return _fixed(value, ",.6g")


def _setting(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return (
        {None: "none", True: "yes", False: "no"}[value]
        if value is None or isinstance(value, bool)
        else str(value)
    )
