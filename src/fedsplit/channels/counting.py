"""How much travels, beside the questions of the rounds, which count their own floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def numbers_in(value: Any) -> int:
    """How many numbers a plain value holds.

    Counts, means and entries of arrays are numbers; texts, keys and truth values are not.
    """
    if value is None or isinstance(value, str | bool):
        return 0
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, int | float | np.number):
        return 1
    if isinstance(value, tuple | list):
        return sum(map(numbers_in, value))
    if isinstance(value, Mapping):
        return sum(map(numbers_in, value.values()))
    if is_dataclass(value):
        return sum(numbers_in(getattr(value, each.name)) for each in fields(value))
    return sum(map(numbers_in, value))
