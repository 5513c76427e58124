"""A client's own model of its cost: where a prox in a metric of matrices leads, and f_j there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, Cholesky, Mask, add_diagonal, dots, matvec
from fedsplit.losses.costs import Costs
from fedsplit.losses.work import counter
from fedsplit.prox.line_search import Point, search

LEAST_REACH = 0.1
"""Of a client whose own data say no more than noise."""

RATIO = 0.1
"""Newton stops when its next step would be a smaller share of the way from x. What is left does
not matter: the model is exact at p_j, wherever that is."""

ROUNDING = 16 * np.finfo(np.float64).eps
"""A squared step that is a smaller share of h_j is lost in it."""

CHORDS = 2
"""Steps with the same matrix, one gradient each, before Newton's, which take a Hessian each."""

MOST_STEPS = 10
"""Of Newton: a client that is not there yet goes on in the next round."""

SHIFT = 1e-6
"""Added to the diagonal of a client's Hessian, relative to it, so that it is regular."""


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
        ∇²f_j(x); a shift makes a singular one regular.
    g : (k, d) array
        ∇f_j(x).
    most : float
        The largest reach.
    """
    counter.factorisations += 1
    factors = Cholesky(H, SHIFT)
    length2 = dots(g, factors.solve(g))
    reach = np.clip(length2 / np.maximum(factors.freedom, 1.0) - 1.0, LEAST_REACH, most)
    regular = add_diagonal(H.copy(), SHIFT * factors.sizes**2)
    regular /= reach[:, None, None]
    return regular


def own_point(
    costs: Costs, X: Array, slope: Array, H: Array, M: Array
) -> tuple[Array, Array, Array]:
    """Near the minimiser of h_j with centre x_j, by Newton's method.

    Parameters
    ----------
    costs : Costs
        The f_j of k clients.
    X, slope : (k, d) arrays
        The starts, and the gradients of f_j there.
    H, M : (k, d, d) arrays
        The Hessians there, and the metrics.

    Returns
    -------
    p, gradient : (k, d) arrays
    hessian : (k, d, d) array
        Of f_j at p_j.
    """
    everyone = np.ones(len(X), dtype=bool)
    return _newton(MetricMerit(costs, X, M), X, np.array(X), slope, H, everyone)


def pooled_point(
    costs: Costs, X: Array, value: Array, slope: Array, mean: Array, reach: float, V: Array
) -> tuple[Array, Array, Array]:
    """Near the minimiser of h_j in the metric mean/reach, from x_j.

    Steps by the mean of all clients' Hessians take a gradient each, and suffice where clients are
    alike. Where one does not halve the gradient, Newton's method goes on.

    Parameters
    ----------
    costs : Costs
        The f_j of k clients.
    X : (k, d) array
        The starts.
    value, slope : (k,) and (k, d) arrays
        f_j and ∇f_j there.
    mean : (d, d) array
        Positive definite.
    reach : float
    V : (k, d) array
        The centres.

    Returns
    -------
    p, gradient : (k, d) arrays
    hessian : (k, d, d) array
        Of f_j at p_j.
    """
    d = len(mean)
    merit = MetricMerit(costs, V, np.broadcast_to(mean / reach, (len(X), d, d)))
    [inverse] = Cholesky(mean[None]).inverses
    # (H + H/r)⁻¹ is r/(1 + r) times H⁻¹
    solve = np.broadcast_to(reach / (1.0 + reach) * inverse, merit.M.shape)
    away = X - V
    h = value + 0.5 * dots(away, matvec(merit.M, away))
    least = np.sqrt(ROUNDING * np.abs(h))
    U = np.array(X)
    g = slope
    G = g + matvec(merit.M, away)
    step = matvec(solve, G)
    length = _length(G, step)
    travelled = np.zeros_like(length)
    active = length > least
    hard = np.zeros_like(active)
    for _ in range(CHORDS):
        if not active.any():
            return U, g, costs.hessian(U)
        trial = np.where(active[:, None], U - step, U)
        ahead = costs.gradient(trial)
        G = ahead + matvec(merit.M, trial - V)
        step = matvec(solve, G)
        left = _length(G, step)
        taken = active & (left <= 0.5 * length)
        hard |= active & ~taken
        U = np.where(taken[:, None], trial, U)
        g = np.where(taken[:, None], ahead, g)
        travelled = np.where(taken, travelled + length, travelled)
        length = np.where(taken, left, length)
        active = taken & (length > RATIO * travelled) & (length > least)
    hard |= active
    if not hard.any():
        return U, g, costs.hessian(U)
    return _newton(merit, X, U, g, costs.hessian(U), hard)


def _newton(
    merit: MetricMerit, X: Array, U: Array, g: Array, B: Array, active: Mask
) -> tuple[Array, Array, Array]:
    """Newton's method on the h_j that are ``active``, from U with ∇f_j and ∇²f_j there."""
    costs = merit.costs
    at = Point(U, merit.value(U), np.ones(len(U), dtype=bool))
    active = active & np.isfinite(at.h)
    for _ in range(MOST_STEPS):
        counter.factorisations += 1
        factors = Cholesky(B + merit.M)
        G = g + matvec(merit.M, at.U - merit.V)
        step = np.where(active[:, None], factors.solve(G), 0.0)
        at = search(merit, at, step, dots(G, step), share=1e-4)
        g = costs.gradient(at.U)
        # The next step with the factors at hand says whether it is worth new ones.
        G = g + matvec(merit.M, at.U - merit.V)
        left = dots(G, factors.solve(G))
        way = at.U - X
        travelled = dots(way, matvec(B + merit.M, way))
        enough = np.maximum(RATIO**2 * travelled, ROUNDING * np.abs(at.h))
        B = costs.hessian(at.U)
        active = active & at.moved & (left > enough)
        if not active.any():
            break
    return at.U, g, B


def _length(X: Array, Y: Array) -> Array:
    """√⟨x_j, y_j⟩ for every j, where y_j is a positive definite matrix times x_j, (k,)."""
    return np.sqrt(np.maximum(dots(X, Y), 0.0))
