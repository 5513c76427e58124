"""Sums over the complete rows of a table that functions such as ``poly`` and ``cut`` depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.data.formula.model_frame import ModelFrame
from fedsplit.data.formula.pooled_functions import outside
from fedsplit.data.pooled.column_statistics import ColumnStatistic, Histogram, Withheld
from fedsplit.errors import InputError, RowError
from fedsplit.regression.client.plan import Plan
from fedsplit.statistic import AnswerLimit, Part, RowSum, Shape, Statistic, Sums

MOST_HISTOGRAMS = 8
"""Of a column of the file, in all studies. A fit needs one for a function without knots, and the
same one again is free. Which counts are withheld tells something about single rows each time."""


@dataclass(frozen=True)
class TableRows:
    """The complete rows of a client, before there is a design.

    Attributes
    ----------
    name : str
        Of the client.
    plan : Plan
    frame : ModelFrame
    withheld : Withheld
        Which counts do not leave the client.
    """

    name: str
    plan: Plan
    frame: ModelFrame
    withheld: Withheld

    @property
    def used(self) -> Mask:
        """Which rows have a value in every function: ``cut`` may lack one."""
        return ~outside(self.plan.parsed.pooled, self.frame)

    def argument(self, text: str) -> Array:
        """The argument of a function in the formula, (n,), by the text of its call."""
        calls = {call.text: call for call in self.plan.parsed.pooled}
        if text not in calls:
            raise InputError(f"client {self.name}: {text} is not in the formula")
        try:
            with np.errstate(all="ignore"):  # values that are not finite are named below
                values = calls[text].argument(self.frame)
        except ValueError as error:
            raise InputError(f"client {self.name}: {text}: {error}") from None
        valid = np.isfinite(values)
        if not valid.all():
            first = int(np.argmin(valid))
            row = self.frame.frame.index[first] + 1
            where = f"client {self.name}"
            raise RowError(
                f"{where}, row {row}: the column of {text} is {values[first]:g}; it must be finite",
                f"{where}: the column of {text} has {int((~valid).sum())} values that are not "
                "finite (its own log says where)",
            )
        return values


@dataclass(frozen=True)
class RowsInside(Statistic):
    """How many complete rows have a value in every function: ``rows``."""

    of_table = True

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"rows": Sums(nonnegative=True)}

    def sums(self, rows: TableRows) -> Mapping[str, Part]:
        used = rows.used.astype(np.float64)[:, None]
        return {"rows": RowSum(used, np.ones_like(used))}


@dataclass(frozen=True)
class OfArgument(Statistic):
    """A statistic of the argument of a function in the formula: ``part``.

    Attributes
    ----------
    text : str
        Of the call, such as ``scale(x)``.
    statistic : ColumnStatistic
    """

    text: str
    statistic: ColumnStatistic

    of_table = True

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"part": self.statistic.shape}

    def sums(self, rows: TableRows) -> Mapping[str, Part]:
        return {"part": self.statistic.part(rows.argument(self.text), rows.withheld)}

    def limits(self, plan: Plan) -> list[AnswerLimit]:
        """Histograms of a column are few.

        The same one is recognised by what was asked for: whether two columns have the same values
        is an answer about rows.
        """
        if not isinstance(self.statistic, Histogram):
            return []
        derived = (set(column.plan.types) for column in plan.derived.values())
        same = self.text, self.statistic, sorted(set(plan.types).union(*derived))
        columns = [call.columns for call in plan.parsed.pooled if call.text == self.text]
        return [
            AnswerLimit(
                f"histogram of {column}",
                MOST_HISTOGRAMS,
                same,
                f"it has disclosed {MOST_HISTOGRAMS} histograms of column {column}, and its rules "
                f"allow no more: write the knots or breaks of {self.text}",
            )
            for column in dict.fromkeys(column for own in columns for column in own)
        ]
