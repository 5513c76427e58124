"""The server's own problem: a quadratic in d variables, with a penalty."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from fedsplit.arrays import Array
from fedsplit.penalties.penalty import Penalty

REDUCTION = 1e-4
"""How far the residual is reduced from the warm start: later rounds repeat the solve, closer."""


def minimise(
    M: Any,
    b: Array,
    largest: float,
    penalty: Penalty | None,
    scale: Array,
    x: Array,
    reduction: float = REDUCTION,
) -> tuple[Array, Array]:
    """Minimise ½uᵀMu - bᵀu + g(x) over x, with u = x/scale.

    Parameters
    ----------
    M : (d, d) array
        Positive definite; with a penalty, anything that has products with vectors.
    b : (d,) array
    largest : float
        The largest eigenvalue of M.
    penalty : Penalty or None
        g.
    scale : (d,) array
    x : (d,) array
        Where to start with a penalty.
    reduction : float
        How far to reduce the residual with a penalty.

    Returns
    -------
    x : (d,) array
        The minimiser. With a penalty it is an output of its prox, so zeros are exact.
    slope : (d,) array
        A subgradient of g(scale∘u) in u at the minimiser.
    """
    xp = array_namespace(x)
    if penalty is None:
        # A shift at the level of rounding, in case M is singular.
        u = xp.linalg.solve(M + 1e-15 * largest * xp.eye(b.shape[0], device=device(b)), b)
        return scale * u, xp.zeros_like(x)
    return _proximal_gradient(M, b, 1.0 / largest, penalty, scale, x, reduction)


def gain(
    M: Array, penalty: Penalty | None, scale: Array, x: Array, best: Array, slope: Array
) -> float:
    """How much smaller ``minimise``'s objective is at its minimiser than at x.

    The quadratic's gradient at the minimiser is -slope, so this is ½‖h‖²_M with
    h = (best - x)/scale, and by how much g is above its tangent.
    """
    h = (best - x) / scale
    curved = 0.5 * float(h @ (M @ h))
    if penalty is None:
        return curved
    return max(0.0, curved + float(slope @ h) + penalty.value(x) - penalty.value(best))


def _proximal_gradient(
    M: Any,
    b: Array,
    t: float,
    penalty: Penalty,
    scale: Array,
    x: Array,
    reduction: float,
) -> tuple[Array, Array]:
    """Accelerated proximal gradient steps of length t in u, restarted when momentum goes uphill."""
    xp = array_namespace(x)
    steps: float | Array = t
    if not xp.all(scale == 1.0):
        steps = t * scale**2  # a step of t in u is one of t·scale² in x
    before = x / scale
    w = before  # extrapolated
    momentum = 1.0
    first: float | None = None
    for _ in range(5000):  # some tens are usual
        u = w - t * (M @ w - b)
        x = penalty.prox(scale * u, steps)
        after = x / scale
        size = float(xp.linalg.vector_norm(after - w))
        if first is None:
            first = size
        if size <= reduction * first:
            break
        forward = after - before
        if float(xp.sum((w - after) * forward)) > 0:  # the momentum points uphill
            momentum = 1.0
        grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5)
        w = after + (momentum - 1.0) / grown * forward
        before = after
        momentum = grown
    return x, (u - after) / t
