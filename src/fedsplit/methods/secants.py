"""What the server learns of each client's curvature from the answers it has, at no extra message.

A round of FedSplit shows the server a point p_j and the gradient y_j = ∇f_j(p_j) of every client. Two rounds make a
secant, ∇²f_j·(p - p') ≈ y - y'. FedSplit models every client by the curvature I/s; here the same iteration uses what
the secants say, and I·σ_j where they say nothing:

    x⁺ = argmin_x Σ_j ⟨y_j, x⟩ + ½(x - p_j)ᵀB_j(x - p_j),    v_j = x⁺ + s(y_j + B_j(x⁺ - p_j)).

With B_j = I/s this is Algorithm 1. Stacked arrays hold pairs as (k, m, d), the newest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask, dots, matvec, norms, rmatvec
from fedsplit.checks import count

INDEPENDENT = 1e-2
"""A direction adds to those that are kept if at least this share of it is new."""

SYMMETRIC = 0.15
"""Pairs (a, b) of one quadratic have a_iᵀb_j = b_iᵀa_j. One that misses this by more, relative to b, is too old."""

DEFINITE = 1e-10
"""Curvature below this share of the largest is rounding."""

FORGET = 1.03
"""By how much the extreme curvatures seen come closer to those of the pairs at hand in a round: costs change with x."""

MOST = 4 * 2**20
"""The most floats that the changes of p may take."""


@dataclass(frozen=True)
class Secants:
    """Accelerate by modelling each client's curvature from its last answers (a block BFGS matrix for each client).

    Parameters
    ----------
    memory : int
        How many answers of each client the server remembers, fewer where they would be more than d, or more than
        32 MB in all. A round costs the server O(m·memory²·d + m·memory·d² + d³): for d beyond some thousands use
        ``Anderson``.
    """

    memory: int = 40

    def __post_init__(self) -> None:
        count("Secants: memory", self.memory)

    def pairs(self, m: int, d: int) -> int:
        """How many pairs of each client are kept."""
        return max(1, min(self.memory, d, MOST // (m * d)))


class Models(NamedTuple):
    """B_j = σ_j(I - S_jᵀS_j) + Z_jᵀZ_j for m clients: S_j has orthonormal rows, (m, k, d), zero where unused.

    ``low`` and ``high`` are the extreme curvatures seen so far, (m,).
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


def remember(pairs: Array, new: Array, present: Mask) -> Array:
    """The pairs with a new one at the front for the clients that answered; theirs move back by one."""
    xp = array_namespace(pairs)
    moved = xp.concat([new[None], pairs[:-1]], axis=0)
    shifted: Array = xp.where(present[None, :, None], moved, pairs)
    return shifted


def learn(dp: Array, dy: Array, low: Array, high: Array) -> Models:
    """The model of every client from its pairs (p - p', y - y'), each (k, m, d), the newest first.

    ``low`` and ``high`` are the extreme curvatures seen so far, (m,), and σ_j = √(low_j high_j), as Theorem 1 has it.

    Newest first, the directions are made orthonormal, and their images follow by linearity. A pair is left out where
    its direction is not new, or where it and the newer ones cannot come from one quadratic: it is then too old, or the
    local solver too rough. Every B_j is positive definite and, on a quadratic, right on all the directions kept.
    """
    xp = array_namespace(dp)
    _, m, d = dp.shape
    k = max(1, int(xp.sum(xp.any(dp != 0.0, axis=(1, 2)))))  # the rest is empty, at every client
    A, B = xp.zeros((m, k, d)), xp.zeros((m, k, d))
    for i in range(k):
        a, b, newer_a, newer_b = dp[i], dy[i], A[:, :i], B[:, :i]
        length = norms(a)
        used = length > 0
        scale = xp.where(used, length, 1.0)[:, None]
        a, b = a / scale, b / scale
        for _ in range(2):  # twice is enough for orthogonality to rounding
            c = matvec(newer_a, a)
            a, b = a - rmatvec(newer_a, c), b - rmatvec(newer_b, c)
        length = norms(a)
        used = used & (length > INDEPENDENT)
        scale = xp.where(used, length, 1.0)[:, None]
        a, b = a / scale, b / scale
        size = norms(b)
        asymmetry = norms(matvec(newer_a, b) - matvec(newer_b, a))
        used = used & (asymmetry <= SYMMETRIC * size) & (dots(a, b) > DEFINITE * size)
        A[:, i], B[:, i] = (xp.where(used[:, None], row, 0.0) for row in (a, b))
    C = xp.matmul(A, xp.matrix_transpose(B))
    curvature, U = xp.linalg.eigh(0.5 * (C + xp.matrix_transpose(C)))
    highest = xp.max(curvature, axis=1)
    kept = curvature > DEFINITE * xp.maximum(highest, 1e-300)[:, None]
    S = xp.where(kept[:, :, None], xp.matmul(xp.matrix_transpose(U), A), 0.0)
    image = xp.where(kept[:, :, None], xp.matmul(xp.matrix_transpose(U), B), 0.0)
    across = image - xp.matmul(xp.matmul(image, xp.matrix_transpose(S)), S)
    positive = xp.where(kept, curvature, 1.0)[:, :, None]
    Z = (across + positive * S) / xp.sqrt(positive)
    seen = xp.any(kept, axis=1)
    lowest = xp.min(xp.where(kept, curvature, xp.inf), axis=1)
    low = xp.where(seen, xp.minimum(lowest, FORGET * low), low)
    high = xp.where(seen, xp.maximum(highest, high / FORGET), high)
    return Models(xp.sqrt(low * high), S, Z, low, high)
