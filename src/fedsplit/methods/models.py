"""Models of the clients' curvature, each a block BFGS matrix from the client's pairs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from fedsplit.arrays import Array, Mask, column_sums, dots, matvec, norms, on_host, rmatvec
from fedsplit.device.programs import Found, for_each_client

INDEPENDENT = 1e-2
"""A direction adds to those that are kept if at least this share of it is new."""

SYMMETRIC = 0.15
"""Pairs (a, b) of one quadratic have a_iᵀb_j = b_iᵀa_j. One that misses this by more, relative to
b, is too old."""

DEFINITE = 1e-10
"""Curvature below this share of the largest is rounding."""

FORGET = 1.03
"""By how much per round the extreme curvatures seen may approach those of the current pairs: costs
change with x."""

EXPLAINED = 1e-4
"""A model that is off by at most this share of a new pair's dy need not learn from it."""

BLOCK = 512
"""How many clients' models are learnt together: their arrays stay in the processor's cache."""


class Models(NamedTuple):
    """B_j = σ_j(I - S_jᵀS_j) + Z_jᵀZ_j for m clients.

    Attributes
    ----------
    sigma : (m,) array
    S : (m, k, d) array
        Orthonormal rows, zero where unused.
    Z : (m, k, d) array
    lowest, highest : (m,) array
        The extreme curvatures within the span of S; inf and -inf where that is empty.
    low, high : (m,) array
        The extreme curvatures seen so far.
    """

    sigma: Array
    S: Array
    Z: Array
    lowest: Array
    highest: Array
    low: Array
    high: Array

    def explains(self, dp: Array, dy: Array) -> Mask:
        """Whether B_j dp_j is dy_j nearly, (m,)."""
        return norms(dy - self.times(dp)) <= EXPLAINED * norms(dy)

    def times(self, U: Array) -> Array:
        """B_j u_j for every client, (m, d)."""
        inside = rmatvec(self.S, matvec(self.S, U))
        return self.sigma[:, None] * (U - inside) + rmatvec(self.Z, matvec(self.Z, U))

    def gradients(self, x: Array, p: Array, y: Array) -> tuple[Array, Array]:
        """The y_j + B_j(x - p_j), (m, d), and their sum, (d,), for x that is (d,)."""
        if self._of_one_pair:
            found = for_each_client(_gradients, (*self._pair, p, y), (self.sigma,), (x,))
            return found.vectors[0], found.totals[0]
        Y: Array = y + self.times(x - p)
        return Y, column_sums(Y)

    def right_side(self, p: Array, y: Array) -> Array:
        """Σ_j (B_jp_j - y_j), (d,): Σ_j B_jx for the x at which the models' gradients cancel."""
        if self._of_one_pair:
            found = for_each_client(_pull, (*self._pair, p, y), (self.sigma,))
            total: Array = found.totals[0]
            return total
        return column_sums(self.times(p) - y)

    @property
    def _of_one_pair(self) -> bool:
        """Whether models are of one pair each, on a device, where arithmetic costs its passes."""
        return self.S.shape[1] == 1 and not on_host(self.S)

    @property
    def _pair(self) -> tuple[Array, Array]:
        """The only rows of S and Z, each (m, d)."""
        return self.S[:, 0, :], self.Z[:, 0, :]

    def pooled(self) -> Array:
        """Σ_j B_j, (d, d)."""
        xp = array_namespace(self.S)
        d = self.S.shape[2]
        S = xp.reshape(xp.sqrt(self.sigma)[:, None, None] * self.S, (-1, d))
        Z = xp.reshape(self.Z, (-1, d))
        one = xp.eye(d, device=device(S))
        total: Array = xp.sum(self.sigma) * one - S.T @ S + Z.T @ Z
        return total

    def faded(self, low: Array, high: Array) -> Models:
        """With the extremes seen so far, (m,), which fade: curvature met long ago is forgotten."""
        xp = array_namespace(low)
        seen = self.highest > 0
        low = xp.where(seen, xp.minimum(self.lowest, FORGET * low), low)
        high = xp.where(seen, xp.maximum(self.highest, high / FORGET), high)
        return self._replace(sigma=xp.sqrt(low * high), low=low, high=high)


