"""A regression table as text, in the manner of statsmodels."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from fedsplit import html as pages
from fedsplit.errors import listed
from fedsplit.regression.result.specification import specification_lines

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model

MOST_INCIDENTS = 10
"""How many clients have a line for their incidents."""


class Summary(str):
    """Text that a prompt shows as it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def summary(model: Model) -> Summary:
    """The text of ``Model.summary``: coefficients, clients, the proof and what went wrong."""
    parts = [pooled_summary(model), *_clients(model.clients), "\n".join(model.foot())]
    return Summary("\n\n".join(parts))


def pooled_summary(model: Model) -> str:
    """The coefficients, without anything about single clients: for all of those that took part."""
    return "\n".join([*model.head(), "", *_coefficients(model)])


def fragment(model: Model) -> str:
    """The table as HTML, for a notebook: without the clients, which ``summary`` has."""
    columns = coefficient_columns(model)
    return pages.render(
        "notebook.html",
        head=model.head(),
        header=list(columns),
        named=True,
        rows=list(zip(*columns.values(), strict=True)),
        foot=[*_remarks(model), *model.foot()],
    )


def number(value: float | None) -> str:
    """Four decimals, or scientific notation where they would be long or all zero."""
    if value is None or pd.isna(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}"
    return f"{value:.3e}"


def shortened(formula: str, longest: int = 60) -> str:
    """A formula in one short line."""
    if len(formula) <= longest:
        return formula
    return f"{formula[:longest]}…"


