"""A client's part of what functions such as ``poly`` and ``cut`` need to know of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.model_frame import ModelFrame
from fedsplit.data.formula.pooled_functions import outside
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.errors import InputError, RowError
from fedsplit.regression.client import disclosure
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.rules import Rules


class Measured(NamedTuple):
    """What a client answers to ``Measure``.

    Attributes
    ----------
    used : int
        How many of its complete rows have a value in every function: ``cut`` may lack one.
    parts : mapping of str to array
        Its part of each statistic.
    warnings : sequence of Finding
        What they could disclose of single rows.
    """

    used: int
    parts: Mapping[str, Array]
    warnings: Sequence[Finding]


def measure(
    client: str,
    formula: Formula,
    rows: ModelFrame,
    statistics: Mapping[str, Statistic],
    rules: Rules,
) -> Measured:
    """Compute a client's part of statistics.

    Parameters
    ----------
    client : str
        Whose rows they are.
    formula : Formula
    rows : ModelFrame
        The complete rows.
    statistics : mapping of str to Statistic
        By the text of a function in the formula, what is asked of its argument.
    rules : Rules
    """
    used = int((~outside(formula.pooled, rows)).sum())
    calls = {call.text: call for call in formula.pooled}
    columns = {}
    sums: Counter[str] = Counter()
    for text, statistic in statistics.items():
        if text not in calls:
            raise InputError(f"client {client}: {text} is not in the formula")
        try:
            with np.errstate(all="ignore"):  # values that are not finite are named below
                values = calls[text].argument(rows)
        except ValueError as error:
            raise InputError(f"client {client}: {text}: {error}") from None
        _check_finite(client, text, values, rows)
        columns[text] = values
        sums.update(dict.fromkeys(calls[text].columns, statistic.sums))
    warnings = disclosure.in_sums(client, columns, sums, rules)
    warnings += disclosure.in_columns(client, used, {}, {}, rules)
    disclosure.refuse(warnings, rules)
    parts = {
        text: statistic.part(columns[text], rules.smallest)
        for text, statistic in statistics.items()
    }
    return Measured(used, parts, warnings)


def _check_finite(client: str, text: str, values: Array, rows: ModelFrame) -> None:
    valid: Mask = np.isfinite(values)
    if not valid.all():
        first = int(np.argmin(valid))
        row = rows.frame.index[first] + 1
        raise RowError(
            f"client {client}, row {row}: the column of {text} is {values[first]:g}; "
            "it must be finite",
            f"client {client}: the column of {text} has {int((~valid).sum())} values that are not "
            "finite (its own log says where)",
        )


def check_measured(entry: Measured, statistics: Mapping[str, Statistic]) -> str:
    """What is wrong with a client's part of these statistics: an empty text if nothing is."""
    if set(entry.parts) != set(statistics) or entry.used < 0:
        return "sums of other functions, or a negative count"
    for text, part in entry.parts.items():
        wrong = statistics[text].check(part)
        if wrong:
            return wrong
    return ""
