"""A client's part of what functions such as ``poly`` and ``cut`` need to know of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from fedsplit.regression.client.guards import disclosure
from fedsplit.regression.client.guards.answered import Asked
from fedsplit.regression.client.guards.blocks import Block
from fedsplit.regression.client.guards.matrices import Ledger
from fedsplit.regression.client.guards.rules import Rules
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
    formula: Formula,
    rows: ModelFrame,
    statistics: Mapping[str, Statistic],
    rules: Rules,
    admit: Callable[[Callable[[], Block]], None],
    histograms: Callable[[str], Ledger],
    asked: Asked,
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
    admit : callable
        Called with what makes the columns that are told of; refuses those that single out rows.
    histograms : callable
        Called with a name for a column; returns the ledger of its histograms.
    asked : Asked
        Which rows they are.
    """
    used = int((~outside(formula.pooled, rows)).sum())
    columns = arguments(client, formula, rows, statistics)
    sums: Counter[str] = Counter()
    for call in formula.pooled:
        if call.text in statistics:
            sums.update(dict.fromkeys(call.columns, statistics[call.text].sums))
    warnings = disclosure.in_sums(client, columns, sums, rules)
    warnings += disclosure.in_columns(client, used, {}, rules)
    disclosure.refuse(warnings, rules)
    if rules.refuse:
        for text, statistic in statistics.items():
            told = statistic.columns(columns[text], rules.withheld)
            disclosure.check_digits(client, [text] * told.shape[1], told)
        _count_histograms(formula, asked, statistics, histograms)
    admit(partial(of_measures, formula, rows, columns, statistics, rules))
    parts = {
        text: statistic.part(columns[text], rules.withheld)
        for text, statistic in statistics.items()
    }
    if rules.refuse:
        parts = {text: _rounded(statistics[text], part) for text, part in parts.items()}
    return Measured(used, parts, warnings)


def _count_histograms(
    formula: Formula,
    asked: Asked,
    statistics: Mapping[str, Statistic],
    ledger_of: Callable[[str], Ledger],
) -> None:
    """Raise RequestError if there have been enough histograms of a column.

    The same one is recognised by what was asked for: whether two columns have the same values is
    an answer about rows.
    """
    for call in formula.pooled:
        statistic = statistics.get(call.text)
        if not isinstance(statistic, Histogram):
            continue
        digest = sha256(codec.encode((call.text, statistic, asked.same_rows))).hexdigest()
        for column in call.columns:
            ledger = ledger_of(sha256(column.encode()).hexdigest())
            if digest in ledger:
                continue
            if ledger.total >= MOST_HISTOGRAMS:
                raise RequestError(
                    f"it has told {MOST_HISTOGRAMS} histograms of column {column}, and its rules "
                    f"allow no more: write the knots or breaks of {call.text}"
                )
            ledger.add(digest, 1)


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


def of_measures(
    formula: Formula,
    rows: ModelFrame,
    columns: Mapping[str, Array],
    statistics: Mapping[str, Statistic],
    rules: Rules,
) -> Block:
    """The columns that statistics tell of: which rows have a value, and what is summed.

    Their rows are numbered as those of the frame.
    """
    used = ~outside(formula.pooled, rows)
    found: list[Array] = [used.astype(np.float64)[:, None]]
    for text, statistic in statistics.items():
        found.append(statistic.columns(columns[text], rules.withheld))
    told = np.hstack(found)
    return Block(told, rows.frame.index.to_numpy(dtype=np.intp), told)


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