def learn(dp: Array, dy: Array, low: Array, high: Array, known: Models | None = None) -> Models:
    """The model of every client from its pairs.

    The directions are made orthonormal, newest first, and their images follow by linearity. A pair
    is left out if its direction is not new, or if it and the newer ones cannot come from one
    quadratic: it is then too old, or the local solver too inexact. Every B_j is positive definite
    and, on a quadratic, exact on all the directions kept. Elsewhere it is σ_j = √(low_j high_j), as
    in Theorem 1.

    Parameters
    ----------
    dp, dy : (k, m, d) array
        The pairs (p - p', y - y'), newest first.
    low, high : (m,) array
        The extreme curvatures seen so far.
    known : Models, optional
        The models before the newest pairs. A model that explains its newest pair stays.
    """
    xp = array_namespace(dp)
    if not on_host(dp):
        return _learn_at_once(dp, dy, low, high, known)
    k = max(1, int(xp.sum(xp.any(dp != 0.0, axis=(1, 2)))))  # the rest is empty for every client
    _, m, d = dp.shape
    S = xp.zeros((m, k, d))
    Z = xp.zeros((m, k, d))
    lowest = xp.full(m, xp.inf)
    highest = xp.full(m, -xp.inf)
    news = xp.arange(m)
    if known is not None:
        same = known.explains(dp[0], dy[0])
        news = news[~same]
        if news.shape[0] == 0:
            return known.faded(low, high)
        S[same, : known.S.shape[1]] = known.S[same]
        Z[same, : known.S.shape[1]] = known.Z[same]
        lowest[same] = known.lowest[same]
        highest[same] = known.highest[same]
    for first in range(0, news.shape[0], BLOCK):
        rows = slice(first, first + BLOCK)  # a view, where that is possible
        if news.shape[0] < m:
            rows = news[rows]
        S[rows], Z[rows], lowest[rows], highest[rows] = _learn_block(dp[:k, rows], dy[:k, rows])
    return Models(low, S, Z, lowest, highest, low, high).faded(low, high)


def _learn_at_once(dp: Array, dy: Array, low: Array, high: Array, known: Models | None) -> Models:
    """The same for arrays on a device, where many small steps take longer than a large one."""
    xp = array_namespace(dp)
    if dp.shape[0] == 1:
        return _learn_pair(dp[0, :, :], dy[0, :, :], low, high, known)
    used = [i for i in range(dp.shape[0]) if float(xp.max(xp.abs(dp[i, :, :]))) > 0.0]
    k = max(1, len(used))
    dp = dp[:k, :, :]
    dy = dy[:k, :, :]
    S, Z, lowest, highest = _learn_block(dp, dy)
    if known is not None and known.S.shape == S.shape:
        same = known.explains(dp[0, :, :], dy[0, :, :])
        kept = same[:, None, None]
        S = xp.where(kept, known.S, S)
        Z = xp.where(kept, known.Z, Z)
        lowest = xp.where(same, known.lowest, lowest)
        highest = xp.where(same, known.highest, highest)
    return Models(low, S, Z, lowest, highest, low, high).faded(low, high)


def _learn_pair(dp: Array, dy: Array, low: Array, high: Array, known: Models | None) -> Models:
    """The same of one pair per client, (m, d) each: B = σ(I - aaᵀ) + bbᵀ, a = dp/‖dp‖."""
    if known is None:
        found = for_each_client(_model_of_pair, (dp, dy))
    else:
        vectors = (dp, dy, *known._pair)
        numbers = (known.sigma, known.lowest, known.highest)
        found = for_each_client(_kept_or_new, vectors, numbers)
    S, Z = (each[:, None, :] for each in found.vectors)
    lowest, highest = found.numbers
    return Models(low, S, Z, lowest, highest, low, high).faded(low, high)


def _model_of_pair(operations: Any, dp: Array, dy: Array) -> Found:
    """a, b, and the curvature along a, as the least and as the largest."""
    where, sqrt = operations.where, operations.sqrt
    square = operations.dot(dp, dp)
    slope = operations.dot(dp, dy)
    used = (square > 0.0) & (slope > DEFINITE * sqrt(square * operations.dot(dy, dy)))
    square = where(used, square, 1.0)
    slope = where(used, slope, 1.0)
    a = where(used, 1.0 / sqrt(square), 0.0) * dp
    b = where(used, 1.0 / sqrt(slope), 0.0) * dy
    curvature = slope / square
    return Found((a, b), (where(used, curvature, math.inf), where(used, curvature, -math.inf)))


