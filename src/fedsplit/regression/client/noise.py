"""Sums over rows on a grid, with noise on the same grid.

A row has g_i = s_i a_i and H_i = w_i a_i a_iᵀ with ‖a_i‖ ≤ R, |s_i| ≤ C and 0 ≤ w_i ≤ W, and a
squared residual r_i ≤ C². Its vector in question t is

    u_i = (√a g_i/(CR), √h H_i/(WR²), √c (1, r_i/C², w_i/W)/√3),

H_i as its upper triangle with the entries beside the diagonal times √2, so that ‖u_i‖² ≤ a + h + c.
These shares of the budget add up to 1 over all questions: adding or removing a row moves the
answers to all of them together by 1 at most, wherever they are asked. Every number gets noise of
the same scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.tables import Source
from fedsplit.regression.client.design import pieces
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.privacy import (
    DeclaredColumns,
    DerivativeBounds,
    cut_off,
    noise_multiplier,
)
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.response import codes, numbers
from fedsplit.regression.privacy import Privacy


class BoundedRows(NamedTuple):
    """Rows a with ‖a‖ ≤ R."""

    A: Array  # (n, p): in declared units, scaled down where they were longer
    # (n,): target, weights and offsets
    b: Array
    w: Array
    o: Array


def bounded_rows(source: Source, plan: Plan, privacy: Privacy, where: str) -> BoundedRows:
    """Read the rows that can be used, in units of the declared columns.

    A row that cannot be used, for a value that is missing or not of its type, a level that is not
    declared, or a target that the family does not allow, is left out without a word: a refusal
    would tell of that row.
    """
    columns = list(dict.fromkeys([*plan.columns, *plan.others]))
    frame = plan.read_leniently(source, columns, where)
    frame = frame[~frame.isna().any(axis=1)]
    levels = dict(plan.levels)
    if plan.classes:
        levels[str(plan.parsed.target_column)] = plan.classes
    for column, known in levels.items():
        frame = frame[frame[column].isin(list(known))]
    with np.errstate(all="ignore"):
        frame = frame[plan.has_values(frame)]  # a row outside the breaks of cut() has none
        A, o = plan.parsed.evaluate(plan.design_columns, frame)
        if plan.offset is not None:
            o = o + plan.numbers(plan.offset, frame)
        if plan.exposure is not None:
            o = o + np.log(plan.numbers(plan.exposure, frame))
        w = plan.row_weights(frame)
        b = codes(plan, frame) if plan.classes else numbers(plan, frame)
    finite = np.isfinite(b)
    valid = finite & ~plan.chosen_family.invalid(np.where(finite, b, 1.0))
    used = np.isfinite(A).all(axis=1) & np.isfinite(o) & valid & np.isfinite(w) & (w > 0)
    declared = DeclaredColumns.of(plan.names, privacy.ranges or {}, plan.parsed.intercept)
    return BoundedRows(shortened(declared.scaled(A[used]), privacy.clip), b[used], w[used], o[used])


def shortened(A: Array, clip: float) -> Array:
    """Rows scaled down to length R where they are longer, (n, p)."""
    largest = np.abs(A).max(axis=1, initial=0.0, keepdims=True)
    unit = np.where(largest > 0, largest, 1.0)
    # in units of the largest number: squares overflow, and factors of tiny size have few digits
    scaled = A / unit
    most = clip / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
    rows: Array = np.where(unit > most, most * scaled, A)
    return rows


def discrete_gaussian(sigma: int, source: Random) -> int:
    """One sample of scale σ, a whole number, by integers alone.

    Gaussian noise in floating point betrays what it is added to by the low bits of the sum (Mironov
    2012). Integers have none: the noise here is exactly P(k) ∝ exp(-k²/2σ²) for whole k, by the
    rejection sampler of Canonne, Kamath and Steinke (2020), from uniform random bits.
    """
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


ROUNDING = 2.0**-21
"""More than what the rounding of products can add to the length of a row's vector, relatively."""

MARGIN = 1.0 + 2.0 * ROUNDING
"""By how much more noise there is than the length of a row's vector needs."""

_HALF_BITS = 31


