"""Table 1: means and counts of columns by group, with small cells suppressed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.texts import level_codes
from fedsplit.dialogue import Dialogue, together
from fedsplit.federation.dialogues import DialogueAnalysis
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.statistics import TableRows
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import agree_on_rows
from fedsplit.regression.server.federation import sums_of
from fedsplit.statistic import RowSum, Shape, Statistic, StatisticPart, Sums


@dataclass(frozen=True)
class ByGroup(Statistic):
    """Of one column, by the classes of the target: Σ1, Σv, Σv² of numbers, or counts of levels."""

    column: str

    of_table = True

    def shapes(self, plan: Plan) -> Mapping[str, Shape]:
        width = len(plan.levels.get(self.column, ("n", "sum", "squares")))
        return {"table": Sums(len(plan.classes), width)}

    def sums(self, rows: TableRows) -> Mapping[str, StatisticPart]:
        plan, frame = rows.plan, rows.frame.frame
        groups = _indicators(str(plan.parsed.target_column), frame, plan.classes)
        if self.column in plan.levels:
            return {
                "table": RowSum(groups, _indicators(self.column, frame, plan.levels[self.column]))
            }
        v = frame[self.column].to_numpy(dtype=np.float64)
        return {"table": RowSum(groups, np.column_stack([np.ones(len(v)), v, v**2]))}


def _indicators(column: str, frame: pd.DataFrame, levels: Sequence[Any]) -> Array:
    """Of each level, (n, levels)."""
    codes = level_codes(column, frame[column], levels)
    return np.asarray(codes[:, None] == np.arange(len(levels)), dtype=np.float64)


def describe(columns: Sequence[str], group: str, smallest: int = 5) -> Any:
    """Describe columns by the levels of a group; cells of fewer rows than ``smallest`` are NaN."""

    def dialogue(settings: Settings) -> Dialogue[pd.DataFrame]:
        blocks = {name: _describe_column(name, group, smallest, settings) for name in columns}
        found = yield from together(blocks)
        return pd.concat(list(found.values()))

    return dialogue


def _describe_column(
    name: str, group: str, smallest: int, settings: Settings
) -> Dialogue[pd.DataFrame]:
    """Describe one column, over the rows that have it and the group."""
    # groups are the classes of a target: no model of them is fitted
    grouped = replace(settings, family="multinomial")
    agreed = yield from agree_on_rows(f"{group} ~ {name}", grouped)
    plan = agreed.plan
    table = (yield from sums_of(agreed.coding, {"": ByGroup(name)}))[""]["table"]
    groups = [str(each) for each in plan.classes]
    if name in plan.levels:
        labels = [f"{name} = {level}" for level in plan.levels[name]]
        return pd.DataFrame(suppressed(table, smallest).T, labels, groups)
    n, total, squares = table.T
    with np.errstate(invalid="ignore", divide="ignore"):  # groups of no row or one
        deviation = np.sqrt((squares - total**2 / n) / (n - 1))
        values = np.where(n < smallest, np.nan, [n, total / n, deviation])
    return pd.DataFrame(values, [f"{name}: {what}" for what in ("n", "mean", "sd")], groups)


def suppressed(counts: Array, smallest: int) -> Array:
    """Counts, (groups, levels), with NaN for small ones, and for a second one where it is needed.

    Row and column totals are known to readers, so that a single missing cell of a row or a column
    follows from the others: the next smallest cell there goes as well, until there is none left.
    """
    table = np.where((counts > 0) & (counts < smallest), np.nan, counts)
    lines = [*table, *table.T]  # views: what is suppressed in a row is so in its column
    while True:
        exposed = [line for line in lines if np.isnan(line).sum() == 1 and (line > 0).any()]
        if not exposed:
            return table
        line = exposed[0]
        # the smallest cell that is left hides the other at the least loss
        line[np.nanargmin(np.where(line > 0, line, np.nan))] = np.nan


@dataclass(frozen=True, kw_only=True)
class Description(DialogueAnalysis):
    """Table 1 as a study."""

    name: ClassVar[str] = "describe"

    described: Sequence[str]
    group: str
    smallest: int = 5

    @property
    def models(self) -> Mapping[str, str]:
        return {f"{self.group} ~ {name}": "multinomial" for name in self.described}

    def dialogue(self) -> Any:
        return describe(self.described, self.group, self.smallest)
