"""Combinations of columns that nearly cancel, with all their digits.

A number is a pair (high, low) here, whose sum has about 32 digits: T. J. Dekker, "A floating-point
technique for extending the available precision", Numerische Mathematik 18, 1971.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from fedsplit.arrays import Array, exact_product

ROWS = 1024
"""So many rows are worked on together: they stay in the processor's cache."""


def products_among(names: Sequence[str]) -> dict[int, tuple[int, int]]:
    """The columns that are products of two others, or the square of one, by their names."""
    places = {name: k for k, name in enumerate(names)}
    found = {}
    for name, k in places.items():
        for at in (i for i, letter in enumerate(name) if letter == ":"):
            if name[:at] in places and name[at + 1 :] in places:
                found[k] = places[name[:at]], places[name[at + 1 :]]
        for square in (f"{name}^2", f"I({name}^2)", f"{name} ** 2", f"I({name} ** 2)"):
            if square in places:
                found[places[square]] = k, k
    return found


def combine(
    A: Array,
    centre: Array,
    scale: Array,
    W: Array,
    products: Mapping[int, tuple[int, int]] | None = None,
) -> Array:
    """((A - centre)/scale) W, correct to about one rounding of every entry.

    Columns that are ``products`` of two others count with all digits of these. With means of 1e4
    and deviations of 1, the last digit of an entry is 1e-8 of what tells it from a sum of others.

    Parameters
    ----------
    A : (n, p) array
    centre, scale : (p,) arrays
    W : (p, k) array
    products : mapping, optional
        As ``products_among`` finds them.

    Returns
    -------
    (n, k) array
    """
    high, low = _quotients(W, scale)
    found = np.empty((len(A), W.shape[1]))
    for first in range(0, len(A), ROWS):
        some = slice(first, first + ROWS)
        found[some] = _some(A[some], centre, high, low, products or {})
    return found


def _quotients(W: Array, scale: Array) -> tuple[Array, Array]:
    """W/scale, row by row, as pairs."""
    exact = [[Fraction(w) / Fraction(s) for w in row] for row, s in zip(W, scale, strict=True)]
    high = np.array([[float(each) for each in row] for row in exact]).reshape(W.shape)
    low = [
        [float(each - Fraction(near)) for each, near in zip(row, nearest, strict=True)]
        for row, nearest in zip(exact, high, strict=True)
    ]
    return high, np.array(low).reshape(W.shape)


def _some(
    A: Array, centre: Array, high: Array, low: Array, products: Mapping[int, tuple[int, int]]
) -> Array:
    """(A - centre)(high + low) for a few rows."""
    total: Array = np.zeros((len(A), high.shape[1]))
    rest: Array = np.zeros_like(total)
    for j in np.flatnonzero(high.any(axis=1)).tolist():
        a, a_low = _sum(A[:, j, None], np.full((1, 1), -centre[j]))
        if j in products:
            entry, lost = exact_product(*(A[:, k, None] for k in products[j]))
            a_low = a_low + ((entry - A[:, j, None]) + lost)
        product, error = exact_product(a, high[j])
        error += a * low[j] + a_low * high[j]
        total, lost = _sum(total, product)
        rest += lost + error
    return total + rest


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b exactly, as a pair."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
