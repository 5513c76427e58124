"""Programs: what a method computes from the vectors of each client, in one pass over them all.

A program is a function of one client's vectors and numbers, which runs on the stacked arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from array_api_compat import array_namespace

from fedsplit.arrays import Array, column_sums, dots, on_host


class Found(NamedTuple):
    """What a program returns, and what becomes of it for all m clients.

    Attributes
    ----------
    vectors : tuple of (m, d) arrays
    numbers : tuple of (m,) arrays
    totals : tuple of (d,) arrays
        Sums of vectors over the clients.
    """

    vectors: tuple[Any, ...] = ()
    numbers: tuple[Any, ...] = ()
    totals: tuple[Any, ...] = ()


Program: TypeAlias = Callable[..., Found]
"""Of the operations, the client's vectors and numbers, and what all clients share, in this order.

It uses +, -, *, /, > and <=, &, and the operations ``dot``, ``where`` and ``sqrt``."""


def for_each_client(
    program: Program,
    vectors: Sequence[Array],
    numbers: Sequence[Array] = (),
    shared: Sequence[Array | float] = (),
) -> Found:
    """Run a program for every client.

    Parameters
    ----------
    program : Program
    vectors : sequence of (m, d) arrays
    numbers : sequence of (m,) arrays
    shared : sequence of (d,) arrays and floats
    """
    columns = [each[:, None] for each in numbers]
    found = program(Operations(vectors[0]), *vectors, *columns, *shared)
    values = tuple(each[:, 0] for each in found.numbers)
    return Found(found.vectors, values, tuple(map(column_sums, found.totals)))


class Operations:
    """Operations on stacked arrays: vectors are (m, d), and numbers (m, 1)."""

    def __init__(self, like: Array) -> None:
        self._xp: Any = np if on_host(like) else array_namespace(like)

    def dot(self, u: Array, v: Array) -> Array:
        """uᵀv."""
        return dots(u, v)[:, None]

    def where(self, condition: Any, one: Any, other: Any) -> Any:
        """One of two numbers or vectors."""
        return self._xp.where(condition, one, other)

    def sqrt(self, t: Array) -> Any:
        """√t."""
        return self._xp.sqrt(t)
