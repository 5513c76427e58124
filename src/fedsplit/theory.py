"""The paper's theory as functions: where each method stops (§2, §3.2), and how fast (§3.3, §4.3).

Rates and bounds are functions of numbers (Theorems 1-3, Corollary 1). Closed-form fixed points are
for least squares; the ``*_defect`` functions test any point, for any loss, against Propositions
1-3. The paper numbers the convergence with general residuals, from which Theorem 1 follows, as
Theorem 3.

Throughout, κ = L*/ℓ* is the condition number of the worst client, s the step of the prox, α that of
the e gradient steps that stand in for it, z* the fixed point of FedSplit, and distance is
‖z^(1) - z*‖ over all clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, matvec
from fedsplit.checks import number
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Descend, Gradient, Information, Prox, Value
from fedsplit.errors import InputError
from fedsplit.local.gradient import inner_step as inner_step
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver

# §2 Existing algorithms: FedGD and FedProx stop where their clients pull equally, not at x*


def fedgd_defect(clients: Clients, x: Array, s: float, local_steps: int) -> float:
    """‖Σ_j Σ_{i≤e} ∇f_j(G_j^{i-1}(x))‖, with G_j(x) = x - s∇f_j(x) (Proposition 1).

    It is zero exactly at a fixed point of FedGD(s, e).
    """
    # a local step is -s times a gradient, so that the sum over i telescopes to x - G_j^e(x)
    moved = clients.ask(Descend(x, s, local_steps)).rows
    return float(np.linalg.norm((x - moved).sum(axis=0)) / s)


def fedgd_fixed_point(clients: Clients, s: float, local_steps: int) -> Array:
    """The limit of FedGD(s, e) on least squares, (d,) (§2.1).

    x = (Σ_j P_j H_j)⁻¹ Σ_j P_j c_j, with P_j = Σ_{k<e} (I - sH_j)^k, H_j = A_jᵀA_j, c_j = A_jᵀb_j.
    """
    H, c = quadratics(clients)
    identity = np.eye(clients.d)
    G = identity - s * H
    P = np.zeros_like(H)
    for _ in range(local_steps):
        P = identity + G @ P
    return _solve_sums(P @ H, matvec(P, c))


class Envelope(NamedTuple):
    """The clients' Moreau envelopes at a point.

    Attributes
    ----------
    value : (m,) array
        M_{s f_j}(x).
    gradient : (m, d) array
        ∇M_{s f_j}(x).
    """

    value: Array
    gradient: Array


def moreau_envelope(
    clients: Clients, x: Array, s: float, solver: ProxSolver | None = None
) -> Envelope:
    """M_{s f_j}(x) = min_u f_j(u) + ‖x - u‖²/(2s), with ∇M_{s f_j}(x) = (x - prox_{s f_j}(x))/s.

    FedProx(s) is gradient descent on their sum (§2.2).

    Parameters
    ----------
    clients : Clients
    x : (d,) array, or (m, d) array
        One point for all clients, or one for each.
    s : float
    solver : ProxSolver, optional
        How the minimum is found; None is ``ExactProx()``.
    """
    u = clients.ask(Prox(x, s, x, solver or ExactProx())).rows
    away = x - u
    return Envelope(clients.ask(Value(u)).rows + 0.5 * np.square(away).sum(axis=1) / s, away / s)


def fedprox_defect(clients: Clients, x: Array, s: float, solver: ProxSolver | None = None) -> float:
    """‖Σ_j ∇M_{s f_j}(x)‖, zero exactly at a fixed point of FedProx(s) (Proposition 2)."""
    return float(np.linalg.norm(moreau_envelope(clients, x, s, solver).gradient.sum(axis=0)))


def fedprox_fixed_point(clients: Clients, s: float) -> Array:
    """The limit of FedProx(s) on least squares, (d,) (§2.2).

    x = (Σ_j {I - (I + sH_j)⁻¹})⁻¹ Σ_j (H_j + I/s)⁻¹ c_j.
    """
    H, c = quadratics(clients)
    R = np.linalg.inv(H + np.eye(clients.d) / s)
    # I - (I + sH)⁻¹ = (H + I/s)⁻¹H, which does not cancel
    return _solve_sums(R @ H, matvec(R, c))


# §3.2 FedSplit stops at x*


def fedsplit_defect(
    clients: Clients, z: Array, s: float, solver: ProxSolver | None = None
) -> float:
    """‖T(z) - z‖ with T(z)_j = z_j + 2(prox_{s f_j}(2z̄ - z_j) - z̄); z is (m, d) (Proposition 3).

    It is zero exactly at a fixed point of FedSplit(s).
    """
    x = z.mean(axis=0)
    moved = clients.ask(Prox(2 * x - z, s, x, solver or ExactProx())).rows
    return float(2.0 * np.linalg.norm(moved - x))


def fedsplit_fixed_point(clients: Clients, x: Array, s: float) -> Array:
    """z_j = x - s∇f_j(x), (m, d): FedSplit's fixed point, if x minimises F (Proposition 3)."""
    return x - s * clients.ask(Gradient(x)).rows


