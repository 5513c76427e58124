"""Functions in a formula that depend on the rows of all clients, such as ``poly(x, 3)``.

What such a function needs to know of the other rows is its state. The clients agree on it before
their rows are coded, so that each computes the same function of its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Statistic

Constant: TypeAlias = str | float | bool | tuple[str | float | bool, ...] | None
"""A value that is written in a formula: ``"a"``, ``2``, ``TRUE``, ``NULL`` or ``c(1, 2)``."""

Options: TypeAlias = Mapping[str, Constant]
"""The arguments of a call after the first, by name; those that are not written are absent."""

State: TypeAlias = Mapping[str, Sequence[float]]
"""What is agreed for one call, by names of the function's own."""


class PooledNumbers(Protocol):
    """A function with one or more columns of numbers."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments after the first, in order."""
        ...

    def check(self, options: Options) -> None:
        """Raise ValueError if the arguments are not what the function takes."""
        ...

    def asking(self, options: Options) -> Generator[Statistic, Array, State] | None:
        """How clients agree on the state (see ``agreement``); None if nothing has to be."""
        ...

    def report(self, options: Options, state: State) -> str:
        """What was agreed, as R would be told; empty if a user need not know."""
        ...

    def endings(self, options: Options, state: State) -> list[str]:
        """How the names of the k columns end, as in ``poly(x, 3)1``; [""] for a single one."""
        ...

    def values(self, x: Array, options: Options, state: State) -> Array:
        """The columns, (n, k), for the values of the first argument, (n,)."""
        ...


class PooledCategory(Protocol):
    """A function whose values are the levels of a category."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments after the first, in order."""
        ...

    def check(self, options: Options) -> None:
        """Raise ValueError if the arguments are not what the function takes."""
        ...

    def asking(self, options: Options) -> Generator[Statistic, Array, State] | None:
        """How clients agree on the state (see ``agreement``); None if nothing has to be."""
        ...

    def report(self, options: Options, state: State) -> str:
        """What was agreed, as R would be told; empty if a user need not know."""
        ...

    def levels(self, options: Options, state: State) -> list[str]:
        """The levels; the first is the reference."""
        ...

    def codes(self, x: Array, options: Options, state: State) -> NDArray[np.intp]:
        """The number of each value's level, (n,), from 0; -1 for a value that has none."""
        ...


@dataclass(frozen=True)
class PooledCall:
    """A call of such a function, as it is written in a formula.

    Attributes
    ----------
    text : str
        As in the names of the design's columns, and in ``Plan.state``.
    function : str
        The key of its table.
    argument : callable
        Called with a ModelFrame; returns the values of the first argument, (n,).
    columns : tuple of str
        Those in the first argument.
    options : mapping
        The other arguments.
    """

    text: str
    function: str
    argument: Callable[[Any], Array] = field(repr=False, compare=False)
    columns: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
