"""What was fitted: terms, reference levels, columns with a role, penalties, rows left out."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsplit.data.formula.formula import Formula
from fedsplit.errors import listed
from fedsplit.regression.client.plan import Plan

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model


def terms(plan: Plan) -> dict[str, list[str]]:
    """The columns of each term of the formula, by the text of the term."""
    columns = Formula(plan.formula).compile(plan.schema)
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
    columns = Formula(plan.formula).compile(plan.schema)
    found = {}
    for block in itertools.chain.from_iterable(columns.terms):
        category = columns.categories[block.place]
        if category is None or block.table is None:
            continue
        levels = category.levels(plan.schema)
        for at in np.flatnonzero((block.table == 0).all(axis=1)):
            found[columns.factors[block.place].text] = str(levels[int(at)])
    return found


def specification(model: Model) -> dict[str, Any]:
    """What was fitted, as JSON can hold it; the keys are those of ``Model.to_dict``."""
    settings, plan = model.settings, model.plan
    penalty = {
        "ridge": settings.ridge,
        "l1": settings.l1,
        "standardize": settings.standardize,
        "nonnegative": list(settings.nonnegative),
        "firth": settings.firth,
    }
    return {
        "weights": plan.weights,
        "offset": plan.offset,
        "exposure": plan.exposure,
        "penalty": penalty if settings.biased is not None or settings.firth else None,
        "delta": settings.delta if model.family.name == "huber" else None,
        "reference": references(plan),
        "missing_values": dict(model.fit.missing_values),
        "rows_left_out": int(model.clients["missing"].sum()),
    }


def specification_lines(model: Model) -> list[str]:
    """What was fitted beside the formula, in words: a line each, for those that there are."""
    found = specification(model)
    roles = [f"{role} {found[role]}" for role in ("weights", "offset", "exposure") if found[role]]
    if found["delta"] is not None:
        roles.append(f"delta {found['delta']:g}")
    lines = ["   ".join(roles)]
    if settings := found["penalty"]:
        sizes = [f"{name} {settings[name]:g}" for name in ("ridge", "l1") if settings[name]]
        if settings["nonnegative"]:
            sizes.append(f"{listed(settings['nonnegative'], 6)} not negative")
        if sizes and settings["standardize"]:
            sizes.append("on standardized columns")
        lines.append(f"penalty: {', '.join(sizes)}" if sizes else "")
    levels = [f"{text} {level}" for text, level in found["reference"].items()]
    lines.append(f"reference levels: {listed(levels, 12)}" if levels else "")
    if left_out := found["rows_left_out"]:
        lacking = [f"{column} {count:,}" for column, count in found["missing_values"].items()]
        values = f"missing values: {listed(lacking, 12)}; " if lacking else ""
        lines.append(f"{values}{left_out:,} row{'s' * (left_out != 1)} left out")
    return [line for line in lines if line]
