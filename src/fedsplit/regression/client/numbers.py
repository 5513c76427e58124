"""Numbers of a server's choice, and columns, that neither over- nor underflow when multiplied.

A product that is rounded to 0 or to infinity is a condition on a row, and a server that may choose
the other factor chooses the condition. With all factors between 1e-100 and 1e100 that cannot happen
to a product of three of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.errors import RequestError

LEAST, MOST = 1e-100, 1e100


def in_range(sizes: Array) -> Mask:
    """Which of some sizes are 0, or can be multiplied."""
    found: Mask = (sizes == 0) | ((sizes >= LEAST) & (sizes <= MOST))
    return found


def check_numbers(questions: Iterable[object]) -> None:
    """Raise RequestError if a number of some questions is not finite, or huge, or tiny."""
    for question in questions:
        for numbers in _numbers_of(question):
            if not in_range(np.abs(numbers)).all():
                raise RequestError(
                    "the server sent a number that is not finite, or neither 0 nor between "
                    f"{LEAST:g} and {MOST:g}"
                )


def _numbers_of(value: Any) -> Iterator[Array]:
    """All floating-point numbers of a question."""
    if isinstance(value, np.ndarray | float):
        yield np.asarray(value, dtype=np.float64)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _numbers_of(each)
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from _numbers_of(each)
