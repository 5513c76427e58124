"""Local solvers in the span of a client's rows, for all clients together, over the array API.

A gradient step from u = αv + βx + Aᵀw stays in that form, and needs Au = αAv + βAx + Kw alone,
with K = AAᵀ: n² operations and not n·d. The exact prox is (v + sAᵀμ)/r with r = 1 + s·ridge, and
μ minimises Σ_i w_i φ(η_i) + ½κμᵀKμ, where η = Av/r + κKμ + o and κ = s/r.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedsplit.device.backend import DeviceArray
from fedsplit.device.line_search import searched
from fedsplit.device.rows import DeviceRows

MOST_STEPS = 100
"""Far more Newton steps than a convex cost with a line search needs."""


class Images(NamedTuple):
    """What the rows make of v, and of the server's x: A_jv_j and A_jx, each (m, n)."""

    v: DeviceArray
    x: DeviceArray


class Combination(NamedTuple):
    """u_j = αv_j + βx + A_jᵀw_j.

    Attributes
    ----------
    alpha, beta : float, or (m, 1) arrays
    w : (m, n) array
    """

    alpha: float | DeviceArray
    beta: float | DeviceArray
    w: DeviceArray


def gradient_steps(
    rows: DeviceRows,
    images: Images,
    start: tuple[float, float],
    linear: tuple[float, float, float],
    step: float | DeviceArray,
    steps: int,
) -> tuple[Combination, DeviceArray]:
    """Steps u ← u - a(s∇Σφ(Au) + ru - lv) from αv + βx.

    Parameters
    ----------
    rows : DeviceRows
    images : Images
    start : (float, float)
        α and β at the start.
    linear : (float, float, float)
        s, r and l.
    step : float or (m, 1) array
        a.
    steps : int

    Returns
    -------
    combination : Combination
    slopes : (m, n) array
        Those at the end.
    """
    alpha: float | DeviceArray
    beta: float | DeviceArray
    alpha, beta = start
    s, r, pull = linear
    w = rows.xp.zeros_like(images.x)

    def slopes() -> DeviceArray:
        product = alpha * images.v + beta * images.x + rows.row_products(w)
        return rows.slopes(rows.predictor(product))

    for _ in range(steps):
        g = slopes()
        kept = 1.0 - step * r
        w = kept * w - (step * s) * g
        alpha = kept * alpha + step * pull
        beta = kept * beta
    return Combination(alpha, beta, w), slopes()


class Dual(NamedTuple):
    """Where Newton's method is.

    Attributes
    ----------
    mu, Kmu : (m, n) arrays
        μ, and A D⁻¹Aᵀμ.
    """

    mu: DeviceArray
    Kmu: DeviceArray


def newton(
    rows: DeviceRows, K: DeviceArray, offset: DeviceArray, start: DeviceArray
) -> tuple[DeviceArray, DeviceArray]:
    """Minimise ψ(μ) = Σ_i w_i φ(η_i) + ½μᵀKμ, η = offset + Kμ, by Newton's method to rounding.

    Parameters
    ----------
    rows : DeviceRows
    K : (m, n, n) array
        A D⁻¹Aᵀ.
    offset : (m, n) array
        The predictors at μ = 0, offsets included.
    start : (m, n) array
        Where to start, unless ψ is less at 0.

    Returns
    -------
    mu : (m, n) array
    missing : (m, n) array
        -φ'(η) - μ: zero at the minimiser.
    """
    xp = rows.xp
    one = rows.cast(xp.eye(rows.n, device=rows.device))
    at = _better_start(rows, K, offset, start)
    value = _psi(rows, offset, at)
    size = xp.full((rows.m,), math.inf, dtype=xp.float64, device=rows.device)
    active = size > 0.0
    missing = -rows.slopes(offset + at.Kmu) - at.mu
    # slopes are rounded relative to η, too: what is left below this share is rounding
    rounding = 16.0 * float(xp.finfo(rows.A.dtype).eps)
    for _ in range(MOST_STEPS):
        previous = size
        size = _norms(rows, missing)
        scale = _norms(rows, at.mu) + rounding
        stalled = (size > 0.5 * previous) & (size <= 1e3 * rounding * scale)
        active = active & (size > rounding * scale) & ~stalled
        if not bool(xp.any(active)):
            break
        W = rows.curvatures(offset + at.Kmu)
        step = xp.linalg.solve(one + W[:, :, None] * K, missing[:, :, None])
        delta = xp.where(active[:, None], step[:, :, 0], xp.zeros_like(missing))
        Kdelta = xp.matmul(K, delta[:, :, None])[:, :, 0]
        slope = -_dots(rows, missing, Kdelta)
        at, value = _searched(rows, offset, at, value, Dual(delta, Kdelta), slope)
        missing = -rows.slopes(offset + at.Kmu) - at.mu
    return at.mu, missing


def _better_start(
    rows: DeviceRows, K: DeviceArray, offset: DeviceArray, start: DeviceArray
) -> Dual:
    """The start, or 0 at clients to which that is the better one."""
    xp = rows.xp
    at = Dual(start, xp.matmul(K, start[:, :, None])[:, :, 0])
    worse = ~(_psi(rows, offset, at) <= rows.values(offset))
    nothing = xp.zeros_like(start)
    return Dual(*(xp.where(worse[:, None], nothing, each) for each in at))


def _psi(rows: DeviceRows, offset: DeviceArray, at: Dual) -> DeviceArray:
    """ψ(μ_j), (m,)."""
    return rows.values(offset + at.Kmu) + 0.5 * _dots(rows, at.mu, at.Kmu)


def _searched(
    rows: DeviceRows,
    offset: DeviceArray,
    at: Dual,
    value: DeviceArray,
    step: Dual,
    slope: DeviceArray,
) -> tuple[Dual, DeviceArray]:
    """A step by which ψ falls enough, for every client."""
    xp = rows.xp

    def ahead(t: DeviceArray) -> tuple[Dual, DeviceArray]:
        point = Dual(at.mu + t * step.mu, at.Kmu + t * step.Kmu)
        return point, _psi(rows, offset, point)

    found, values, refused = searched(rows, value, slope, ahead)
    stays = refused[:, None]
    kept = Dual(*(xp.where(stays, old, new) for old, new in zip(at, found, strict=True)))
    return kept, xp.where(refused, value, values)


def _dots(rows: DeviceRows, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """⟨a_j, b_j⟩, (m,), in float64."""
    return rows.xp.sum(a * b, axis=1, dtype=rows.xp.float64)


def _norms(rows: DeviceRows, a: DeviceArray) -> DeviceArray:
    return rows.xp.sqrt(_dots(rows, a, a))
