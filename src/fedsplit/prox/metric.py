"""A client's own model of its cost: where a prox in a metric of matrices leads, and f_j there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, add_diagonal, dots, matvec, solve_rows
from fedsplit.losses.costs import Costs
from fedsplit.prox.line_search import Point, search

LEAST_REACH = 0.1
"""Of a client whose own data say no more than noise."""

RATIO = 0.1
"""Newton stops when its next step would be a smaller share of the way from x. What is left does
not matter: the model is exact at p_j, wherever that is."""

MOST_STEPS = 50
"""Far more Newton steps than a convex cost with a line search needs."""

SHIFT = 1e-6
"""Added to the diagonal of a client's Hessian, relative to it, so that it is regular."""

LEAST_SHIFT = 1e-14
"""The same for a system that should be regular, and may not be for rounding."""


@dataclass(frozen=True)
class MetricMerit:
    """h_j(u) = f_j(u) + ½(u - v_j)ᵀM_j(u - v_j).

    Attributes
    ----------
    costs : Costs
        The f_j.
    V : (k, d) array
        The v_j.
    M : (k, d, d) array
        Positive definite.
    """

    costs: Costs
    V: Array
    M: Array

    def value(self, U: Array) -> Array:
        """h_j(u_j), (k,); +inf where that is not a number."""
        E = U - self.V
        h = self.costs.value(U) + 0.5 * dots(E, matvec(self.M, E))
        return np.where(np.isnan(h), np.inf, h)

    def gradient(self, U: Array) -> Array:
        """∇h_j(u_j), (k, d)."""
        return self.costs.gradient(U) + matvec(self.M, U - self.V)


def own_metric(H: Array, g: Array, most: float) -> Array:
    """Each client's own metric H_j/reach_j, (k, d, d), for the first question.

    The squared length of a client's own Newton step, in its own Hessian, is about the number of
    coefficients if its data are noise. James and Stein's estimator shrinks the step by
    1 - freedom/length², which is what a reach of length²/freedom - 1 does.

    Parameters
    ----------
    H : (k, d, d) array
        ∇²f_j(x), which is overwritten; a shift makes a singular one regular.
    g : (k, d) array
        ∇f_j(x).
    most : float
        The largest reach.
    """
    size = _sizes(H)
    freedom = H.shape[1]
    C = add_diagonal(H / (size[:, :, None] * size[:, None, :]), SHIFT * np.ones(freedom))
    inverse = np.linalg.inv(C)
    length2 = dots(g / size, matvec(inverse, g / size))
    determined = freedom - SHIFT * np.einsum("kii->k", inverse)
    reach = np.clip(length2 / np.maximum(determined, 1.0) - 1.0, LEAST_REACH, most)
    return add_diagonal(H, SHIFT * size**2) / reach[:, None, None]


def _sizes(H: Array) -> Array:
    """The roots of the diagonals, (k, d), which take out the units; 1 where there is nothing."""
    diagonal = np.einsum("kii->ki", H)
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def _newton_step(H: Array, G: Array) -> Array:
    """H_j⁻¹g_j without units, (k, d), also if H_j is singular to rounding."""
    size = _sizes(H)
    C = H / (size[:, :, None] * size[:, None, :])
    return solve_rows(add_diagonal(C, LEAST_SHIFT * np.ones(H.shape[1])), G / size) / size


def model_point(
    costs: Costs, X: Array, slope: Array, M: Array, V: Array
) -> tuple[Array, Array, Array]:
    """Where Newton's method on h_j ends, with the gradient and the Hessian of f_j there.

    Parameters
    ----------
    costs : Costs
        The f_j of k clients.
    X, slope : (k, d) arrays
        The starts, and the gradients of f_j there.
    M : (d, d) or (k, d, d) array
        The metric.
    V : (k, d) array
        The centres.

    Returns
    -------
    p, gradient : (k, d) arrays
    hessian : (k, d, d) array
    """
    merit = MetricMerit(costs, V, np.broadcast_to(M, (*X.shape, X.shape[1])))
    at = Point(np.array(X), merit.value(X), np.ones(len(X), dtype=bool))
    g = slope
    B = costs.hessian(X)
    active = np.isfinite(at.h)
    for _ in range(MOST_STEPS):
        G = g + matvec(merit.M, at.U - V)
        step = _newton_step(B + merit.M, G)
        way = at.U - X
        length = np.sqrt(np.maximum(dots(G, step), 0.0))
        travelled = np.sqrt(np.maximum(dots(way, matvec(B + merit.M, way)), 0.0))
        active = active & at.moved & (length > RATIO * travelled) & (length > 0)
        if not active.any():
            break
        step = np.where(active[:, None], step, 0.0)
        at = search(merit, at, step, np.where(active, dots(G, step), 0.0), share=1e-4)
        g = costs.gradient(at.U)
        B = costs.hessian(at.U)
    return at.U, g, B
