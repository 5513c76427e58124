"""Functions in a formula that depend on the rows of all clients, such as ``poly(x, 3)``.

What such a function needs to know of the other rows is its state. The clients agree on it before
their rows are coded, so that each computes the same function of its own rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.dialogue import Dialogue

State: TypeAlias = Mapping[str, Sequence[float]]
"""What is agreed for one call, by names of the function's own; empty if nothing has to be."""


class PooledFunction(ABC):
    """A function of one column, whose other arguments are its fields.

    Attributes
    ----------
    is_category : bool
        Whether its values are the levels of a category, and not columns of numbers.
    """

    is_category: ClassVar[bool] = False

    @abstractmethod
    def agreement(self) -> Dialogue[State] | None:
        """Agree on the state: ask for statistics of the column; None if nothing has to be known."""

    @abstractmethod
    def values(self, x: Array, state: State) -> NDArray[Any]:
        """Return the k columns, (n, k), for the values of the argument, (n,).

        For a category, the number of each value's level, (n,), from 0; -1 for a value without one.
        """

    def labels(self, state: State) -> list[str]:
        """Return how the names of the k columns end, as in ``poly(x, 3)1``; for a category, levels.

        The first level is the reference.
        """
        return [""]

    def report(self, state: State) -> str:
        """Return what was agreed, as arguments for R; empty if a user need not know."""
        return ""

    def extrapolates(self, x: Array) -> bool:
        """Return whether a value lies so far outside that a user should know."""
        return False


def numbered(width: int) -> list[str]:
    """Return the endings of the names of several columns as in R: a single one has none."""
    return [""] if width == 1 else [str(i) for i in range(1, width + 1)]