def optimality_defect(clients: Clients, x: Array) -> float:
    """‖Σ_j ∇f_j(x)‖, zero exactly at a minimiser of F."""
    return float(np.linalg.norm(clients.ask(Gradient(x)).rows.sum(axis=0)))


# §3.3 Convergence of FedSplit


def fedsplit_step(ell: float, L: float) -> float:
    """s = 1/√(ℓ*L*) (Theorem 1); 1/L* if ℓ* = 0."""
    # two roots, as the product of two small constants may underflow
    return 1.0 / (math.sqrt(ell) * math.sqrt(L)) if ell > 0 else 1.0 / L


def contraction(kappa: float) -> float:
    """ρ = 1 - 2/(√κ + 1), the factor by which ‖z - z*‖ falls each round at Theorem 1's step."""
    return 1.0 - 2.0 / (math.sqrt(kappa) + 1.0)


def theorem1_bound(t: int, kappa: float, distance: float, m: int, b: float = 0.0) -> float:
    """Theorem 1: ‖x^(t+1) - x*‖ ≤ ρ^t ‖z^(1) - z*‖/√m + (√κ + 1) b.

    Parameters
    ----------
    t : int
        The number of rounds.
    kappa, distance : float
        κ and ‖z^(1) - z*‖.
    m : int
        The number of clients.
    b : float
        How far a prox may be from exact.
    """
    return contraction(kappa) ** t * distance / math.sqrt(m) + (math.sqrt(kappa) + 1.0) * b


def theorem1_rounds(eps: float, kappa: float, distance: float, m: int) -> int:
    """The least T with ρ^T ‖z^(1) - z*‖/√m ≤ ε, which is O(√κ log 1/ε) (Theorem 1).

    After T rounds with exact proxes ‖x - x*‖ ≤ ε; the parameters are those of ``theorem1_bound``.
    """
    number("kappa", kappa, least=1.0, strict=False)
    return _rounds(eps, contraction(kappa), distance / math.sqrt(m))


def master_bound(kappa: float, distance: float, residuals: Sequence[float] | Array) -> Array:
    """Theorem 3: ‖z^(t+1) - z*‖ ≤ ρ^t ‖z^(1) - z*‖ + 2 Σ_{i≤t} ρ^(t-i) ‖r^(i)‖.

    Parameters
    ----------
    kappa, distance : float
        κ and ‖z^(1) - z*‖.
    residuals : (T,) sequence
        The norms ‖r^(i)‖ of the stacked prox errors.

    Returns
    -------
    (T + 1,) array
        The bound for t = 0, 1, …, T.
    """
    rho = contraction(kappa)
    bounds = [distance]
    for r in residuals:
        bounds.append(rho * bounds[-1] + 2.0 * float(r))
    return np.array(bounds)


def corollary1_bound(steps: int, kappa: float, distance: float, factor: float = 1.0) -> float:
    """Corollary 1: e gradient steps from v end within (1 - c/(√κ + 1))^e ‖v - prox(v)‖ of prox(v).

    With a line search that halves α = 1 until h falls by ½α‖∇h‖², c = ¼. For h is μ-strongly convex
    and M-smooth with μ/M ≥ 1/(√κ + 1), and every α ≤ 1/M passes, so that α ≥ 1/(2M). A step that
    passes has ‖u⁺ - u*‖² ≤ (1 - αμ)‖u - u*‖², as ⟨∇h(u), u - u*⟩ ≥ h(u) - h* + ½μ‖u - u*‖² and
    α²‖∇h(u)‖² ≤ 2α(h(u) - h*). So the distance falls by at least √(1 - μ/(2M)) ≤ 1 - ¼μ/M.

    Parameters
    ----------
    steps : int
        e.
    kappa, distance : float
        κ and ‖v - prox(v)‖.
    factor : float
        c: 1 for the paper's α, ``inner_step``; ¼ for backtracking.
    """
    return (1.0 - factor / (math.sqrt(kappa) + 1.0)) ** steps * distance


