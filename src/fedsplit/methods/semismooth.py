"""The server's own problem with a coordinatewise penalty, by Newton's method on its prox."""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.methods.method import EPS
from fedsplit.penalties.penalty import Penalty

MOST_STEPS = 50
"""Some three to ten are usual: from the last minimiser only a few coordinates change sides."""

NUDGE = 1e-7
"""The difference in a quotient that tells whether a coordinate is held, relative to its size."""


def minimise_coordinatewise(
    H: Array, b: Array, penalty: Penalty, x: Array, reduction: float
) -> tuple[Array, Array] | None:
    """Minimise ½xᵀHx - bᵀx + g(x), where g is a sum over the coordinates.

    The minimiser is the zero of r(x) = prox_{tg}(x - t(Hx - b)) - x, which is piecewise smooth: for
    a lasso, linear while no coordinate leaves or reaches zero. A step of Newton's method that ends
    above a proximal gradient step, which falls if diag(1/t) ⪰ H, is not taken.

    Parameters
    ----------
    H : (d, d) array
        Positive definite.
    b : (d,) array
    penalty : Penalty
        g.
    x : (d,) array
        Where to start.
    reduction : float
        How far to reduce the first step.

    Returns
    -------
    x, slope : (d,) arrays
        The minimiser, an output of the prox, so that zeros are exact, and a subgradient of g there.
        None if it was not found.
    """

    def value(x: Array) -> float:
        return 0.5 * float(x @ (H @ x)) - float(b @ x) + penalty.value(x)

    # the eigenvalues of H, scaled to a unit diagonal, are at most the sums of its rows
    size = np.sqrt(np.diag(H))
    t = 1.0 / (np.square(size) * np.max(np.abs(H / size) / size[:, None] @ np.ones_like(x)))
    metric = 1.0 / np.sqrt(t)
    first = 0.0
    for _ in range(MOST_STEPS):
        w = x - t * (H @ x - b)
        p = penalty.prox(w, t)
        r = p - x
        length = float(np.linalg.norm(metric * r))
        first = max(first, length)
        if length <= max(reduction * first, 4.0 * EPS * float(np.linalg.norm(metric * w))):
            return p, (w - p) / t
        nudge = NUDGE * (np.abs(w) + np.abs(p) + first / metric)
        D = (penalty.prox(w + nudge, t) - p) / nudge
        J = (D * t)[:, None] * H
        J[np.diag_indices_from(J)] += 1.0 - D
        x = x + np.linalg.solve(J, r)
        ahead = penalty.prox(x - t * (H @ x - b), t)
        rounding = 4.0 * EPS * (np.abs(b) @ np.abs(p))
        if not value(ahead) <= value(p) + rounding:
            x = p
    return None
