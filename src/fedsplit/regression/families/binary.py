"""Two classes, whatever the link."""

from __future__ import annotations

from collections.abc import Sequence

from fedsplit.arrays import Array, Mask
from fedsplit.data.categories import Level
from fedsplit.errors import InputError, listed
from fedsplit.regression.families.family import Family


class BinaryFamily(Family):
    """b is 1 with probability μ and 0 otherwise; φ = 1.

    The target is a column of 0 and 1, or of two labels, or a condition.
    """

    target = "0 or 1"
    classifies = True
    calibrates = True

    def invalid(self, b: Array) -> Mask:
        invalid: Mask = (b != 0) & (b != 1)
        return invalid

    def count_classes(self, labels: Sequence[object]) -> int:
        return 2

    def check_classes(self, column: str, levels: Sequence[Level]) -> None:
        super().check_classes(column, levels)
        if len(levels) > 2:
            raise InputError(
                f"column {column} has {len(levels)} values ({listed(levels)}) and {self.name} "
                "needs two: use the family multinomial, or a condition such as {y > 1}"
            )
        if not isinstance(levels[0], str) and [float(level) for level in levels] != [0.0, 1.0]:
            raise InputError(
                f"column {column} is {listed(levels)} and {self.name} needs 0 and 1: "
                f"use {{{column} == {levels[1]}}}"
            )

    def variance(self, mu: Array) -> Array:
        return mu * (1.0 - mu)
