"""Exact sums of numbers in fixed point: integers modulo 2^256, in units of 2^-128.

A number v is the integer ⌊v·2^128⌉ in two's complement, as four limbs of 64 bits, the least
significant first: n numbers are an (n, 4) array of uint64. Addition is exact and does not depend on
the order, and the modulus lets masks cancel. A float64 between 2^-76 and 2^118 in magnitude is
exact; smaller ones are rounded to the unit, half to even.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsplit.arrays import Array, Mask

Limbs: TypeAlias = NDArray[np.uint64]

LIMBS = 4
"""Limbs of a number."""
FRACTION_BITS = 128
"""The unit is 2^-FRACTION_BITS."""
LARGEST = 2.0**118
"""Numbers below this in magnitude fit, and so do sums of 512 of them."""


def fits(values: ArrayLike) -> Mask:
    """Which numbers fit: those that are finite and less than 2^118 in magnitude."""
    result: Mask = np.abs(np.asarray(values, dtype=float)) < LARGEST
    return result


def encode(values: ArrayLike) -> Limbs:
    """The numbers in fixed point: any shape, flattened to (n,) -> (n, 4).

    If one of them does not fit, see `fits`, OverflowError is raised.
    """
    numbers = np.asarray(values, dtype=float).reshape(-1)
    if not fits(numbers).all():
        raise OverflowError("a number that is not finite, or not below 2^118 in magnitude")
    mantissas, exponents = np.frexp(np.abs(numbers))
    # |v|·2^128 = whole·2^shift
    whole = np.ldexp(mantissas, 53)
    shift = exponents.astype(np.int64) - 53 + FRACTION_BITS
    # bits below the unit: np.rint rounds half to even
    whole = np.rint(np.ldexp(whole, np.minimum(shift, 0).astype(np.int32))).astype(np.uint64)
    magnitudes = _shifted(whole, np.maximum(shift, 0))
    return np.where(np.signbit(numbers)[:, None], negative(magnitudes), magnitudes)


def decode(numbers: Limbs) -> Array:
    """The float64 nearest to every number, ties to even: (n, 4) -> (n,)."""
    # Python rounds the quotient of two integers once
    return np.array([each / (1 << FRACTION_BITS) for each in integers(numbers)], dtype=float)


def add(a: Limbs, b: Limbs) -> Limbs:
    """a + b modulo 2^256: (n, 4), (n, 4) -> (n, 4)."""
    total = np.empty_like(a)
    carry = np.zeros(a.shape[:-1], dtype=np.uint64)
    for limb in range(LIMBS):
        partial = a[..., limb] + b[..., limb]
        total[..., limb] = partial + carry
        # at most one of the two additions overflows
        carry = ((partial < a[..., limb]) | (total[..., limb] < carry)).astype(np.uint64)
    return total


def negative(a: Limbs) -> Limbs:
    """-a modulo 2^256: (n, 4) -> (n, 4)."""
    one = np.zeros_like(a)
    one[..., 0] = 1
    return add(~a, one)


def subtract(a: Limbs, b: Limbs) -> Limbs:
    """a - b modulo 2^256: (n, 4), (n, 4) -> (n, 4)."""
    return add(a, negative(b))


def lowest_bits(a: Limbs, bits: NDArray[np.int64]) -> Limbs:
    """The lowest k bits of every number, less half of what they can be: (n, 4), (n,) -> (n, 4).

    They are between -2^(k - 1) and 2^(k - 1), and 0 where k is.
    """
    places = np.clip(bits[:, None] - 64 * np.arange(LIMBS), 0, 64).astype(np.uint64)
    # a shift by 64 is undefined, so that it is made in two
    kept = ~((~np.uint64(0) << (places // np.uint64(2))) << (places - places // np.uint64(2)))
    half = _shifted((bits > 0).astype(np.uint64), np.maximum(bits - 1, 0))
    return subtract(a & kept, half)


def total(terms: Iterable[Limbs], n: int) -> Limbs:
    """The sum of fewer than 2^32 terms modulo 2^256: (n, 4) each -> (n, 4)."""
    # Halves of limbs, so that carries are found once, and not for every term.
    low, high = np.zeros((2, n, LIMBS), dtype=np.uint64)
    half, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for term in terms:
        low += term & half
        high += term >> shift
    carry = np.zeros(n, dtype=np.uint64)
    for limb in range(LIMBS):
        low[:, limb] += carry
        high[:, limb] += low[:, limb] >> shift
        carry = high[:, limb] >> shift
    return (low & half) | (high << shift)


def from_integers(integers: Sequence[int]) -> Limbs:
    """Exact numbers given in units of 2^-128, as Python's integers -> (n, 4).

    If one of them is 2^118 or more in magnitude, OverflowError is raised.
    """
    limit = int(LARGEST) << FRACTION_BITS
    if any(abs(integer) >= limit for integer in integers):
        raise OverflowError("a number that is not below 2^118 in magnitude")
    size = 8 * LIMBS
    return from_bytes(b"".join(each.to_bytes(size, "little", signed=True) for each in integers))


def integers(numbers: Limbs) -> list[int]:
    """Every number as a signed integer in units of 2^-128, exactly: (n, 4) -> n integers."""
    packed = to_bytes(numbers)
    size = 8 * LIMBS
    starts = range(0, len(packed), size)
    return [int.from_bytes(packed[at : at + size], "little", signed=True) for at in starts]


def to_bytes(numbers: Limbs) -> bytes:
    """The numbers one after another, 32 bytes each, least significant byte first."""
    return numbers.astype("<u8").tobytes()


def from_bytes(packed: bytes) -> Limbs:
    """The inverse of `to_bytes` -> (n, 4)."""
    return np.frombuffer(packed, dtype="<u8").astype(np.uint64).reshape(-1, LIMBS)


def _shifted(whole: NDArray[np.uint64], shift: NDArray[np.int64]) -> Limbs:
    """whole·2^shift as limbs, where that is below 2^256: (n,), (n,) -> (n, 4)."""
    rows = np.arange(whole.size)
    first = shift // 64
    offset = (shift % 64).astype(np.uint64)
    limbs = np.zeros((whole.size, LIMBS + 1), dtype=np.uint64)
    limbs[rows, first] = whole << offset
    # a shift by 64 is undefined, so that by 64 - offset is made in two
    limbs[rows, first + 1] = (whole >> (np.uint64(63) - offset)) >> np.uint64(1)
    return limbs[:, :LIMBS]
