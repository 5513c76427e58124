"""Secant models of the clients' curvature, from the answers that the server has anyway.

A round of FedSplit shows the server a point p_j and the gradient y_j = ∇f_j(p_j) of every client.
Two rounds make a secant pair, ∇²f_j·(p - p') ≈ y - y'. FedSplit models every client by the
curvature I/s; here the same iteration uses what the pairs show, and I·σ_j where they show nothing:

    x⁺ = argmin_x Σ_j ⟨y_j, x⟩ + ½(x - p_j)ᵀB_j(x - p_j),    v_j = x⁺ + s(y_j + B_j(x⁺ - p_j)).

With B_j = I/s this is Algorithm 1. Stacked arrays hold pairs as (k, m, d), newest first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array, dots, matvec, norms, rmatvec
from fedsplit.checks import count
from fedsplit.methods.accelerator import Proposal, View
from fedsplit.methods.quadratic import gain, minimise

NEARLY_SINGULAR = 1e-8
"""The smallest curvature of the mean model counts as at least this share of its largest."""

INDEPENDENT = 1e-2
"""A direction adds to those that are kept if at least this share of it is new."""

SYMMETRIC = 0.15
"""Pairs (a, b) of one quadratic have a_iᵀb_j = b_iᵀa_j. One that misses this by more, relative to
b, is too old."""

DEFINITE = 1e-10
"""Curvature below this share of the largest is rounding."""

FORGET = 1.03
"""By how much per round the extreme curvatures seen may approach those of the current pairs: costs
change with x."""


@dataclass(frozen=True)
class Secants:
    """Accelerate by modelling each client's curvature from its latest answers.

    The model is a block BFGS matrix per client.

    Parameters
    ----------
    memory : int
        How many answers of each client the server remembers: fewer if that is more than d, or if
        they would take more than 32 MB. A round costs the server
        O(m·memory²·d + m·memory·d² + d³), so ``Anderson`` stands in above d = 2000.
    """

    memory: int = 40

    unanimous: ClassVar[bool] = False
    models_costs: ClassVar[bool] = True
    largest_d: ClassVar[float] = 2000  # it solves a d×d system in every round

    def __post_init__(self) -> None:
        count("Secants: memory", self.memory)

    def propose(self, view: View) -> Proposal:
        xp = array_namespace(view.z)
        m = view.z.shape[0]
        scale = view.step.scale
        memory = view.memory
        models = learn(memory.dp, memory.dy, memory.low, memory.high)
        memory = memory._replace(low=models.low, high=models.high)
        total = models.pooled()
        spectrum = xp.linalg.eigvalsh(total)
        largest = float(spectrum[-1])
        low = max(float(spectrum[0]), NEARLY_SINGULAR * largest) / m
        high = largest / m
        if view.trusted:
            b = xp.sum(models.times(memory.p) - memory.y, axis=0)
            x, slope = minimise(total, b, largest, view.penalty, scale, view.x)
            gained = gain(total, view.penalty, scale, view.x, x, slope)
            excess = max(1.0, float(xp.linalg.vector_norm((x - view.x) / scale)) / view.longest)
            if excess > 1.0 and view.penalty is None:
                x = view.x + (x - view.x) / excess
                gained = math.nan
            # With a penalty, part of the way would not be an output of its prox: no step at all.
            if excess == 1.0 or view.penalty is None:
                # The models' gradients at x, shifted alike so that their sum is -slope.
                y: Array = memory.y + models.times(x / scale - memory.p)
                y = y - (xp.sum(y, axis=0) + slope) / m
                return Proposal(x, y, memory, low, high, True, True, gained)
        x, y = view.plain_step(view.z)
        return Proposal(x, y, memory, low, high, accelerated=False, adapts=False)


class Models(NamedTuple):
    """B_j = σ_j(I - S_jᵀS_j) + Z_jᵀZ_j for m clients.

    Attributes
    ----------
    sigma : (m,) array
    S : (m, k, d) array
        Orthonormal rows, zero where unused.
    Z : (m, k, d) array
    low, high : (m,) array
        The extreme curvatures seen so far.
    """

    sigma: Array
    S: Array
    Z: Array
    low: Array
    high: Array

    def times(self, U: Array) -> Array:
        """B_j u_j for every client, (m, d)."""
        inside = rmatvec(self.S, matvec(self.S, U))
        return self.sigma[:, None] * (U - inside) + rmatvec(self.Z, matvec(self.Z, U))

    def pooled(self) -> Array:
        """Σ_j B_j, (d, d)."""
        xp = array_namespace(self.S)
        d = self.S.shape[2]
        S = xp.reshape(xp.sqrt(self.sigma)[:, None, None] * self.S, (-1, d))
        Z = xp.reshape(self.Z, (-1, d))
        total: Array = xp.sum(self.sigma) * xp.eye(d) - S.T @ S + Z.T @ Z
        return total


def learn(dp: Array, dy: Array, low: Array, high: Array) -> Models:
    """The model of every client from its pairs.

    The directions are made orthonormal, newest first, and their images follow by linearity. A pair
    is left out if its direction is not new, or if it and the newer ones cannot come from one
    quadratic: it is then too old, or the local solver too inexact. Every B_j is positive definite
    and, on a quadratic, exact on all the directions kept. Elsewhere it is σ_j = √(low_j high_j), as
    in Theorem 1.

    Parameters
    ----------
    dp, dy : (k, m, d) array
        The pairs (p - p', y - y'), newest first.
    low, high : (m,) array
        The extreme curvatures seen so far.
    """
    xp = array_namespace(dp)
    A, B = _orthonormal(dp, dy)
    # The curvature within the span of the directions, symmetrised: pairs are exact only on a
    # quadratic.
    C = xp.matmul(A, xp.matrix_transpose(B))
    curvature, U = xp.linalg.eigh(0.5 * (C + xp.matrix_transpose(C)))
    highest = xp.max(curvature, axis=1)
    kept = curvature > DEFINITE * xp.maximum(highest, 1e-300)[:, None]
    S = xp.where(kept[:, :, None], xp.matmul(xp.matrix_transpose(U), A), 0.0)
    image = xp.where(kept[:, :, None], xp.matmul(xp.matrix_transpose(U), B), 0.0)
    # ZᵀZ maps every row of S to its image, is symmetric, and has the least rank that can do so.
    across = image - xp.matmul(xp.matmul(image, xp.matrix_transpose(S)), S)
    positive = xp.where(kept, curvature, 1.0)[:, :, None]
    Z = (across + positive * S) / xp.sqrt(positive)
    # The extremes seen so far fade slowly, so that curvature met on the way is not kept for ever.
    seen = xp.any(kept, axis=1)
    lowest = xp.min(xp.where(kept, curvature, xp.inf), axis=1)
    low = xp.where(seen, xp.minimum(lowest, FORGET * low), low)
    high = xp.where(seen, xp.maximum(highest, high / FORGET), high)
    return Models(xp.sqrt(low * high), S, Z, low, high)


def _orthonormal(dp: Array, dy: Array) -> tuple[Array, Array]:
    """The directions of the pairs made orthonormal, and their images, both (m, k', d)."""
    xp = array_namespace(dp)
    _, m, d = dp.shape
    k = max(1, int(xp.sum(xp.any(dp != 0.0, axis=(1, 2)))))  # the rest is empty for every client
    A = xp.zeros((m, k, d))
    B = xp.zeros((m, k, d))
    for i in range(k):
        newer_a = A[:, :i]
        newer_b = B[:, :i]
        a = dp[i]
        b = dy[i]
        length = norms(a)
        used = length > 0
        scale = xp.where(used, length, 1.0)[:, None]
        a = a / scale
        b = b / scale
        for _ in range(2):  # twice is enough for orthogonality to rounding
            c = matvec(newer_a, a)
            a = a - rmatvec(newer_a, c)
            b = b - rmatvec(newer_b, c)
        length = norms(a)
        used = used & (length > INDEPENDENT)
        scale = xp.where(used, length, 1.0)[:, None]
        a = a / scale
        b = b / scale
        size = norms(b)
        asymmetry = norms(matvec(newer_a, b) - matvec(newer_b, a))
        used = used & (asymmetry <= SYMMETRIC * size) & (dots(a, b) > DEFINITE * size)
        A[:, i] = xp.where(used[:, None], a, 0.0)
        B[:, i] = xp.where(used[:, None], b, 0.0)
    return A, B
