"""The columns of a design in the units that a user declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError, listed


@dataclass(frozen=True)
class DeclaredColumns:
    """Columns (a - centre)/scale, of values between two ends.

    Attributes
    ----------
    low, high : (p,) arrays
        The ends; infinite where none are declared.
    centre, scale : (p,) arrays
    intercept : bool
        Whether the first column is the constant.
    """

    low: Array
    high: Array
    centre: Array
    scale: Array
    intercept: bool

    @classmethod
    def of(
        cls, names: Sequence[str], ranges: Mapping[str, Sequence[float]], intercept: bool
    ) -> DeclaredColumns:
        """Those of a design with these names."""
        unknown = [name for name in ranges if name not in names[intercept:]]
        if unknown:
            raise InputError(
                f"dp ranges: there is no column {listed(unknown)} in the design, which has "
                f"{listed(names, 12)}"
            )
        centre, scale = np.zeros(len(names)), np.ones(len(names))
        low, high = -np.inf * scale, np.inf * scale
        for name, (least, most) in ranges.items():
            at = names.index(name)
            low[at], high[at] = least, most
            scale[at] = max(abs(least), abs(most))
            if intercept:  # which takes up the centre
                centre[at], scale[at] = 0.5 * (least + most), 0.5 * (most - least)
        return cls(low, high, centre, scale, intercept)

    def scaled(self, A: Array) -> Array:
        """The rows of a design in these units, (n, p)."""
        rows: Array = (np.clip(A, self.low, self.high) - self.centre) / self.scale
        return rows

    @property
    def back(self) -> Array:
        """What takes coefficients of these columns to those of the data, (p, p)."""
        found = np.diag(1.0 / self.scale)
        if self.intercept:
            found[0] -= self.centre / self.scale
            found[0, 0] = 1.0
        return found
