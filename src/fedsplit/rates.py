"""The paper's rates and bounds as functions of numbers: Theorem 1, its master theorem, Corollary 1, Theorem 2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.errors import InputError

Number = TypeVar("Number", float, Array)


def contraction(kappa: float) -> float:
    """ρ = 1 - 2/(√κ + 1), the factor by which ‖z - z*‖ falls each round at Theorem 1's step."""
    return 1.0 - 2.0 / (math.sqrt(kappa) + 1.0)


def fedsplit_step(ell: float, L: float) -> float:
    """s = 1/√(ℓ*L*) (Theorem 1); 1/L* where ℓ* = 0."""
    return 1.0 / (math.sqrt(ell) * math.sqrt(L)) if ell > 0 else 1.0 / L


def fedgd_step(ell: float, L: float) -> float:
    """s = 2/(ℓ* + L*), the step of gradient descent with the best rate; 1/L* where ℓ* = 0."""
    return 2.0 / (ell + L) if ell > 0 else 1.0 / L


def inner_step(s: float, ell: Number, L: Number) -> Number:
    """α = 1/(1 + s(ℓ + L)/2), the inner gradient step of Corollary 1."""
    return 1.0 / (1.0 + 0.5 * s * (ell + L))


def theorem1_bound(t: int, kappa: float, distance: float, m: int, b: float = 0.0) -> float:
    """Theorem 1: ‖x^(t+1) - x*‖ ≤ ρ^t ‖z^(1) - z*‖/√m + (√κ + 1) b, for proxes within b of exact."""
    return contraction(kappa) ** t * distance / math.sqrt(m) + (math.sqrt(kappa) + 1.0) * b


def master_bound(kappa: float, distance: float, residuals: Sequence[float] | Array) -> Array:
    """The master theorem: ‖z^(t+1) - z*‖ ≤ ρ^t ‖z^(1) - z*‖ + 2 Σ_{i≤t} ρ^(t-i) ‖r^(i)‖, for t = 0, 1, …, T.

    ``residuals`` holds the T norms ‖r^(i)‖ of the stacked prox errors.
    """
    rho = contraction(kappa)
    bounds = [distance]
    for r in residuals:
        bounds.append(rho * bounds[-1] + 2.0 * float(r))
    return np.array(bounds)


def theorem1_rounds(eps: float, kappa: float, distance: float, m: int) -> int:
    """The least T with ρ^T ‖z^(1) - z*‖/√m ≤ ε: rounds that suffice for ‖x - x*‖ ≤ ε with exact proxes."""
    number("eps", eps), number("kappa", kappa, least=1.0, strict=False)
    start = distance / math.sqrt(m)
    if start <= eps:
        return 0
    rho = contraction(kappa)
    return 1 if rho == 0.0 else math.ceil(math.log(eps / start) / math.log(rho))


def corollary1_bound(steps: int, kappa: float, distance: float) -> float:
    """Corollary 1: e gradient steps from v end within (1 - 1/(√κ + 1))^e ‖v - prox(v)‖ of prox(v)."""
    return (1.0 - 1.0 / (math.sqrt(kappa) + 1.0)) ** steps * distance


class Reduction(NamedTuple):
    """Theorem 2's settings: FedSplit on F + (mλ/2)‖x - x¹‖² with step s reaches F - F* ≤ ε in ``rounds`` rounds."""

    lam: float
    s: float
    rounds: int


def theorem2(eps: float, radius: float, L: Array, gradient_norms: Array) -> Reduction:
    """λ, s and the number of rounds that prove F - F* ≤ ε for costs that need not be strongly convex.

    ``radius`` is a bound D on ‖x¹ - x*‖, ``L`` holds the L_j, ``gradient_norms`` the ‖∇f_j(x¹)‖. Corrects the paper's
    count, whose logarithm lacks 1/ε: λ = ε/(mD²), s = 1/√(λ(L* + λ)), κ = (L* + λ)/λ,
    B² = Σ_j (D + s(‖∇f_j(x¹)‖ + (L_j + λ)D))² ≥ ‖z¹ - z*‖² and T = ⌈(√κ + 1)/4 · ln((ΣL_j + mλ) B²/(mε))⌉.
    """
    eps, radius = number("eps", eps), number("radius", radius)
    if not np.isfinite(L).all():
        raise InputError("Theorem 2 needs a finite L_j at every client: this loss has none")
    m = len(L)
    lam = eps / (m * radius**2)
    smooth = float(np.max(L)) + lam
    s = 1.0 / math.sqrt(lam * smooth)
    B = np.linalg.norm(radius + s * (gradient_norms + (L + lam) * radius))
    log = math.log((float(np.sum(L)) + m * lam) * float(B) ** 2 / (m * eps))
    return Reduction(lam, s, max(1, math.ceil((math.sqrt(smooth / lam) + 1.0) / 4.0 * log)))
