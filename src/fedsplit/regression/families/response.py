"""The response of a client's rows: the vectors on the left of a formula, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.errors import RowError
from fedsplit.regression.families.grouped import whole

if TYPE_CHECKING:  # a plan has a family, and a family reads the rows of a plan
    import pandas as pd

    from fedsplit.regression.client.plan import BasicPlan


def numbers(plan: BasicPlan, frame: pd.DataFrame) -> Array:
    """The target as numbers, (n,)."""
    return plan.parsed.response(frame, plan.schema)


def codes(plan: BasicPlan, frame: pd.DataFrame) -> Array:
    """The place of each row's class among those of the plan, (n,)."""
    from fedsplit.data.categories import level_codes  # pandas takes a second to import

    column = str(plan.parsed.target_column)
    return level_codes(column, frame[column], plan.classes).astype(np.float64)


def counts(plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
    """The ``successes`` and ``failures`` of a target ``cbind(successes, failures)``."""
    formula = plan.parsed
    found = formula.pair(frame, plan.schema)
    for name, values in zip(formula.grouped or (), found, strict=True):
        why = "a count in cbind(successes, failures) is a whole number from 0 on"
        check_rows(whole(values), frame, values, where, name, why)
    return dict(zip(("successes", "failures"), found, strict=True))


def check_rows(
    valid: Mask, frame: pd.DataFrame, values: Array, where: str, column: str, why: str
) -> None:
    """Raise RowError at the first of the values, (n,), that is not valid."""
    if not valid.all():
        first = int(np.argmin(valid))
        raise RowError(
            f"{where}, row {frame.index[first] + 1}: {column} is {values[first]:g}; {why}",
            f"{where}: {column} has {int((~valid).sum())} values that cannot be used; {why} "
            "(its own log says where)",
        )
