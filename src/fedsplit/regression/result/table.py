"""What is said of a fit, once: as a text in the manner of statsmodels, in a notebook, as JSON."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fedsplit import html as pages
from fedsplit.errors import listed
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families import parameters_of

if TYPE_CHECKING:
    from fedsplit.regression.result.fitted import FittedModel
    from fedsplit.regression.result.model import Model

POOLED = (
    *("clients", "log_likelihood", "deviance", "null_deviance", "aic", "bic", "dispersion"),
    *("r_squared", "pearson", "overdispersion", "df_residual", "df_null", "f_test", "penalised"),
)
"""The keys in JSON of what is known of a pooled fit alone: null for one with noise."""


class TableText(str):
    """Text that a prompt shows as it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def summary(model: FittedModel) -> TableText:
    """The text of ``Model.summary``: coefficients, clients, the proof and what went wrong."""
    parts = [pooled_summary(model), *model.about_clients(), "\n".join(model.foot())]
    return TableText("\n\n".join(parts))


def pooled_summary(model: FittedModel) -> str:
    """The coefficients, without anything about single clients: for all of those that took part."""
    columns = _coefficients(model)
    cells = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    return "\n".join([*model.head(), "", *aligned(cells), *absent(model)])


def fragment(model: FittedModel) -> str:
    """The table as HTML, for a notebook: without the clients, which ``summary`` has."""
    columns = _coefficients(model)
    return pages.render(
        "notebook.html",
        head=model.head(),
        header=list(columns),
        named=True,
        rows=list(zip(*columns.values(), strict=True)),
        foot=[*absent(model), *model.foot()],
    )


def shortened(formula: str, longest: int = 60) -> str:
    """A formula in one short line."""
    return formula if len(formula) <= longest else f"{formula[:longest]}…"


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


def opening(model: FittedModel) -> Iterator[str]:
    """What was fitted, and over whom."""
    if not model.settled:
        yield "NOT CONVERGED: the coefficients are those of the last round"
    clients = f"{model.n_clients} client{'s' * (model.n_clients != 1)}"
    if model.run.summed:
        clients += " by secure sums"
    yield f"{title(model)} over {clients}, {model.family.link.name} link"
    yield model.formula
    yield from about_classes(model)
    yield from specification_lines(model)


def head(model: Model) -> Iterator[str]:
    """The lines of a pooled fit above the coefficients."""
    yield from opening(model)
    for text, agreed in model.plan.agreed.items():
        yield f"{text}: {agreed}"
    freedom = f"   residual degrees of freedom {model.df_resid:,}"
    if model.settings.biased is not None:
        freedom = ""  # as n - p would not count them
    yield f"n {model.nobs:,}   parameters {model.estimates.rank}{freedom}"
    for line in measures(model):
        if shown := [f"{each.name} {each.shown}" for each in line if each.name]:
            yield "   ".join(shown)


def foot(model: Model) -> Iterator[str]:
    """The lines of a pooled fit below the coefficients: the run, the proof, what went wrong."""
    converged = "yes" if model.converged else "NO"
    yield (
        f"exchanges {model.exchanges}   rounds {model.rounds}   "
        f"floats sent {model.run.floats:,}   converged {converged}"
    )
    yield f"certificate: {model.certificate}"
    if model.removed:
        gone = listed((f"client {name} ({reason})" for name, reason in model.removed.items()), 10)
        yield f"removed: {gone}; all numbers are those of the other clients"
    incidents = Counter((incident.client, incident.what) for incident in model.run.incidents)
    by_client: dict[str, list[str]] = {}
    for (name, what), times in incidents.items():
        repeated = f" ({times} times)" * (times > 1)
        by_client.setdefault(name, []).append(f"{what}{repeated}")
    for name, parts in list(by_client.items())[:10]:
        yield f"incident: {name}: {listed(parts, 3)}"
    if len(by_client) > 10:
        yield f"incident: {len(by_client) - 10:,} more clients"
    for text in model.warnings:
        yield f"warning: {text}"


def _coefficients(model: FittedModel) -> dict[str, list[str]]:
    """The cells of the table by their heads, the names first."""
    columns = {"": list(model.estimates.names), "coef": list(map(number, model.params))}
    if model.bse is not None and model.tvalues is not None and model.pvalues is not None:
        interval = model.conf_int()
        columns |= {
            "std err": list(map(number, model.bse)),
            model.statistic: list(map(decimals, model.tvalues)),
            f"P>|{model.statistic}|": list(map(decimals, model.pvalues)),
            "[0.025": list(map(number, interval["lower"])),
            "0.975]": list(map(number, interval["upper"])),
        }
    return columns


def clients_table(clients: pd.DataFrame) -> list[str]:
    """The table of clients, if anything is known of single ones."""
    if clients["leverage"].isna().all():
        return []
    rows = [["client", "n", "missing", "information", "without it"]]
    for name, row in zip(clients.index, clients.itertuples(), strict=True):
        move = f"{row.coefficient} moves {row.shift:+.2f} SE" if row.coefficient else "–"
        share = f"{100 * row.leverage:.1f} %"
        rows.append([str(name), f"{row.n:,}", f"{row.missing:,}", share, move])
    return ["\n".join(aligned(rows, left=(0, 4)))]