class Reduction(NamedTuple):
    """Theorem 2's settings: FedSplit on F + (mλ/2)‖x - x¹‖² reaches F - F* ≤ ε.

    Attributes
    ----------
    lam : float
        λ.
    s : float
        The step of FedSplit.
    rounds : int
        A number of rounds that suffices.
    """

    lam: float
    s: float
    rounds: int


def theorem2(eps: float, radius: float, L: Array, gradient_norms: Array) -> Reduction:
    """λ, s and the number of rounds that prove F - F* ≤ ε without strong convexity.

    λ = ε/(mD²), s = 1/√(λ(L* + λ)), κ = (L* + λ)/λ,
    B² = Σ_j (D + s(‖∇f_j(x¹)‖ + (L_j + λ)D))² ≥ ‖z¹ - z*‖², and
    T = ⌈(√κ + 1)/4 · ln((ΣL_j + mλ) B²/(mε))⌉. This corrects the paper's count, whose logarithm
    lacks 1/ε.

    Parameters
    ----------
    eps : float
        ε.
    radius : float
        A bound D on ‖x¹ - x*‖.
    L : (m,) array
        The L_j.
    gradient_norms : (m,) array
        The ‖∇f_j(x¹)‖.
    """
    eps = number("eps", eps)
    radius = number("radius", radius)
    if not np.isfinite(L).all():
        raise InputError("Theorem 2 needs a finite L_j at every client: this loss has none")
    m = len(L)
    lam = eps / (m * radius**2)
    smooth = float(np.max(L)) + lam
    s = 1.0 / math.sqrt(lam * smooth)
    B = np.linalg.norm(radius + s * (gradient_norms + (L + lam) * radius))
    log = math.log((float(np.sum(L)) + m * lam) * float(B) ** 2 / (m * eps))
    return Reduction(lam, s, max(1, math.ceil((math.sqrt(smooth / lam) + 1.0) / 4.0 * log)))


# §4.3 Convergence of FedGD with one local step


def fedgd_step(ell: float, L: float) -> float:
    """s = 2/(ℓ* + L*), the step of gradient descent with the best rate; 1/L* if ℓ* = 0."""
    return 2.0 / (ell + L) if ell > 0 else 1.0 / L


def fedgd_rounds(eps: float, kappa: float, distance: float) -> int:
    """The least T with ((κ - 1)/(κ + 1))^T ‖x^(1) - x*‖ ≤ ε, which is O(κ log 1/ε) (§4.3).

    After T rounds of FedGD(2/(ℓ* + L*), 1) from x^(1), ‖x - x*‖ ≤ ε. For a gap F(x) - F* ≤ δ,
    ε = √(2δ/ΣL_j) suffices.

    Parameters
    ----------
    eps, kappa : float
        ε and κ.
    distance : float
        ‖x^(1) - x*‖.
    """
    number("kappa", kappa, least=1.0, strict=False)
    return _rounds(eps, (kappa - 1.0) / (kappa + 1.0), distance)


def batch_step(ell: float, smoothness: float) -> float:
    """s = 1/ℒ*, with ℒ* the largest expected smoothness of a client's minibatches.

    On least squares E(I - sĤ)² ⪯ I - sH for the Hessian Ĥ of a batch, since E Ĥ² ⪯ ℒH: every local
    step contracts in the mean square.
    """
    return 1.0 / smoothness


def quadratics(clients: Clients) -> tuple[Array, Array]:
    """H_j, (m, d, d), and c_j, (m, d), of f_j(x) = ½xᵀH_jx - c_jᵀx + const."""
    zero = np.zeros(clients.d)
    H = clients.ask(Information(zero)).rows
    elsewhere = clients.ask(Information(zero + 1.0)).rows
    if not np.allclose(elsewhere, H, rtol=1e-6, atol=1e-12 * np.abs(H).max()):
        raise InputError("the closed forms are for least squares: these costs are not quadratic")
    return H, -clients.ask(Gradient(zero)).rows


def _rounds(eps: float, rate: float, distance: float) -> int:
    """The least T with rate^T · distance ≤ ε."""
    number("eps", eps)
    if distance <= eps or rate == 0.0:
        return int(distance > eps)  # κ = 1: one round is exact
    return math.ceil(math.log(eps / distance) / math.log(rate))


def _solve_sums(M: Array, c: Array) -> Array:
    """(Σ_j M_j)⁻¹ Σ_j c_j."""
    return np.linalg.solve(M.sum(axis=0), c.sum(axis=0))
