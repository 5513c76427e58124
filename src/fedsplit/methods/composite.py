"""The server's own problem: a quadratic in d variables, with a penalty."""

from __future__ import annotations

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.penalties import Penalty

ACCURACY = 1e-4
"""How far the residual is brought down from the warm start: outer rounds repeat the solve ever closer."""

ITERATIONS = 5000


def minimise(M: Array, b: Array, penalty: Penalty | None, scale: Array, x: Array) -> tuple[Array, Array]:
    """argmin_x ½xᵀMx - bᵀx + g(scale∘x), from the start x, and a subgradient of the penalty there.

    A linear system without a penalty, else accelerated proximal gradient steps with restarts. M is positive definite.
    """
    xp = array_namespace(x)
    if penalty is None:
        return xp.linalg.solve(M, b), xp.zeros_like(x)
    t = 1.0 / float(xp.linalg.matrix_norm(M, ord=2))
    steps = t if xp.all(scale == 1.0) else t * scale**2
    w, momentum, first = x, 1.0, None
    for _ in range(ITERATIONS):
        u = w - t * (M @ w - b)
        after = penalty.prox(scale * u, steps) / scale
        size = float(xp.linalg.vector_norm(after - w))
        first = size if first is None else first
        if size <= ACCURACY * first:
            return after, (u - after) / t
        forward = after - x
        if float(xp.sum((w - after) * forward)) > 0:  # the momentum points uphill: restart
            momentum = 1.0
        grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5)
        w, x, momentum = after + (momentum - 1.0) / grown * forward, after, grown
    return after, (u - after) / t