class FitNumber(NamedTuple):
    """A number that says how well a model fits."""

    key: str  # in JSON; empty where it is not there
    name: str  # in the table and on the page; empty where it is not there
    value: float | None
    shown: str  # as the table and the page have it


def measures(model: Model) -> tuple[list[FitNumber], list[FitNumber]]:
    """How well a model fits: by its likelihood, and by its residuals. Those shown have a value."""
    penalised = model.fit.penalised
    dispersed = model.family.statistic == "t" and model.df_resid > 0
    likelihood = [
        _measure("log_likelihood", "log-likelihood", model.llf),
        _measure("", "penalised log-likelihood", penalised and penalised.value),
        _measure("deviance", "deviance", model.deviance),
        _measure("null_deviance", "null deviance", model.null_deviance),
        _measure("aic", "AIC", model.aic),
        _measure("bic", "", model.bic),
    ]
    residuals = [
        _measure("dispersion", "dispersion" * dispersed, model.dispersion),
        _measure("r_squared", model.family.fit_measure, model.r_squared),
        _measure("pearson", "", model.fit.pearson),
        _measure("overdispersion", "Pearson X²/df", model.overdispersion),
    ]
    if (test := model.f_test) is not None:
        freedom = f"{test.df_model:,} and {test.df_resid:,} degrees of freedom"
        shown = f"{test.value:,.4g} on {freedom}, p {p_value(test.p)}"
        residuals.append(FitNumber("", "F", test.value, shown))
    if penalised is not None and penalised.p is not None:
        freedom = f"{penalised.df:,} degree{'s' * (penalised.df != 1)} of freedom"
        shown = f"{decimals(penalised.ratio, ',.6g')} on {freedom}, p {p_value(penalised.p)}"
        residuals.append(FitNumber("", "likelihood ratio", penalised.ratio, shown))
    return likelihood, residuals


def _measure(key: str, name: str, value: float | None) -> FitNumber:
    return FitNumber(key, name if value is not None else "", value, decimals(value, ",.6g"))


def references(plan: Plan) -> dict[str, str]:
    """The level of each category that the others are compared with, by its text in the formula.

    A category that is coded fully, or by contrasts such as ``contr.sum``, has none.
    """
    columns = plan.design_columns
    found = {}
    for block in itertools.chain.from_iterable(columns.terms):
        category = columns.categories[block.place]
        if category is None or block.table is None:
            continue
        levels = category.levels(plan.schema)
        for at in np.flatnonzero((block.table == 0).all(axis=1)):
            found[columns.factors[block.place].text] = str(levels[at])
    return found


def specification(model: FittedModel) -> dict[str, Any]:
    """What was fitted, as JSON can hold it; the keys are those of ``Model.to_dict``."""
    settings, plan = model.settings, model.plan
    penalised = ("ridge", "l1", "standardize", "nonnegative", "firth")
    penalty = {name: getattr(settings, name) for name in penalised}
    levels = references(plan)
    reference = model.family.reference(plan.classes)
    if reference is not None:
        levels[plan.parsed.target] = str(reference)
    return {
        "weights": plan.weights,
        "offset": plan.offset,
        "exposure": plan.exposure,
        "penalty": penalty if settings.biased is not None or settings.firth else None,
        "delta": model.delta,
        "residual_deviation": _json(model.spread),
        "reference": levels,
        "missing_values": dict(model.missing_values),
        "rows_left_out": model.rows_left_out,
    }


def specification_lines(model: FittedModel) -> Iterator[str]:
    """What was fitted beside the formula, in words: a line each, for those that there are."""
    found = specification(model)
    roles = [f"{role} {found[role]}" for role in ("weights", "offset", "exposure") if found[role]]
    if found["delta"] is not None:
        spread = found["residual_deviation"]
        of = f" ({model.settings.delta:g} robust deviations of {spread:.4g})" if spread else ""
        roles.append(f"delta {found['delta']:.4g}{of}")
    else:
        roles += [f"{name} {value:.4g}" for name, value in parameters_of(model.family).items()]
    if roles:
        yield "   ".join(roles)
    settings = model.settings
    sizes = [f"{name} {value:g}" for name in ("ridge", "l1") if (value := getattr(settings, name))]
    if settings.nonnegative:
        sizes.append(f"{listed(settings.nonnegative, 6)} not negative")
    if sizes:  # Firth's penalty has no size, and is said in the title
        yield f"penalty: {', '.join(sizes)}{', on standardized columns' * settings.standardize}"
    if levels := [f"{text} {level}" for text, level in references(model.plan).items()]:
        yield f"reference levels: {listed(levels, 12)}"
    if left_out := found["rows_left_out"]:
        lacking = [f"{column} {count:,}" for column, count in found["missing_values"].items()]
        values = f"missing values: {listed(lacking, 12)}; " if lacking else ""
        yield f"{values}{left_out:,} row{'s' * (left_out != 1)} left out"


