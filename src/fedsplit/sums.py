"""Numbers that may be added: what a client contributes to a sum, and how the sum is read.

A client's contribution is a vector of integers in fixed point, so that sums are exact, and masks
that cancel can be added to it. Its first number counts the clients whose numbers did not fit: such
a client contributes zeros.

The last digits are random ones, where others can read the sums. A float64 has 53 digits, the sum of
several is exact, and so is that of products of means: its last digits would be those of single
clients. Beside a client of many rows those of a client of few rows would be legible, and the digits
of Σ_j n_j m_j² tell every n_j and m_j of a column of zeros and ones. So a client adds to each
number a random one, smaller than the digits that are kept. Whole numbers have no others, and stay
as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsplit import fixed_point
from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.fixed_point import FRACTION_BITS, LIMBS, Limbs, fits

WINDOW = 160
"""In wide sums the windows of fixed point are so many bits apart."""


KEPT = 48
"""Binary digits that are kept of a float64: the others are about its rounding errors."""

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


class Summands:
    """The numbers of one client, in the order in which a ``Total`` is read."""

    def __init__(self) -> None:
        # each with its place; the first counts clients whose numbers did not fit
        self._narrow: list[tuple[int, Array]] = [(0, np.zeros(1))]
        self._others: list[tuple[int, Callable[[LastDigits], Limbs]]] = []
        self._n = 1
        self._fits = True

    def add(self, values: ArrayLike) -> None:
        """Append numbers, flattened. If one does not fit, the client contributes nothing."""
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
        self._narrow.append((self._n, numbers))
        self._n += len(numbers)

    def add_exactly(self, *terms: Array) -> None:
        """Append sums of arrays, (n,) each, to the last digit: for numbers that have noise."""

        def total(_: LastDigits) -> Limbs:
            return fixed_point.total((fixed_point.encode(term) for term in terms), len(terms[0]))

        self._others.append((self._n, total))
        self._n += len(terms[0])

    def add_wide(self, values: ArrayLike) -> None:
        """Append numbers in any unit, from 2^-288 to 2^278: each takes the place of three."""
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
        self._add_integers(len(numbers), lambda digits: digits.wide(numbers))

    def add_about_means(
        self,
        weight: float,
        means: Array,
        scatters: Array,
        pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
        within: Array,
        rounded_by: float = 4.0,
        smallest: float = 2.0**-220,
    ) -> None:
        """Append Σ w, the sums Σ w a of q columns, and Σ w a b of pairs of them, all wide.

        They are those of rows with these means, so that the server subtracts the means of all rows
        without a rounding, whatever the last digits of the sums are. ``scatters``, (q,), are sums
        of squares about the means, and ``within``, (r,), has Σ w (a - mean)(b - mean) of the pairs.
        Sums that were rounded on the way have ``rounded_by`` times the digits that are kept. A sum
        of squares below ``smallest`` would be zero for the server, and so does not fit.
        """
        i, j = pairs
        sums = _snapped(weight * means)
        lengths = np.sqrt(np.maximum(scatters, 0.0))
        squares = scatters + weight * np.square(means)
        self._fits = self._fits and bool(((squares == 0) | (squares >= smallest)).all())
        # errors of a sum are relative to its largest possible size
        sizes = rounded_by * np.sqrt(weight * squares)
        sizes = np.where(sums == np.rint(sums), 0.0, sizes)

        def told(digits: LastDigits) -> Any:
            [total] = digits.wide([weight])
            of_columns = digits.wide(sums, sizes)
            apart = digits.wide(within, rounded_by * lengths[i] * lengths[j])
            products = nearest(of_columns[i] * of_columns[j], total or 1) + apart
            return np.concatenate([[total], of_columns, products])

        self._add_integers(1 + len(means) + len(within), told)

    def _add_integers(self, n: int, told: Callable[[LastDigits], Any]) -> None:
        """Append wide numbers, given in units of 2^-288."""

        def windows(digits: LastDigits) -> Limbs:
            numbers = told(digits)
            low, middle = numbers % (1 << WINDOW), (numbers >> WINDOW) % (1 << WINDOW)
            return fixed_point.from_integers([*(numbers >> 2 * WINDOW), *middle, *low])

        self._others.append((self._n, windows))
        self._n += 3 * n

    @property
    def vector(self) -> Limbs:
        """The contribution, (1 + n, 4)."""
        return self.encoded(EXACT)

    def encoded(self, digits: LastDigits) -> Limbs:
        """The contribution with other last digits, (1 + n, 4)."""
        if self._fits:
            with suppress(OverflowError, ValueError):  # too large, infinite or nan
                return self._all(digits)
        numbers = np.zeros(self._n)
        numbers[0] = 1.0
        return fixed_point.encode(numbers)

    def _all(self, digits: LastDigits) -> Limbs:
        """All numbers, each at its place; raises an error if one does not fit."""
        found = np.empty((self._n, LIMBS), dtype=np.uint64)
        # all narrow ones at once, which takes much less time than one part after the other
        places = [np.arange(at, at + len(numbers)) for at, numbers in self._narrow]
        values = np.concatenate([numbers for _, numbers in self._narrow])
        found[np.concatenate(places)] = digits.narrow(values)
        for at, told in self._others:
            numbers = told(digits)
            found[at : at + len(numbers)] = numbers
        return found


class Total:
    """The sum of the contributions of m clients, (1 + n, 4), read number by number.

    If the numbers of a client did not fit, or are none, InputError is raised.
    """

    def __init__(self, numbers: Limbs, m: int) -> None:
        self.m = m
        self._numbers = numbers
        self._values = fixed_point.decode(numbers)
        self._at = 0
        unfit = self.count()
        if not 0 <= unfit <= m:
            raise InputError("these are no sums: a client has added something else")
        if unfit:
            raise InputError(
                f"{unfit} of {m} clients have numbers that secure sums cannot hold, too large or "
                "too small: use other units"
            )

    def take(self, *shape: int) -> Array:
        """Read the next sums as an array of this shape; each is rounded once, to a float64."""
        return self._values[self._next(math.prod(shape))].reshape(shape)

    def number(self) -> float:
        """The next number."""
        return float(self.take(1)[0])

    def count(self) -> int:
        """The next number, which is whole."""
        return round(self.number())

    def exact(self, *shape: int) -> Any:
        """The next numbers as integers in units of 2^-128, an array of objects."""
        found = np.empty(math.prod(shape), dtype=object)
        found[:] = fixed_point.integers(self._numbers[self._next(math.prod(shape))])
        return found.reshape(shape)

    def wide(self, *shape: int) -> Any:
        """The next wide numbers as integers in units of 2^-288, an array of objects."""
        high, middle, low = (self.exact(*shape) for _ in range(3))
        return (high << 2 * WINDOW) + (middle << WINDOW) + low

    def end(self) -> None:
        """Raise InputError unless everything has been read."""
        if self._at != len(self._numbers):
            raise InputError(f"answers of {len(self._numbers)} numbers, expected {self._at}")

    def _next(self, n: int) -> slice:
        """Where the next n numbers are."""
        first = self._at
        self._at += n
        if self._at > len(self._numbers):
            raise InputError(f"answers of {len(self._numbers)} numbers, which are too few")
        return slice(first, self._at)


def _snapped(sums: Array) -> Array:
    """Sums, and whole numbers where they differ from those by the rounding of a mean."""
    whole = np.rint(sums)
    return np.where(np.abs(sums - whole) <= 2.0**-51 * np.abs(sums), whole, sums)


def rounded(number: int) -> float:
    """A wide number, rounded once."""
    return number / (1 << WIDE_BITS)


def quotients(a: Any, b: int) -> Array:
    """a/b of exact integers, each rounded once."""
    return np.array(np.asarray(a, dtype=object) / b, dtype=np.float64)


def about_means(products: Any, a: Any, b: Any, weight: int) -> Array:
    """Σ w(a - ā)(b - b̄) from Σ w a b, Σ w a, Σ w b and Σ w, all wide, each rounded once."""
    return quotients(products * weight - a * b, weight << WIDE_BITS)


class Rule(NamedTuple):
    """How parts of one kind are added up."""

    add: Callable[[Summands, Array], None]  # adds the part of one client to its summands
    # reads the part, of a given shape, that the sum over all clients amounts to
    read: Callable[[Total, tuple[int, ...]], Array]


def _add_entries(to: Summands, entries: Array) -> None:
    usable = bool(fits(entries).all())
    # all or nothing: a vector of which some entries are left out points elsewhere
    to.add(entries if usable else np.zeros_like(entries))
    to.add([float(not usable)])


def _read_entries(total: Total, shape: tuple[int, ...]) -> Array:
    entries = total.take(*shape)
    return np.full(shape, np.nan) if total.count() else entries


def _add_values(to: Summands, values: Array) -> None:
    usable = fits(values)
    to.add(np.where(usable, values, 0.0))
    to.add(~usable)


def _read_values(total: Total, shape: tuple[int, ...]) -> Array:
    values = total.take(*shape)
    return np.where(total.take(*shape) > 0, np.inf, values)


def _add_squares(to: Summands, bounds: Array) -> None:
    # the square of a bound that is smaller would be below the unit, and count as none
    _add_values(to, np.square(np.where(bounds == 0, 0.0, np.maximum(bounds, 2.0**-50))))


def _read_root(total: Total, shape: tuple[int, ...]) -> Array:
    # more than the rounding of a root, and more than last digits that are random
    return np.asarray(np.sqrt(_read_values(total, shape)) * (1.0 + 2.0**-42))


@np.errstate(divide="ignore")  # a radius of 0 is a bound that is infinite, and the other way round
def _add_radii(to: Summands, radii: Array) -> None:
    _add_squares(to, 1.0 / radii)


@np.errstate(divide="ignore")
def _read_radius(total: Total, shape: tuple[int, ...]) -> Array:
    return 1.0 / _read_root(total, shape)


def _add_signs(to: Summands, signs: Array) -> None:
    for kind in (np.isnan(signs), signs < 0, signs == 0):  # the rest are positive
        to.add(kind)


def _read_sign(total: Total, shape: tuple[int, ...]) -> Array:
    unknown, negative, zero = (total.take(*shape) > 0 for _ in range(3))
    return np.select([unknown, negative, zero], [np.nan, -1.0, 0.0], 1.0)


SUM = Rule(_add_entries, _read_entries)
"""Entries of vectors and matrices; nan if those of a client cannot be added."""

VALUES = Rule(_add_values, _read_values)
"""Values of functions: where one of them is infinite, nan or too large, the sum is infinite."""

ROOT = Rule(_add_squares, _read_root)
"""Bounds that hold for every client: the root of the sum of squares, at least the largest one."""

RADIUS = Rule(_add_radii, _read_radius)
"""Radii that suit every client: the inverse of the root for the inverses, at most the smallest."""

SIGN = Rule(_add_signs, _read_sign)
"""Signs, of which the smallest counts; nan if one is unknown."""
