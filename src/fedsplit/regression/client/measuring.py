"""A client's part of what functions such as ``poly`` and ``cut`` need to know of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.sums import rounded, rounded_products
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.model_frame import ModelFrame
from fedsplit.data.formula.pooled_functions import outside
from fedsplit.data.pooled.column_statistics import (
    ColumnMoments,
    GramMatrix,
    Histogram,
    Statistic,
)
from fedsplit.errors import InputError, RequestError, RowError
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.guards import thresholds
from fedsplit.regression.client.guards.ledger import DisclosureLedger
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.remote import codec

MOST_HISTOGRAMS = 8
"""Of a column of the file, in all studies. A fit needs one for a function without knots, and the
same one again is free. Which counts are withheld tells something about single rows each time."""


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
    plan: Plan,
    rows: ModelFrame,
    statistics: Mapping[str, Statistic],
    rules: Rules,
    ledger: DisclosureLedger,
    version: str,
) -> Measured:
    """Compute a client's part of statistics.

    Parameters
    ----------
    client : str
        Whose rows they are.
    plan : Plan
    rows : ModelFrame
        The complete rows.
    statistics : mapping of str to Statistic
        By the text of a function in the formula, what is asked of its argument.
    rules : Rules
    ledger : DisclosureLedger
        Where histograms are counted.
    version : str
        Which rows they are.
    """
    formula = plan.parsed
    used = int((~outside(formula.pooled, rows)).sum())
    columns = arguments(client, formula, rows, statistics)
    sums: Counter[str] = Counter()
    for call in formula.pooled:
        if call.text in statistics:
            sums.update(dict.fromkeys(call.columns, statistics[call.text].sums))
    warnings = thresholds.in_sums(client, columns, sums, rules)
    warnings += thresholds.in_columns(client, used, {}, rules)
    thresholds.refuse(warnings, rules)
    if rules.refuse:
        for text, statistic in statistics.items():
            own = statistic.columns(columns[text], rules.withheld)
            thresholds.check_digits(client, [text] * own.shape[1], own)
        _count_histograms(plan, version, statistics, ledger)
    parts = {
        text: statistic.part(columns[text], rules.withheld)
        for text, statistic in statistics.items()
    }
    if rules.refuse:
        parts = {text: _rounded(statistics[text], part) for text, part in parts.items()}
    return Measured(used, parts, warnings)


def _count_histograms(
    plan: Plan, version: str, statistics: Mapping[str, Statistic], ledger: DisclosureLedger
) -> None:
    """Raise RequestError if there have been enough histograms of a column.

    The same one is recognised by what was asked for: whether two columns have the same values is
    an answer about rows.
    """
    derived = (set(column.plan.types) for column in plan.derived.values())
    complete = sorted(set(plan.types).union(*derived))
    for call in plan.parsed.pooled:
        statistic = statistics.get(call.text)
        if not isinstance(statistic, Histogram):
            continue
        key = sha256(codec.encode((call.text, statistic, complete, version))).hexdigest()
        tags = [f"histogram of {column}" for column in call.columns]
        for column, tag in zip(call.columns, tags, strict=True):
            if key not in ledger and ledger.count(tag) >= MOST_HISTOGRAMS:
                raise RequestError(
                    f"it has disclosed {MOST_HISTOGRAMS} histograms of column {column}, and its "
                    f"rules allow no more: write the knots or breaks of {call.text}"
                )
        ledger.add(key, [], tags)


def _rounded(statistic: Statistic, part: Array) -> Array:
    """A client's part of a statistic without rounding errors."""
    match statistic:
        case GramMatrix():
            return rounded_products(part)
        case ColumnMoments():
            n, mean, scatter = part
            size = np.sqrt(scatter / max(n, 1.0) + mean**2)
            return rounded(part, np.array([n, size, scatter]))
        case Histogram():
            return part


def measured_columns(
    client: str,
    plan: Plan,
    rows: ModelFrame,
    statistics: Mapping[str, Statistic],
    rules: Rules,
) -> list[Array]:
    """The columns of which products are summed: which rows have a value, and those of functions."""
    columns = arguments(client, plan.parsed, rows, statistics)
    used = ~outside(plan.parsed.pooled, rows)
    found = [used.astype(np.float64)[:, None]]
    return found + [
        statistic.columns(columns[text], rules.withheld) for text, statistic in statistics.items()
    ]


def arguments(
    client: str, formula: Formula, rows: ModelFrame, statistics: Mapping[str, Statistic]
) -> dict[str, Array]:
    """The values that statistics are of, (n,), by the text of their functions."""
    calls = {call.text: call for call in formula.pooled}
    columns = {}
    for text in statistics:
        if text not in calls:
            raise InputError(f"client {client}: {text} is not in the formula")
        try:
            with np.errstate(all="ignore"):  # values that are not finite are named below
                values = calls[text].argument(rows)
        except ValueError as error:
            raise InputError(f"client {client}: {text}: {error}") from None
        _check_finite(client, text, values, rows)
        columns[text] = values
    return columns


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