def title(model: FittedModel) -> str:
    """What kind of regression it is."""
    kind = f"{model.family.name} regression"
    return f"Firth's {kind}" if model.settings.firth else kind


def about_classes(model: FittedModel) -> list[str]:
    """What the coefficients of a classifier are about."""
    if model.modelled is not None:
        return [f"modelled: {model.modelled}"]
    reference = model.family.reference(model.plan.classes)
    return [] if reference is None else [f"reference: {reference}"]


def absent(model: FittedModel) -> Iterator[str]:
    """What the table of coefficients lacks, and why."""
    estimates = model.estimates
    if estimates.not_estimable:
        grows = [f"{name} ({sign})" for name, sign in estimates.not_estimable.items()]
        yield f"not estimable: {listed(grows, 12)}"
    if estimates.aliased:
        yield f"aliased with those before: {listed(estimates.aliased, 12)}"
    if estimates.robust is not None:
        alone = np.isnan(np.diag(estimates.robust.matrix)) & np.isfinite(estimates.values)
        if alone.any():
            lacking = listed(model.params.index[alone], 12)
            yield f"no robust standard error: {lacking} (one client alone determines it)"
    if model.se_reason is not None:
        yield f"no standard errors: {model.se_reason}"
    elif not model.settled:
        yield "no standard errors: the fit did not converge"


def to_dict(model: FittedModel) -> dict[str, Any]:
    """All numbers of the summary of any model, as JSON can hold them."""
    interval: pd.DataFrame | dict[str, None] = {"lower": None, "upper": None}
    if model.bse is not None:
        interval = model.conf_int()
    by_coefficient = {
        "coef": model.params,
        "se": model.bse,
        "z": model.tvalues,
        "p": model.pvalues,
        "lower": interval["lower"],
        "upper": interval["upper"],
        "robust_se": model.robust_bse,
        "robust_df": model.robust_df,
    }
    run = model.run
    return {
        "formula": model.formula,
        "agreed": model.plan.agreed,
        "family": model.family.name,
        "modelled": model.modelled,
        **specification(model),
        **{key: _by_name(values) for key, values in by_coefficient.items()},
        "se_reason": model.se_reason,
        "statistic": model.statistic,
        "n": model.nobs,
        **dict.fromkeys(POOLED),
        "dispersion": _json(model.dispersion),
        "exchanges": model.exchanges,
        "rounds": run.rounds,
        "floats": run.floats,
        "converged": run.converged,
        "certificate": dataclasses.asdict(run.certificate),
        "aliased": list(model.estimates.aliased),
        "not_estimable": dict(model.estimates.not_estimable),
        "removed": model.removed,
        "incidents": [each._asdict() for each in run.incidents],
        "logs": dict(run.logs),
        "summed": list(run.summed),
        "privacy": None,
        "warnings": list(model.warnings),
    }


def pooled_numbers(model: Model) -> dict[str, Any]:
    """What JSON has of a pooled fit alone: the values of ``POOLED``."""
    test = model.f_test
    return {
        "clients": [
            {key: _json(value) for key, value in row.items()}
            for row in model.clients.reset_index().to_dict("records")
        ],
        **{each.key: _json(each.value) for line in measures(model) for each in line if each.key},
        "df_residual": model.df_resid,
        "df_null": model.df_null,
        "f_test": test
        and dict(zip(("value", "df_model", "df_residual", "p"), map(_json, test), strict=True)),
        "penalised": _penalised(model),
    }


def _penalised(model: Model) -> dict[str, Any] | None:
    """Of Firth's regression; ``information_se`` are standard errors without augmentation."""
    penalised = model.fit.penalised
    if penalised is None:
        return None
    errors = model.estimates.series(model.estimates.errors, "se")
    return {
        "log_likelihood": _json(penalised.value),
        "null_log_likelihood": _json(penalised.null),
        "likelihood_ratio": _json(penalised.ratio),
        "df": penalised.df,
        "p": _json(penalised.p),
        "information_se": _by_name(errors),
    }


def _by_name(values: pd.Series | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {str(name): _json(float(value)) for name, value in values.items()}


def _json(value: Any) -> Any:
    """A value as JSON can hold it: None in place of a number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: float | None) -> str:
    """Four decimals, or scientific notation where they would be long or all zero."""
    if value is None or pd.isna(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}"
    return f"{value:.3e}"


def decimals(value: float | None, form: str = ".3f") -> str:
    """A number in this form, or a dash where there is none."""
    if value is None or pd.isna(value):
        return "–"
    return format(value, form)


def p_value(p: float) -> str:
    """Three decimals, or that it is less than the least of them."""
    return "< 0.001" if p < 0.001 else decimals(p)
