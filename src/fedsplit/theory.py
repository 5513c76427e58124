"""The paper's theory as functions: rates and bounds, and where the methods stop.

Closed-form fixed points are for least squares; the ``*_defect`` functions test any point, for any loss, against
Propositions 1-3.
"""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array, matvec
from fedsplit.clients.protocol import Clients
from fedsplit.errors import InputError
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.solver import ProxSolver
from fedsplit.rates import (
    Reduction,
    contraction,
    corollary1_bound,
    fedgd_step,
    fedsplit_step,
    inner_step,
    master_bound,
    theorem1_bound,
    theorem1_rounds,
    theorem2,
)

__all__ = [
    "Reduction",
    "contraction",
    "corollary1_bound",
    "fedgd_defect",
    "fedgd_fixed_point",
    "fedgd_step",
    "fedprox_defect",
    "fedprox_fixed_point",
    "fedsplit_defect",
    "fedsplit_fixed_point",
    "fedsplit_step",
    "inner_step",
    "master_bound",
    "optimality_defect",
    "theorem1_bound",
    "theorem1_rounds",
    "theorem2",
]


def fedgd_fixed_point(clients: Clients, s: float, local_steps: int) -> Array:
    """The limit of FedGD(s, e) on least squares (§2.1).

    x = (Σ_j P_j H_j)⁻¹ Σ_j P_j c_j, with P_j = Σ_{k<e} (I - sH_j)^k, H_j = A_jᵀA_j, c_j = A_jᵀb_j.
    """
    H, c = _quadratics(clients)
    identity = np.eye(clients.d)
    G, P = identity - s * H, np.zeros_like(H)
    for _ in range(local_steps):
        P = identity + G @ P
    return _solve_sums(P @ H, matvec(P, c))


def fedprox_fixed_point(clients: Clients, s: float) -> Array:
    """The limit of FedProx(s) on least squares (§2.2).

    x = (Σ_j {I - (I + sH_j)⁻¹})⁻¹ Σ_j (H_j + I/s)⁻¹ c_j; I - (I + sH)⁻¹ = (H + I/s)⁻¹H, free of cancellation.
    """
    H, c = _quadratics(clients)
    R = np.linalg.inv(H + np.eye(clients.d) / s)
    return _solve_sums(R @ H, matvec(R, c))


def fedgd_defect(clients: Clients, x: Array, s: float, local_steps: int) -> float:
    """‖Σ_j Σ_{i≤e} ∇f_j(G_j^{i-1}(x))‖, zero exactly at a fixed point of FedGD(s, e) (Proposition 1)."""
    moved = clients.descend(x, s, local_steps).rows
    return float(np.linalg.norm((x - moved).sum(axis=0)) / s)


def fedprox_defect(clients: Clients, x: Array, s: float, solver: ProxSolver | None = None) -> float:
    """‖Σ_j ∇M_{s f_j}(x)‖ = ‖Σ_j (x - prox_{s f_j}(x))‖/s, zero exactly at a fixed point of FedProx (Proposition 2)."""
    moved = clients.prox(x, s, x, solver or ExactProx()).rows
    return float(np.linalg.norm((x - moved).sum(axis=0)) / s)


def fedsplit_defect(clients: Clients, z: Array, s: float, solver: ProxSolver | None = None) -> float:
    """‖T(z) - z‖ with T(z)_j = z_j + 2(prox_{s f_j}(2z̄ - z_j) - z̄), zero exactly at a fixed point (Proposition 3)."""
    x = z.mean(axis=0)
    moved = clients.prox(2 * x - z, s, x, solver or ExactProx()).rows
    return float(2.0 * np.linalg.norm(moved - x))


def optimality_defect(clients: Clients, x: Array) -> float:
    """‖Σ_j ∇f_j(x)‖, zero exactly at a minimiser of F."""
    return float(np.linalg.norm(clients.gradient(x).rows.sum(axis=0)))


def fedsplit_fixed_point(clients: Clients, x: Array, s: float) -> Array:
    """z_j = x - s∇f_j(x), (m, d): FedSplit's fixed point, if x minimises F (Proposition 3)."""
    return x - s * clients.gradient(x).rows


def _quadratics(clients: Clients) -> tuple[Array, Array]:
    """H_j and c_j of f_j(x) = ½xᵀH_jx - c_jᵀx + const."""
    zero = np.zeros(clients.d)
    H = clients.information(zero).rows
    if not np.allclose(clients.information(zero + 1.0).rows, H, rtol=1e-6, atol=1e-12 * np.abs(H).max()):
        raise InputError("the closed forms are for least squares: these costs are not quadratic")
    return H, -clients.gradient(zero).rows


def _solve_sums(M: Array, c: Array) -> Array:
    """(Σ_j M_j)⁻¹ Σ_j c_j."""
    solution: Array = np.linalg.solve(M.sum(axis=0), c.sum(axis=0))
    return solution
