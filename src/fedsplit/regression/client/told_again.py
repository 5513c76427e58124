"""The columns of something that a client was asked for before, computed again."""

from __future__ import annotations

from collections.abc import Mapping

from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.model_frame import ModelFrame
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.guards.answered import Asked
from fedsplit.regression.client.guards.blocks import (
    Block,
    of_calibration,
    of_combinations,
    of_design,
    of_survey,
)
from fedsplit.regression.client.guards.rules import WARN, Rules
from fedsplit.regression.client.measuring import arguments, of_measures
from fedsplit.regression.client.plan import Plan


def told_again(dataset: Dataset, asked: Asked, rules: Rules) -> Block:
    """The columns of something that was asked for before, of the rows of a dataset."""
    plan = asked.plan
    if asked.survey:
        block = of_survey(dataset.complete(plan), plan)
    elif asked.statistics is not None:
        rows = plan.rows(dataset.complete(plan))
        block = _of_statistics(dataset, Formula(plan.formula), rows, asked.statistics, rules)
    else:
        return _of_rows(dataset, asked, plan, rules)
    return block._replace(rows=dataset.numbers(block.rows))


def _of_statistics(
    dataset: Dataset,
    formula: Formula,
    rows: ModelFrame,
    statistics: Mapping[str, Statistic],
    rules: Rules,
) -> Block:
    columns = arguments(dataset.name, formula, rows, statistics)
    return of_measures(formula, rows, columns, statistics, rules)


def _of_rows(dataset: Dataset, asked: Asked, plan: Plan, rules: Rules) -> Block:
    design, _ = dataset.code(plan, WARN)
    for recession in asked.recessions:
        design = design.at_rest(recession)
    if asked.scaling is None:
        return of_design(design)
    if asked.point is not None:
        design.scale(asked.scaling)
        return of_calibration(design, asked.point, rules.withheld)
    return of_combinations(design, asked)
