"""What the server knows of the clients' costs to second order, and its own step by that."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from fedsplit.arrays import EPS, Array, Mask, matvec
from fedsplit.penalties.penalty import Penalty


class Expansions(NamedTuple):
    """A quadratic model of every client's cost, about a point p_j of its own.

    f_j(x) ≈ f_j(p_j) + ⟨y_j, x - p_j⟩ + ½(x - p_j)ᵀB_j(x - p_j).
    """

    # (m, d): the points, and ∇f_j there
    p: Array
    y: Array
    B: Array  # (m, d, d): ∇²f_j there, or what is learnt of it
    heard: Mask  # (m,): who has answered; the others are taken for the mean of these

    @classmethod
    def none(cls, x: Array, m: int) -> Expansions:
        """The models of m clients that have not answered; x is where they are asked first."""
        d = len(x)
        p = np.tile(x, (m, 1))
        return cls(p, np.zeros((m, d)), np.zeros((m, d, d)), np.zeros(m, dtype=bool))

    def of(self, kept: Mask) -> Expansions:
        """The models of some clients, (m,)."""
        return Expansions(self.p[kept], self.y[kept], self.B[kept], self.heard[kept])

    def gradients(self, x: Array) -> Array:
        """The gradients of the models at x, (m, d); 0 of clients that were not heard."""
        return np.where(self.heard[:, None], self.y + matvec(self.B, x - self.p), 0.0)

    def are_at(self, x: Array) -> bool:
        """Whether all of them are about x, so that they have the gradient of F there."""
        return bool(self.heard.all() and (self.p == x).all())

    def gradient(self, x: Array) -> Array:
        """The gradient of the models' sum at x, (d,), as if everyone had been heard."""
        result: Array = self.gradients(x).sum(axis=0) * (len(self.heard) / max(1, self.heard.sum()))
        return result

    def hessian(self) -> Array:
        """Σ_j B_j, (d, d), as if everyone had been heard."""
        B = self.B if self.heard.all() else self.B[self.heard]
        result: Array = B.sum(axis=0) * (len(self.heard) / max(1, len(B)))
        return result

    def minimiser(self, x: Array, penalty: Penalty | None) -> tuple[Array, Array]:
        """The minimiser of all models with the penalty, and a subgradient of the penalty there.

        x is where to start.
        """
        return server_step(x, self.gradient(x), self.hessian(), penalty)