def _kept_or_new(
    operations: Any,
    dp: Array,
    dy: Array,
    a: Array,
    b: Array,
    sigma: Array,
    lowest: Array,
    highest: Array,
) -> Found:
    """The model before the pair if it explains that, else one of the pair."""
    off = dy - _times(operations, a, b, sigma, dp)
    square = operations.dot(off, off)
    same = square <= EXPLAINED**2 * operations.dot(dy, dy)
    new = _model_of_pair(operations, dp, dy)
    pairs = zip((a, b), new.vectors, strict=True)
    extremes = zip((lowest, highest), new.numbers, strict=True)
    vectors = [operations.where(same, *each) for each in pairs]
    numbers = [operations.where(same, *each) for each in extremes]
    return Found(tuple(vectors), tuple(numbers))


def _times(operations: Any, a: Array, b: Array, sigma: Array, u: Array) -> Array:
    """Bu with B = σ(I - aaᵀ) + bbᵀ."""
    inside = operations.dot(a, u) * a
    image: Array = sigma * (u - inside) + operations.dot(b, u) * b
    return image


def _pull(operations: Any, a: Array, b: Array, p: Array, y: Array, sigma: Array) -> Found:
    """Bp - y."""
    return Found(totals=(_times(operations, a, b, sigma, p) - y,))


def _gradients(
    operations: Any, a: Array, b: Array, p: Array, y: Array, sigma: Array, x: Array
) -> Found:
    """y + B(x - p)."""
    at_x = y + _times(operations, a, b, sigma, x - p)
    return Found(vectors=(at_x,), totals=(at_x,))


def _learn_block(dp: Array, dy: Array) -> tuple[Array, Array, Array, Array]:
    """S, Z, and the extreme curvatures of some clients' models from all their pairs."""
    xp = array_namespace(dp)
    A, B = _orthonormal(dp, dy)
    # The curvature within the span of the directions, symmetrised: pairs are exact only on a
    # quadratic.
    C = xp.matmul(A, xp.matrix_transpose(B))
    if C.shape[1] == 1:
        curvature = C[:, :, 0]
        U = xp.ones_like(C)
    else:
        curvature, U = xp.linalg.eigh(0.5 * (C + xp.matrix_transpose(C)))
    highest = xp.max(curvature, axis=1)
    kept = curvature > DEFINITE * xp.maximum(highest, 1e-300)[:, None]
    U = xp.where(kept[:, None, :], U, 0.0)
    S = xp.matmul(xp.matrix_transpose(U), A)
    image = xp.matmul(xp.matrix_transpose(U), B)
    # ZᵀZ maps every row of S to its image, is symmetric, and has the least rank that can do so.
    across = image - xp.matmul(xp.matmul(image, xp.matrix_transpose(S)), S)
    positive = xp.where(kept, curvature, 1.0)[:, :, None]
    Z = (across + positive * S) / xp.sqrt(positive)
    lowest = xp.min(xp.where(kept, curvature, xp.inf), axis=1)
    return S, Z, lowest, xp.where(xp.any(kept, axis=1), highest, -xp.inf)


def _orthonormal(dp: Array, dy: Array) -> tuple[Array, Array]:
    """The directions of the pairs made orthonormal, and their images, both (m, k', d)."""
    xp = array_namespace(dp)
    k, m, d = dp.shape
    shape = (m, k if on_host(dp) else 0, d)
    A = xp.zeros(shape, device=device(dp))
    B = xp.zeros(shape, device=device(dp))
    for i in range(k):
        newer_a = A[:, :i, :]
        newer_b = B[:, :i, :]
        a = dp[i, :, :]
        b = dy[i, :, :]
        length = norms(a)
        used = length > 0
        scale = xp.where(used, length, 1.0)[:, None]
        a = a / scale
        b = b / scale
        for _ in range(2):  # twice is enough for orthogonality to rounding
            c = matvec(newer_a, a)
            a = a - rmatvec(newer_a, c)
            b = b - rmatvec(newer_b, c)
        length = norms(a)
        used = used & (length > INDEPENDENT)
        scale = xp.where(used, length, 1.0)[:, None]
        a = a / scale
        b = b / scale
        size = norms(b)
        asymmetry = norms(matvec(newer_a, b) - matvec(newer_b, a))
        used = used & (asymmetry <= SYMMETRIC * size) & (dots(a, b) > DEFINITE * size)
        A = _with_row(A, i, xp.where(used[:, None], a, 0.0))
        B = _with_row(B, i, xp.where(used[:, None], b, 0.0))
    return A, B


def _with_row(A: Array, i: int, a: Array) -> Array:
    """A, (m, k, d), with the rows a, (m, d), at i; on a device A is longer by them."""
    if on_host(A):
        A[:, i, :] = a
        return A
    longer: Array = array_namespace(A).concat([A, a[:, None, :]], axis=1)
    return longer