def aligned(rows: list[list[str]], left: tuple[int, ...] = (0,)) -> list[str]:
    """Rows of cells as lines, with columns to the right but for those in ``left``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        for i in left:
            cells[i] = row[i].ljust(widths[i])
        lines.append("  ".join(cells).rstrip())
    return lines


def head(model: Model) -> list[str]:
    """The lines of a pooled fit above the coefficients."""
    freedom = f"   residual degrees of freedom {model.df_resid:,}"
    if model.settings.biased is not None:
        freedom = ""  # as n - p would not count them
    return [
        *opening(model),
        *(f"{text}: {agreed}" for text, agreed in model.plan.agreed.items()),
        f"n {model.nobs:,}   parameters {model.estimates.rank}{freedom}",
        *("   ".join(f"{name} {text}" for name, text in line.items()) for line in fit_lines(model)),
    ]


def opening(model: Model) -> list[str]:
    """What was fitted, and over whom."""
    clients = f"{model.n_clients} client{'s' * (model.n_clients != 1)}"
    if model.run.summed:
        clients += " by secure sums"
    failed = ["NOT CONVERGED: the coefficients are those of the last round"]
    return [
        *(failed * (not model.settled)),
        f"{title(model)} over {clients}, {model.family.link.name} link",
        model.formula,
        *_classes(model),
        *specification_lines(model),
    ]


def title(model: Model) -> str:
    """What kind of regression it is."""
    if model.settings.firth:
        return f"Firth's {model.family.name} regression"
    return f"{model.family.name} regression"


def _classes(model: Model) -> list[str]:
    """What the coefficients of a classifier are about."""
    if model.modelled is not None:
        return [f"modelled: {model.modelled}"]
    reference = model.family.reference(model.plan.classes)
    return [] if reference is None else [f"reference: {reference}"]


def fit_lines(model: Model) -> list[dict[str, str]]:
    """How well the model fits: numbers as text by their names, in two lines."""
    family = model.family
    first = {
        "log-likelihood": model.llf,
        "penalised log-likelihood": getattr(model.fit.penalised, "value", None),
        "deviance": model.deviance,
        "null deviance": model.null_deviance,
        "AIC": model.aic,
    }
    second: dict[str, float | None] = {
        family.fit_measure: model.r_squared,
        "Pearson X²/df": model.overdispersion,
    }
    if family.statistic == "t" and model.df_resid > 0:
        second = {"dispersion": model.dispersion, **second}
    lines = [
        {name: decimals(value, ",.6g") for name, value in line.items() if value is not None}
        for line in (first, second)
    ]
    test = model.f_test
    if test is not None:
        freedom = f"{test.df_model:,} and {test.df_resid:,} degrees of freedom"
        lines[1]["F"] = f"{test.value:,.4g} on {freedom}, p {p_value(test.p)}"
    penalised = model.fit.penalised
    if penalised is not None and penalised.p is not None:
        freedom = f"{penalised.df:,} degree{'s' * (penalised.df != 1)} of freedom"
        ratio = decimals(penalised.ratio, ",.6g")
        lines[1]["likelihood ratio"] = f"{ratio} on {freedom}, p {p_value(penalised.p)}"
    return [line for line in lines if line]


def p_value(p: float) -> str:
    """Three decimals, or that it is less than the least of them."""
    if p < 0.001:
        return "< 0.001"
    return decimals(p)


def decimals(value: float | None, form: str = ".3f") -> str:
    """A number in this form, or a dash where there is none."""
    if value is None or pd.isna(value):
        return "–"
    return format(value, form)


def coefficient_columns(model: Model) -> dict[str, list[str]]:
    """The cells of the table by their heads, the names first."""
    columns = {"": list(model.estimates.names), "coef": [number(value) for value in model.params]}
    if model.bse is not None and model.tvalues is not None and model.pvalues is not None:
        interval = model.conf_int()
        columns["std err"] = [number(value) for value in model.bse]
        statistic = model.statistic
        columns[statistic] = [decimals(value) for value in model.tvalues]
        columns[f"P>|{statistic}|"] = [decimals(value) for value in model.pvalues]
        columns["[0.025"] = [number(value) for value in interval["lower"]]
        columns["0.975]"] = [number(value) for value in interval["upper"]]
    return columns


def _coefficients(model: Model) -> list[str]:
    columns = coefficient_columns(model)
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return [*aligned([list(columns), *rows]), *_remarks(model)]


def _remarks(model: Model) -> list[str]:
    """What the table lacks, and why."""
    lines = absent(model)
    if model.se_reason is not None:
        lines.append(f"no standard errors: {model.se_reason}")
    elif not model.settled:
        lines.append("no standard errors: the fit did not converge")
    return lines


def absent(model: Model) -> list[str]:
    """The coefficients that are not estimated, or without a robust standard error, and why."""
    lines = []
    if model.not_estimable:
        grows = [f"{name} ({sign})" for name, sign in model.not_estimable.items()]
        lines.append(f"not estimable: {listed(grows, 12)}")
    if model.aliased:
        lines.append(f"aliased with those before: {listed(model.aliased, 12)}")
    if model.robust_bse is not None:
        alone = model.robust_bse.index[model.robust_bse.isna() & model.params.notna()]
        if len(alone):
            lines.append(
                f"no robust standard error: {listed(alone, 12)} (one client alone determines it)"
            )
    return lines


def _clients(clients: pd.DataFrame) -> list[str]:
    """The table of clients, if anything is known of single ones."""
    if clients["leverage"].isna().all():
        return []
    rows = [["client", "n", "missing", "information", "without it"]]
    for name, row in zip(clients.index, clients.itertuples(), strict=True):
        move = "–"
        if row.coefficient:
            move = f"{row.coefficient} moves {row.shift:+.2f} SE"
        share = f"{100 * row.leverage:.1f} %"
        rows.append([str(name), f"{row.n:,}", f"{row.missing:,}", share, move])
    return ["\n".join(aligned(rows, left=(0, 4)))]


def foot(model: Model) -> list[str]:
    """The lines of a pooled fit below the coefficients: the run, the proof, what went wrong."""
    converged = "yes" if model.converged else "NO"
    lines = [
        f"exchanges {model.exchanges}   rounds {model.rounds}   "
        f"floats sent {model.run.floats:,}   converged {converged}",
        f"certificate: {model.certificate}",
    ]
    if model.removed:
        gone = listed((f"client {name} ({reason})" for name, reason in model.removed.items()), 10)
        lines.append(f"removed: {gone}; all numbers are those of the other clients")
    incidents = Counter((incident.client, incident.what) for incident in model.run.incidents)
    by_client: dict[str, list[str]] = {}
    for (name, what), times in incidents.items():
        repeated = f" ({times} times)" * (times > 1)
        by_client.setdefault(name, []).append(f"{what}{repeated}")
    for name, parts in list(by_client.items())[:MOST_INCIDENTS]:
        lines.append(f"incident: client {name}: {listed(parts, 3)}")
    if len(by_client) > MOST_INCIDENTS:
        lines.append(f"incident: {len(by_client) - MOST_INCIDENTS:,} more clients")
    return [*lines, *(f"warning: {text}" for text in model.warnings)]
