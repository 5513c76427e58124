"""Exact samples of the discrete Gaussian, by integers alone.

Gaussian noise in floating point betrays what it is added to by the low bits of the sum (Mironov
2012). Integers have none: the noise here is exactly P(k) ∝ exp(-k²/2σ²) for whole k, by the
rejection sampler of Canonne, Kamath and Steinke (2020), from uniform random bits.
"""

from __future__ import annotations

from random import Random


def discrete_gaussian(sigma: int, source: Random) -> int:
    """One sample of scale σ, a whole number."""
    scale = sigma + 1
    square = sigma * sigma
    while True:
        k = _discrete_laplace(scale, source)
        # accept with probability exp(-(|k| - σ²/t)²/2σ²)
        excess = abs(k) * scale - square
        if _exponential(excess * excess, 2 * square * scale * scale, source):
            return k


def _discrete_laplace(scale: int, source: Random) -> int:
    """One sample of P(k) ∝ exp(-|k|/t)."""
    while True:
        rest = source.randrange(scale)
        if not _exponential(rest, scale, source):
            continue
        whole = 0
        while _exponential(1, 1, source):
            whole += 1
        k = rest + scale * whole
        if source.getrandbits(1):
            if k == 0:
                continue  # zero would be drawn twice as often
            return -k
        return k


def _exponential(above: int, below: int, source: Random) -> bool:
    """True with probability exp(-above/below), for whole numbers."""
    while above > below:
        if not _at_most_one(1, 1, source):
            return False
        above -= below
    return _at_most_one(above, below, source)


def _at_most_one(above: int, below: int, source: Random) -> bool:
    """The same where the quotient is at most 1: the parity of how long a series of draws lasts."""
    k = 1
    while source.randrange(below * k) < above:
        k += 1
    return k % 2 == 1