def semidefinite_solve(
    H: Array, G: Array, pivot: float = 1e-10, downhill: bool = False, flat: float = 1e-8
) -> Array:
    """H⁺g, the shortest solution u of Hu = g in units in which the diagonal of H is 1.

    Where the data do not determine x, a solution by elimination would move x along the kernel of H
    by rounding divided by rounding, round after round. A Cholesky factorisation whose pivots all
    exceed ``pivot``, relative to the diagonal, is that of a regular matrix: rounding would leave
    pivots of about d·ε of a singular one. G is (d,), or has several right sides as columns.

    With ``downhill`` the solution is a step against a gradient g, which goes on where H says
    nothing: a g with more than a share ``flat`` in the kernel of H, as of Huber's loss where all
    residuals are large, is no rounding, and F falls along it. The step there is that of the least
    curvature that H has elsewhere; whether it is too long, F shows.
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
    result: Array = (solution.T / size).T
    return result


def server_step(
    x: Array,
    g: Array,
    H: Array,
    penalty: Penalty | None,
    precision: float = 1e-12,
    shift: float = 1e-13,
) -> tuple[Array, Array]:
    """argmin_u ⟨g, u - x⟩ + ½(u - x)ᵀH(u - x) + penalty(u), and a subgradient of the penalty there.

    With a penalty, ``precision`` is how far its residual is reduced, and ``shift``, relative to the
    diagonal, is added to H: solvers need a regular matrix, and this is far below what matters to F.
    """
    if penalty is None:
        return x - semidefinite_solve(H, g, downhill=True), np.zeros_like(x)
    diagonal = np.diag(H)
    H = H + np.diag(np.where(diagonal > 0, shift * diagonal, 1.0))
    b = H @ x - g
    if not getattr(penalty, "coordinatewise", False):
        # such a prox takes one step for all coordinates
        return proximal_gradient(H, b, penalty, x, 1.0 / _largest(H), precision)
    minimiser = minimise_coordinatewise(H, b, penalty, x, precision)
    if minimiser is not None:
        return minimiser
    diagonal = np.diag(H)
    size = np.sqrt(diagonal)
    steps = 1.0 / (_largest(H / np.outer(size, size)) * diagonal)
    return proximal_gradient(H, b, penalty, x, steps, precision)


def _largest(H: Array) -> float:
    """The largest eigenvalue."""
    return float(np.linalg.eigvalsh(H)[-1])


def minimise_coordinatewise(
    H: Array,
    b: Array,
    penalty: Penalty,
    x: Array,
    reduction: float,
    most_steps: int = 50,
    nudge: float = 1e-7,
) -> tuple[Array, Array] | None:
    """Minimise ½xᵀHx - bᵀx + g(x) from x on, where g is a sum over coordinates and H definite.

    The minimiser is the zero of r(x) = prox_{tg}(x - t(Hx - b)) - x, which is piecewise smooth: for
    a lasso, linear while no coordinate leaves or reaches zero. A step of Newton's method that ends
    above a proximal gradient step, which falls if diag(1/t) ⪰ H, is not taken. Some three to ten
    steps are usual: from the last minimiser only a few coordinates change sides.

    Returns the minimiser, an output of the prox, so that zeros are exact, and a subgradient of g
    there; None if the first step could not be reduced by the factor ``reduction``.
    """

    def value(x: Array) -> float:
        return 0.5 * float(x @ (H @ x)) - float(b @ x) + penalty.value(x)

    # the eigenvalues of H, scaled to a unit diagonal, are at most the sums of its rows
    size = np.sqrt(np.diag(H))
    t = 1.0 / (np.square(size) * np.max(np.abs(H / size) / size[:, None] @ np.ones_like(x)))
    metric = 1.0 / np.sqrt(t)
    first = 0.0
    for _ in range(most_steps):
        w = x - t * (H @ x - b)
        p = penalty.prox(w, t)
        r = p - x
        length = float(np.linalg.norm(metric * r))
        first = max(first, length)
        if length <= max(reduction * first, 4.0 * EPS * float(np.linalg.norm(metric * w))):
            return p, (w - p) / t
        # the derivative of the prox: 0 where it holds a coordinate, so that x moves as p does there
        differences = nudge * (np.abs(w) + np.abs(p) + first / metric)
        D = (penalty.prox(w + differences, t) - p) / differences
        J = (D * t)[:, None] * H
        J[np.diag_indices_from(J)] += 1.0 - D
        x = x + np.linalg.solve(J, r)
        # compared after a prox, which puts zeros exactly where they belong
        ahead = penalty.prox(x - t * (H @ x - b), t)
        rounding = 4.0 * EPS * (np.abs(b) @ np.abs(p))
        if not value(ahead) <= value(p) + rounding:
            x = p
    return None


def proximal_gradient(
    H: Any,
    b: Array,
    penalty: Penalty,
    x: Array,
    steps: float | Array,
    reduction: float,
    most_steps: int = 5000,
) -> tuple[Array, Array]:
    """Minimise ½xᵀHx - bᵀx + g(x) by accelerated proximal gradient steps, as FISTA does.

    The momentum is forgotten where it points uphill. Some tens of steps are usual; ``steps`` is
    their length, or one for each coordinate. H need only have products with vectors. The result is
    as in ``minimise_coordinatewise``.
    """
    metric = 1.0 / np.sqrt(steps)
    before = extrapolated = x
    momentum = 1.0
    first = 0.0
    for _ in range(most_steps):
        u = extrapolated - steps * (H @ extrapolated - b)
        x = penalty.prox(u, steps)
        move = metric * (x - extrapolated)
        size = float(np.linalg.norm(move))
        first = first or size
        if size <= reduction * first:
            break
        if float(move @ (metric * (x - before))) < 0:
            momentum = 1.0
        grown = 0.5 * (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5)
        extrapolated = x + (momentum - 1.0) / grown * (x - before)
        before = x
        momentum = grown
    return x, (u - x) / steps
