"""Named blocks of coefficients: those of the columns, once for each predictor, and others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """Coefficients that belong together.

    Attributes
    ----------
    name : str
        What precedes the names of its coefficients, as the class whose predictor it is; empty
        where there is one predictor.
    own : tuple of str
        The names of coefficients that belong to no column, such as thresholds; empty of a block
        that has one coefficient for each column.
    follows : float
        By how much coefficients that belong to no column grow with the predictor of the other
        block, where a constant is added to it.
    """

    name: str = ""
    own: tuple[str, ...] = ()
    follows: float = 0.0

    @property
    def of_columns(self) -> bool:
        """Whether there is one coefficient for each column."""
        return not self.own

    def names(self, columns: Sequence[str]) -> list[str]:
        """The names of its coefficients, where a design has these columns."""
        names = list(self.own or columns)
        return [f"{self.name}:{each}" for each in names] if self.name else names
