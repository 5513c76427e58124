"""The server's own problem: a quadratic in d variables, with a penalty."""

from __future__ import annotations

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.penalties.penalty import Penalty

ACCURACY = 1e-4
"""How far the residual is brought down from the warm start: outer rounds repeat the solve ever closer."""

ITERATIONS = 5000


def minimise(
    M: Array, b: Array, largest: float, penalty: Penalty | None, scale: Array, x: Array
) -> tuple[Array, Array]:
    """x that minimises ½uᵀMu - bᵀu + g(x) with u = x/scale, and a subgradient of g(scale∘u) in u there.

    A linear system without a penalty, shifted by a rounding in case it is singular; else accelerated proximal gradient
    steps from the given x, with restarts. M is positive definite with the largest eigenvalue ``largest``. With a
    penalty x is the output of its prox, to the bit.
    """
    xp = array_namespace(x)
    if penalty is None:
        return scale * xp.linalg.solve(M + 1e-15 * largest * xp.eye(b.shape[0]), b), xp.zeros_like(
            x
        )
    t = 1.0 / largest
    steps = t if xp.all(scale == 1.0) else t * scale**2
    before = w = x / scale
    momentum, first = 1.0, None
    for _ in range(ITERATIONS):
        u = w - t * (M @ w - b)
        x = penalty.prox(scale * u, steps)
        after = x / scale
        size = float(xp.linalg.vector_norm(after - w))
        first = size if first is None else first
        if size <= ACCURACY * first:
            break
        forward = after - before
        if float(xp.sum((w - after) * forward)) > 0:  # the momentum points uphill: restart
            momentum = 1.0
        grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5)
        w, before, momentum = after + (momentum - 1.0) / grown * forward, after, grown
    return x, (u - after) / t
