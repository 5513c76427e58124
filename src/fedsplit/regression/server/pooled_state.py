"""Agreement on what functions such as ``poly`` and ``cut`` have to know of the rows of all clients.

It comes between the description of the columns and the coding of the rows, and only if the formula
has such a function. Sums and coarse histograms are asked for in two or three passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fedsplit.arrays import Array
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.pooled_functions import CATEGORIES
from fedsplit.data.pooled.agreement import agree_on_states
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.errors import InputError
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.introduction import askings
from fedsplit.regression.client.measuring import Measured
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions.columns import Measure
from fedsplit.regression.server.federation import AboutRows, CodedRows, FitDriver
from fedsplit.remote.members import Members


class PooledState(NamedTuple):
    """What the clients agreed on.

    Attributes
    ----------
    plan : Plan
        With the state of every function.
    used : dict of str to int
        By client, the complete rows that have a value in every function; empty if none was asked.
    warnings : list of Finding
        What the sums could disclose of single rows.
    """

    plan: Plan
    used: dict[str, int]
    warnings: list[Finding]


def agree_on_state(
    members: Members, plan: Plan, strict: bool, told: Mapping[str, Measured] | None = None
) -> PooledState:
    """Ask the clients that take part for what the functions of a formula need.

    Parameters
    ----------
    members : Members
        The clients that take part.
    plan : Plan
        Complete but for the state.
    strict : bool
        Whether clients refuse answers that could disclose single rows.
    told : mapping of str to Measured, optional
        By client, what it has told of the first statistics, if all of them have.

    Raises
    ------
    InputError
        If there is no such function of these rows, such as a polynomial of too high a degree.
    """
    formula = Formula(plan.formula)
    rows = CodedRows(tuple(members.names), plan, strict)
    used: dict[str, int] = {}
    warnings: list[Finding] = []

    def ask(wanted: Mapping[str, Statistic]) -> dict[str, Array]:
        if told is not None and not used:
            measured = [told[name] for name in members.names]
        else:
            measured = FitDriver(members).ask(AboutRows(rows, partial(Measure, statistics=wanted)))
        used.update(zip(members.names, [each.used for each in measured], strict=True))
        warnings.extend(finding for each in measured for finding in each.warnings)
        return {
            text: statistic.total([each.parts[text] for each in measured])
            for text, statistic in wanted.items()
        }

    try:
        states = agree_on_states(askings(formula), ask)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"formula {plan.formula!r}: {error}") from None
    if not used and any(call.function in CATEGORIES for call in formula.pooled):
        ask({})
    return PooledState(replace(plan, state=states), used, list(dict.fromkeys(warnings)))
