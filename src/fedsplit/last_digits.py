"""The last digits of what a client adds to sums: random ones, where others can read the sums.

A float64 has 53 digits, the sum of several is exact, and so is that of products of means: its last
digits would be those of single clients. Beside a client of many rows those of a client of few rows
would be legible, and the digits of Σ_j n_j m_j² tell every n_j and m_j of a column of zeros and
ones. So a client adds to each number a random one, smaller than the digits that are kept. Whole
numbers have no others, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsplit import fixed_point
from fedsplit.arrays import Array
from fedsplit.fixed_point import FRACTION_BITS, Limbs

KEPT = 48
"""Binary digits that are kept of a float64: the others are about its rounding errors."""

KEPT_OF_ROUNDED = 44
"""Binary digits that are kept of a number that was rounded to the grid of ``clients.sums``."""

WIDE_BITS = 288
"""The unit of wide sums is 2^-WIDE_BITS."""


class LastDigits:
    """Numbers in fixed point, with their last digits as they are, or random.

    ``stream`` gives so many random bytes, others every time; None is for the digits as they are.
    ``kept`` is how many binary digits of a number are kept.
    """

    def __init__(self, stream: Callable[[int], bytes] | None = None, kept: int = KEPT) -> None:
        self._stream = stream
        self._kept = kept

    def narrow(self, values: Array) -> Limbs:
        """Numbers in units of 2^-128: (n,) -> (n, 4); raises OverflowError if one does not fit."""
        if self._stream is None:
            return fixed_point.encode(values)
        bits = self._random_bits(_sizes(values), FRACTION_BITS)
        found = fixed_point.encode(np.where(bits > 0, values, self._rounded(values)))
        digits = fixed_point.from_bytes(self._stream(8 * fixed_point.LIMBS * len(values)))
        return fixed_point.add(found, fixed_point.lowest_bits(digits, bits))

    def _rounded(self, values: Array) -> Array:
        """Numbers as multiples of the unit, rounded up or down at random.

        Where a server chooses how large numbers are beside the unit, a rounding of each client's
        number to the nearest multiple would be a condition on that number.
        """
        assert self._stream is not None
        random = np.frombuffer(self._stream(8 * len(values)), dtype="<u8") * 2.0**-64
        with np.errstate(over="ignore", invalid="ignore"):  # large numbers have no such digits
            units = np.ldexp(values, FRACTION_BITS)
        below = np.floor(units)
        found = np.ldexp(below + (units - below > random), -FRACTION_BITS)
        return np.where(np.isfinite(found), found, values)

    def wide(self, values: ArrayLike, sizes: ArrayLike | None = None) -> Any:
        """Numbers, (n,), in units of 2^-288, as an array of exact integers.

        ``sizes`` is what their digits are counted from, and 0 for numbers that stay as they are; by
        default the numbers themselves, unless they are whole.
        """
        numbers = np.asarray(values, dtype=np.float64)
        found = np.empty(len(numbers), dtype=object)
        found[:] = [_units(number) for number in numbers.tolist()]
        if self._stream is None:
            return found
        counted = _sizes(numbers) if sizes is None else np.asarray(sizes)
        for at, bits in enumerate(self._random_bits(counted, WIDE_BITS).tolist()):
            if bits:
                random = int.from_bytes(self._stream(bits // 8 + 1), "little")
                found[at] += random % (1 << bits) - (1 << (bits - 1))
        return found

    def _random_bits(self, sizes: Array, unit: int) -> NDArray[np.int64]:
        """How many of the last bits become random, in units of 2^-unit."""
        bits = np.frexp(sizes)[1].astype(np.int64) + (unit - self._kept)
        return np.where(sizes == 0, 0, np.maximum(bits, 0))


EXACT = LastDigits()
"""As they are: nobody but the client itself can read the sum."""


def _sizes(values: Array) -> Array:
    """The sizes of numbers; 0 for whole ones below 2^40, such as counts: no digits to hide."""
    # whole numbers below this have all their digits
    whole = (values == np.rint(values)) & (np.abs(values) < 2.0**40)
    return np.where(whole, 0.0, np.abs(values))


def _units(number: float) -> int:
    """The integer nearest to number·2^288."""
    numerator, denominator = number.as_integer_ratio()
    return int(nearest(numerator << WIDE_BITS, denominator))


def nearest(a: Any, b: int) -> Any:
    """The integers nearest to a/b, of integers; a half is rounded up."""
    return (2 * a + b) // (2 * b)
