"""What all families of two classes share, whatever the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.errors import InputError, listed
from fedsplit.regression.families import response
from fedsplit.regression.families.family import Family, check_two

if TYPE_CHECKING:  # a plan has a family, and a family reads the rows of a plan
    import pandas as pd

    from fedsplit.regression.client.plan import BasicPlan


class BinaryFamily(Family):
    """b is 1 with probability μ, and 0 otherwise; a row may stand for several trials."""

    target = "0 or 1"
    call = "cbind"
    classes = "two"

    def check_classes(self, column: str, levels: Sequence[str], named: bool) -> None:
        check_two(column, levels)
        if len(levels) > 2:
            raise InputError(
                f"column {column} has {len(levels)} values ({listed(levels)}) and {self.name} "
                "needs two: use the family multinomial, or a condition such as {y > 1}"
            )
        if not named and list(levels) not in (["0", "1"], ["False", "True"]):
            raise InputError(
                f"column {column} is {listed(levels)} and {self.name} needs 0 and 1: "
                f"use {{{column} == {levels[1]}}}"
            )

    def response(self, plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
        formula = plan.parsed
        if formula.grouped is not None:
            return response.counts(plan, frame, where)
        if plan.classes:
            return {"target": response.codes(plan, frame)}
        if plan.shares:
            values = response.numbers(plan, frame)
            valid = (values >= 0) & (values <= 1)
            why = "a share is between 0 and 1"
            response.check_rows(valid, frame, values, where, formula.target, why)
            return {"share": values}
        return super().response(plan, frame, where)

    def invalid(self, b: Array) -> Mask:
        wrong: Mask = (b != 0) & (b != 1)
        return wrong

    def labels(self, b: Array) -> Array:
        return np.where(b == 1, 1.0, -1.0)

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = -w * self.loss().value(eta, self.labels(b))
        return logs

    def variance(self, mu: Array) -> Array:
        return mu * (1.0 - mu)

    def margin(self, b: Array, t: Array) -> Array:
        return np.where(b == 1, t, -t)
