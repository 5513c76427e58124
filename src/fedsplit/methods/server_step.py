"""The server's own step: the minimiser of the clients' models and the penalty."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve

from fedsplit.arrays import Array
from fedsplit.methods.method import EPS
from fedsplit.methods.quadratic import minimise
from fedsplit.methods.semismooth import minimise_coordinatewise
from fedsplit.penalties.penalty import Penalty


def semidefinite_solve(
    H: Array, G: Array, pivot: float = 1e-10, downhill: bool = False, flat: float = 1e-8
) -> Array:
    """H⁺g, the shortest solution u of Hu = g in units in which the diagonal of H is 1.

    Where the data do not determine x, a solution by elimination would move x along the kernel of H
    by rounding divided by rounding, round after round.

    Parameters
    ----------
    H : (d, d) array
        Positive semidefinite.
    G : (d,) or (d, k) array
        One right side, or several as columns.
    pivot : float
        A Cholesky factorisation whose pivots are all larger, relative to the diagonal, is taken for
        that of a regular matrix: rounding would leave pivots of about d·ε of a singular one.
    downhill : bool
        Whether the solution is a step against a gradient g, which goes on where H says nothing: a
        g with a part in the kernel of H, as of Huber's loss where all residuals are large, is no
        rounding, and F falls along it. The step there is that of the least curvature that H has
        elsewhere; whether it is too long, F shows.
    flat : float
        A smaller part of g in the kernel, relative to all of it, is rounding.
    """
    diagonal = np.diag(H)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = H / np.outer(size, size)
    rhs = (G.T / size).T
    try:
        factor = np.linalg.cholesky(scaled)
        regular = bool((np.diag(factor) ** 2 > pivot).all())
    except np.linalg.LinAlgError:
        regular = False
    if regular:
        solution = cho_solve((factor, True), rhs, check_finite=False)
    else:
        spectrum, Q = np.linalg.eigh(scaled)
        certain = spectrum > 4 * len(H) * EPS * spectrum[-1]
        inverse = np.where(certain, 1.0 / np.where(certain, spectrum, 1.0), 0.0)
        along = Q.T @ rhs
        if downhill and np.max(np.abs(along[~certain]), initial=0.0) > flat * np.max(np.abs(along)):
            inverse[~certain] = inverse.max() or 1.0
        solution = (Q * inverse) @ along
    step: Array = (solution.T / size).T
    return step


def server_step(
    x: Array,
    g: Array,
    H: Array,
    penalty: Penalty | None,
    precision: float = 1e-12,
    shift: float = 1e-13,
) -> tuple[Array, Array]:
    """argmin_u ⟨g, u - x⟩ + ½(u - x)ᵀH(u - x) + penalty(u), and a subgradient of the penalty there.

    Parameters
    ----------
    x, g : (d,) arrays
        Where the server is, and the gradient of the models' sum there.
    H : (d, d) array
        The Hessian of that sum.
    penalty : Penalty or None
    precision : float
        How far the residual of the problem with a penalty is reduced.
    shift : float
        Added to H, relative to its diagonal, under a penalty: the solvers need a regular matrix,
        and this is far below what matters to F.
    """
    if penalty is None:
        return x - semidefinite_solve(H, g, downhill=True), np.zeros_like(x)
    diagonal = np.diag(H)
    H = H + np.diag(np.where(diagonal > 0, shift * diagonal, 1.0))
    b = H @ x - g
    scale = np.ones_like(x)
    if getattr(penalty, "coordinatewise", False):
        minimiser = minimise_coordinatewise(H, b, penalty, x, precision)
        if minimiser is not None:
            return minimiser
        scale = 1.0 / np.sqrt(np.diag(H))
    M = scale[:, None] * H * scale
    largest = float(np.linalg.eigvalsh(M)[-1])
    ahead, slope = minimise(M, scale * b, largest, penalty, scale, x, precision)
    return ahead, slope / scale
