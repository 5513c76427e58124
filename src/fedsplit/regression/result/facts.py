"""The facts of a fit, once each: table, JSON and page say them from here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fedsplit.data.formula.formula import Formula
from fedsplit.errors import listed
from fedsplit.regression.client.plan import Plan

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model


class FitNumber(NamedTuple):
    """A number that says how well a model fits.

    Attributes
    ----------
    key, name : str
        In JSON, and in the table and on the page; empty where it is not there.
    value : float or None
    shown : str
        As the table and the page have it.
    """

    key: str
    name: str
    value: float | None
    shown: str


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


def terms(plan: Plan) -> dict[str, list[str]]:
    """The columns of each term of the formula, by the text of the term."""
    columns = plan.design_columns
    names = iter(columns.names)
    found = {"Intercept": [next(names)]} if columns.intercept else {}
    for blocks in columns.terms:
        text = ":".join(columns.factors[block.place].text for block in blocks)
        width = math.prod(len(block.endings) for block in blocks)
        found[text] = list(itertools.islice(names, width))
    return found


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


def specification(model: Model) -> dict[str, Any]:
    """What was fitted, as JSON can hold it; the keys are those of ``Model.to_dict``."""
    settings, plan = model.settings, model.plan
    penalised = ("ridge", "l1", "standardize", "nonnegative", "firth")
    penalty = {name: getattr(settings, name) for name in penalised}
    levels = references(plan)
    reference = model.family.reference(plan.classes)
    if reference is not None:
        levels[Formula(plan.formula).target] = str(reference)
    return {
        "weights": plan.weights,
        "offset": plan.offset,
        "exposure": plan.exposure,
        "penalty": penalty if settings.biased is not None or settings.firth else None,
        "delta": model.delta,
        "residual_deviation": _json(model.fit.spread),
        "reference": levels,
        "missing_values": dict(model.fit.missing_values),
        "rows_left_out": int(model.clients["missing"].sum()),
    }


def specification_lines(model: Model) -> Iterator[str]:
    """What was fitted beside the formula, in words: a line each, for those that there are."""
    found = specification(model)
    roles = [f"{role} {found[role]}" for role in ("weights", "offset", "exposure") if found[role]]
    if found["delta"] is not None:
        spread = found["residual_deviation"]
        of = f" ({model.settings.delta:g} robust deviations of {spread:.4g})" if spread else ""
        roles.append(f"delta {found['delta']:.4g}{of}")
    if roles:
        yield "   ".join(roles)
    if settings := found["penalty"]:
        sizes = [f"{name} {settings[name]:g}" for name in ("ridge", "l1") if settings[name]]
        if settings["nonnegative"]:
            sizes.append(f"{listed(settings['nonnegative'], 6)} not negative")
        if sizes and settings["standardize"]:
            sizes.append("on standardized columns")
        if sizes:
            yield f"penalty: {', '.join(sizes)}"
    if levels := [f"{text} {level}" for text, level in references(model.plan).items()]:
        yield f"reference levels: {listed(levels, 12)}"
    if left_out := found["rows_left_out"]:
        lacking = [f"{column} {count:,}" for column, count in found["missing_values"].items()]
        values = f"missing values: {listed(lacking, 12)}; " if lacking else ""
        yield f"{values}{left_out:,} row{'s' * (left_out != 1)} left out"


def title(model: Model) -> str:
    """What kind of regression it is."""
    kind = f"{model.family.name} regression"
    return f"Firth's {kind}" if model.settings.firth else kind


def about_classes(model: Model) -> list[str]:
    """What the coefficients of a classifier are about."""
    if model.modelled is not None:
        return [f"modelled: {model.modelled}"]
    reference = model.family.reference(model.plan.classes)
    return [] if reference is None else [f"reference: {reference}"]


def absent(model: Model) -> Iterator[str]:
    """What the table of coefficients lacks, and why."""
    if model.not_estimable:
        grows = [f"{name} ({sign})" for name, sign in model.not_estimable.items()]
        yield f"not estimable: {listed(grows, 12)}"
    if model.aliased:
        yield f"aliased with those before: {listed(model.aliased, 12)}"
    if model.robust_bse is not None:
        alone = model.robust_bse.index[model.robust_bse.isna() & model.params.notna()]
        if len(alone):
            yield f"no robust standard error: {listed(alone, 12)} (one client alone determines it)"
    if model.se_reason is not None:
        yield f"no standard errors: {model.se_reason}"
    elif not model.settled:
        yield "no standard errors: the fit did not converge"


def to_dict(model: Model) -> dict[str, Any]:
    """All numbers of a model's summary, as JSON can hold them."""
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
    run, test = model.run, model.f_test
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
        "exchanges": model.exchanges,
        "rounds": model.rounds,
        "floats": run.floats,
        "converged": model.converged,
        "certificate": dataclasses.asdict(model.certificate),
        "aliased": list(model.aliased),
        "not_estimable": model.not_estimable,
        "removed": model.removed,
        "incidents": [each._asdict() for each in run.incidents],
        "logs": dict(run.logs),
        "summed": list(run.summed),
        "privacy": None,
        "warnings": list(model.warnings),
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