@dataclass(frozen=True)
class Noise:
    """Noise on a grid."""

    sigma: int  # its scale, in steps
    step: float  # of the grid: a power of two

    @classmethod
    def of(cls, privacy: Privacy, shares: int) -> Noise:
        """That of a client; ``shares`` clients share that of a sum, 1 where each adds all."""
        scale = MARGIN * noise_multiplier(privacy.epsilon, privacy.delta)
        scale *= (privacy.site_rows or 1) / math.sqrt(shares)
        # so that σ has 2⁴⁰ steps of the grid at least, as ``privacy.SLACK`` assumes
        step = 2.0 ** (math.floor(math.log2(scale)) - 40)
        return cls(math.ceil(scale / step), step)

    @property
    def scale(self) -> float:
        """Its standard deviation."""
        return self.sigma * self.step

    def draw(self, length: int, source: Random) -> list[int]:
        """Independent samples, in steps."""
        return [discrete_gaussian(self.sigma, source) for _ in range(length)]


def length_of(p: int, last: bool) -> int:
    """How many numbers the answer to a question has, for p columns."""
    return p + p * (p + 1) // 2 + 3 * last


@dataclass(frozen=True)
class RowVectors:
    """The vectors u_i of a question, at a point x."""

    family: Family
    privacy: Privacy
    bounds: DerivativeBounds
    number: int  # of the question, from 1
    x: Array  # (p,)

    def of(self, rows: BoundedRows) -> Array:
        """u_i of some rows, (n, length), each a function of its row alone."""
        shares = self.privacy.shares(self.number, self.family.dispersed)
        a, h, c = np.sqrt(shares)
        A = rows.A / self.privacy.clip
        eta = self._predictor(rows)
        C, W = self.bounds
        score, weight, square = cut_off(self.family, self.bounds, eta, rows.b, rows.w)
        s = score / C
        w = weight / W
        first, second = np.triu_indices(A.shape[1])
        times = np.where(first == second, 1.0, math.sqrt(2.0))
        parts = [a * s[:, None] * A, h * w[:, None] * (times * A[:, first] * A[:, second])]
        if self.number == self.privacy.rounds:
            parts.append(c / math.sqrt(3.0) * np.column_stack([np.ones_like(s), square / C**2, w]))
        return _no_longer(np.concatenate(parts, axis=1), math.sqrt(sum(shares)))

    def _predictor(self, rows: BoundedRows) -> Array:
        """η of rows, (n,): column by column, since in a product of matrices, how a row is rounded
        depends on how many others there are."""
        eta = rows.o
        with np.errstate(over="ignore", invalid="ignore"):
            for column, x in zip(rows.A.T, self.x, strict=True):
                eta = eta + column * x
        return eta

    def total(self, rows: BoundedRows, step: float) -> list[int]:
        """Σ u_i in steps of the grid.

        Each row is rounded towards zero, which makes no vector longer, and the sum is exact: in
        floating point one row more could change the rounding of all.
        """
        n = len(rows.b)
        factor = 1.0
        if self.privacy.site_rows is not None:
            factor = min(1.0, self.privacy.site_rows / max(1, n))
        length = length_of(rows.A.shape[1], self.number == self.privacy.rounds)
        high, low = np.zeros((2, length), dtype=np.int64)
        for piece in pieces(n):
            some = BoundedRows(*(each[piece] for each in rows))
            steps: NDArray[np.int64] = np.trunc(factor * self.of(some) / step).astype(np.int64)
            high += (steps >> _HALF_BITS).sum(axis=0)
            low += (steps & ((1 << _HALF_BITS) - 1)).sum(axis=0)
        pairs = zip(high.tolist(), low.tolist(), strict=True)
        return [(above << _HALF_BITS) + below for above, below in pairs]


def _no_longer(vectors: Array, longest: float) -> Array:
    """Vectors, (n, k), of which none is longer, but for its rounding; what is becomes 0.

    No row gets here with a longer one, or with numbers that are not finite. The guarantee does not
    depend on that.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.where(length <= (1.0 + ROUNDING) * longest, vectors, 0.0)


def source_of(privacy: Privacy, client: str, number: int) -> Random:
    """Where random bits come from: the operating system, or a seed in simulations."""
    if privacy.seed is None:
        return SystemRandom()
    return Random(f"{privacy.seed} {number} {client}")


def split(numbers: list[int], step: float) -> tuple[Array, Array]:
    """Whole numbers of steps as two arrays whose sum they are exactly."""
    high = [(each >> _HALF_BITS) << _HALF_BITS for each in numbers]
    low = [each - above for each, above in zip(numbers, high, strict=True)]
    first, second = (np.array([float(each) for each in part]) * step for part in (high, low))
    return first, second
