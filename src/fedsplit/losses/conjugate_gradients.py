"""Conjugate gradients for systems that are too large to be held."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsplit.arrays import Array, dots, norms

TOLERANCE = 1e-12
"""Of a solution to rounding, nearly: what comes after it looks at the residual itself."""

MOST_PRODUCTS = 2000
"""Of a system that is nearly singular: what is left then is a residual like any other."""


def conjugate_gradients(
    times: Callable[[Array], Array],
    diagonal: Array,
    G: Array,
    tolerance: float | Array = TOLERANCE,
) -> Array:
    """U with M_ju_j = g_j for k clients, until ‖g_j - M_ju_j‖ ≤ tolerance·‖g_j‖.

    Parameters
    ----------
    times : callable
        The product with the M_j, which are positive definite: (k, d) -> (k, d).
    diagonal : (k, d) array
        That of the M_j, by which the systems are preconditioned.
    G : (k, d) array
    tolerance : float or (k,) array
    """
    enough = tolerance * norms(G)
    U = np.zeros_like(G)
    R = G
    Z = R / diagonal
    Q = Z
    size = dots(R, Z)
    for _ in range(MOST_PRODUCTS):
        active = norms(R) > enough
        if not active.any():
            break
        image = times(Q)
        curvature = dots(Q, image)
        active = active & (curvature > 0)
        if not active.any():
            break
        t = np.where(active, size, 0.0) / np.where(active, curvature, 1.0)
        U = U + t[:, None] * Q
        R = R - t[:, None] * image
        Z = R / diagonal
        before = size
        size = dots(R, Z)
        turn = np.where(active, size, 0.0) / np.where(active, before, 1.0)
        Q = Z + turn[:, None] * Q
    return U
