"""Intervals of numbers, as R's ``cut`` has them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array

FEWEST_DIGITS = 3
"""Significant digits of a break in a label, unless breaks would look alike."""

MOST_DIGITS = 12


def interval_of(
    x: Array, breaks: Sequence[float], right: bool = True, include_lowest: bool = False
) -> NDArray[np.intp]:
    """The number of the interval that each value lies in, from 0; -1 outside of all.

    Parameters
    ----------
    x : (n,) array
    breaks : sequence of float
        Increasing.
    right : bool
        Whether intervals are closed on the right, and open on the left.
    include_lowest : bool
        Whether a value at the first break, or at the last one without ``right``, is inside.
    """
    edges = np.asarray(breaks, dtype=np.float64)
    last = len(edges) - 2
    found = np.searchsorted(edges, x, side="left" if right else "right") - 1
    found = np.where((found < 0) | (found > last), -1, found)
    if include_lowest:
        outermost, interval = (edges[0], 0) if right else (edges[-1], last)
        found = np.where(x == outermost, interval, found)
    return np.where(np.isnan(x), -1, found)


def interval_labels(
    breaks: Sequence[float],
    right: bool = True,
    include_lowest: bool = False,
    digits: int = FEWEST_DIGITS,
) -> list[str]:
    """The names of the intervals: ``(0,10]``, with as few digits as keep them apart."""
    for used in range(digits, max(MOST_DIGITS, digits) + 1):
        texts = _numbers(breaks, used)
        if all(a != b for a, b in pairwise(texts)):
            break
    else:
        return [f"Range_{i}" for i in range(1, len(breaks))]
    opening, closing = ("(", "]") if right else ("[", ")")
    pairs = pairwise(texts)
    labels = [f"{opening}{low},{high}{closing}" for low, high in pairs]
    if include_lowest and right:
        labels[0] = "[" + labels[0][1:]
    elif include_lowest:
        labels[-1] = labels[-1][:-1] + "]"
    return labels


def _numbers(values: Sequence[float], digits: int) -> list[str]:
    """R's ``formatC``: so many significant digits, without zeros at the end."""
    texts = [f"{value:.{digits}g}".replace("inf", "Inf") for value in values]
    if "-Inf" in texts:
        # R gives both infinities the same width: the last interval is then called (5, Inf].
        return [{"Inf": " Inf"}.get(text, text) for text in texts]
    return texts
