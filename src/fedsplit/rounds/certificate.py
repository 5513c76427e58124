"""Proved bounds on how far x is from the optimum, from one gradient and a few scalars of each client."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Answer, ProofScalars
from fedsplit.clients.stacked import QUIET
from fedsplit.losses.costs import inverse_norm
from fedsplit.penalties.penalty import Penalty


@dataclass(frozen=True)
class Certificate:
    """What is proved about x, F being the whole objective with its penalty.

    gap : F(x) - F* is at most this; None where nothing can be proved.
    distance : ‖x - x*‖ is at most this; None where nothing can be proved.
    radius : ‖x - x*‖ in the norm of ∇²F(x) is at most this; None where nothing can be proved.
    objective : F(x).
    reason : by what argument, or why there is none.
    hopeful : whether a later x may have one where this has not.
    """

    gap: float | None
    distance: float | None
    radius: float | None = field(default=None, kw_only=True)
    objective: float
    reason: str
    hopeful: bool = False


MOVED = Certificate(None, None, math.nan, "x has moved since the last proof")

NOT_ASKED = Certificate(None, None, math.nan, "the run ended before a certificate was asked for")


KINK = 1e-9
"""Where a ball of constant Hessians is smaller than this, relative to x, it may be empty at the optimum."""


def certify_by_information(
    H: Array, slope: Array, told: ProofScalars, x: Array, penalty: Penalty | None = None
) -> Certificate:
    """What the clients' scalars prove at x together with the Hessian H of the sum: γᵀH⁻¹γ needs no bound then.

    So there is a proof also where every client's own Hessian is singular, for want of rows or of some category. What
    rounding adds to γ is allowed for.
    """
    objective = float(told.value.sum()) + (0.0 if penalty is None else penalty.value(x))
    nu2, mu, _ = inverse_norm(H[None], slope[None])
    nu = math.sqrt(nu2[0]) + (_rounding(H, told, x) if np.isfinite(nu2[0]) else 0.0)
    bound = _near(nu * nu, float(mu[0]), told) if math.isfinite(nu) else None
    if bound is None:
        reason = "the Hessian of the sum is singular" if np.isinf(nu2[0]) else _why_not(told, x)[0]
        return Certificate(None, None, objective, reason)
    rounding = 4 * np.finfo(np.float64).eps * abs(objective)
    return Certificate(
        bound.gap + rounding, bound.distance, objective, bound.reason, radius=bound.radius
    )


def _rounding(H: Array, told: ProofScalars, x: Array) -> float:
    """About how much rounding adds to ‖γ‖ in the norm of H⁻¹.

    γ_k is a sum of slopes times a_ik, and slopes are off by curvature times the rounding of η. By Cauchy's inequality
    its rounding is about ε√H_kk(‖x‖_H + √D), D being the deviance; four times that is allowed for.
    """
    size = np.sqrt(np.diag(H))
    correlated = np.abs(np.linalg.inv(H / np.outer(size, size))).sum()
    deviance = max(0.0, 2.0 * float(np.sum(told.value - told.floor)))
    spread = math.sqrt(max(0.0, float(x @ H @ x))) + (
        math.sqrt(deviance) if math.isfinite(deviance) else 0.0
    )
    return float(4.0 * np.finfo(np.float64).eps * spread * math.sqrt(correlated))


class Interrupted(Exception):
    """The budget of rounds ended before every client had answered."""


def certify(
    clients: Clients,
    x: Array,
    penalty: Penalty | None = None,
    subgradient: Array | None = None,
    allowed: Callable[[], bool] = lambda: True,
) -> Certificate:
    """Prove how far x is from the optimum: one question for gradients and one for scalars, of every client.

    Absent clients are asked again, at the same x, while ``allowed()``. With a penalty g, ``subgradient`` is one of g
    at x, such as ``result.state.subgradient``; without it only a duality bound can be proved.

    With h = x* - x and a subgradient γ of F at x, F* ≥ F(x) + ⟨γ, h⟩ + (what the curvature adds), and the right side
    has a least value. Each of these is a lower bound on what the curvature adds:

    - F strongly convex everywhere: ½ Σℓ_j ‖h‖²;
    - quadratics: ½ hᵀHh, where γᵀH⁻¹γ ≤ 1/Σ(1/q_j) =: ν², q_j = γᵀH_j⁻¹γ, because of the parallel sum of the H_j;
    - logistic, multinomial, Poisson and gamma costs, whose third derivative is at most c‖h‖_H times their second:
      ψ(ρ)·hᵀHh at ρ = c‖h‖_H, ψ(t) = (e⁻ᵗ + t - 1)/t². Then ρ ≤ -ln(1 - cν), where cν < 1, and the gap is at most
      ν²/(4ψ(ρ));
    - Huber's, quadratic in a ball around x: what quadratics have, where that quadratic's minimiser is in the ball.

    A bounded constraint, or a penalty whose level the optimum cannot exceed, bounds the gap without curvature.
    """
    with np.errstate(**QUIET):
        return _certify(clients, x, penalty, subgradient, allowed)


def _certify(
    clients: Clients,
    x: Array,
    penalty: Penalty | None,
    subgradient: Array | None,
    allowed: Callable[[], bool],
) -> Certificate:
    try:
        [gradients] = _everyone(lambda: clients.gradient(x), allowed).values()
        gradient = gradients.sum(axis=0)
        slope = gradient if subgradient is None else gradient + subgradient
        told = ProofScalars(**_everyone(lambda: clients.decrement(x, slope), allowed))
    except Interrupted:
        return Certificate(
            None, None, math.nan, "the rounds ended before every client had answered", True
        )
    objective = float(told.value.sum()) + (0.0 if penalty is None else penalty.value(x))
    candidates = [_dual(told, x, gradient, penalty)]
    if penalty is None or subgradient is not None:
        candidates += [_strong(told, slope, penalty), _curved(told, slope, penalty)]
    proved = [each for each in candidates if each is not None and np.isfinite(each.gap)]
    if not proved or not math.isfinite(objective):
        reason, hopeful = _why_not(told, x)
        return Certificate(None, None, objective, reason, hopeful)
    best = min(proved, key=lambda bound: bound.gap)
    rounding = 4 * np.finfo(np.float64).eps * abs(objective)
    distances = [bound.distance for bound in proved if bound.distance is not None]
    return Certificate(
        float(best.gap + rounding),
        min(distances) if distances else None,
        objective,
        best.reason,
        radius=next((bound.radius for bound in proved if bound.radius is not None), None),
    )


def _everyone(ask: Callable[[], Answer], allowed: Callable[[], bool]) -> dict[str, Array]:
    """The parts of all clients' answers, those of absent ones from the next time they answer."""
    if not allowed():
        raise Interrupted
    answer = ask()
    parts = dict(answer.parts)
    present = answer.present
    while not present.all():
        if not allowed():
            raise Interrupted
        answer = ask()
        new = answer.present & ~present
        for name, array in answer.parts.items():
            parts[name] = np.where(new.reshape(-1, *[1] * (array.ndim - 1)), array, parts[name])
        present = present | answer.present
    return parts


class Bound(NamedTuple):
    """One argument's bounds, as in ``Certificate``."""

    gap: float
    reason: str
    distance: float | None = None
    radius: float | None = None


def _strong(told: ProofScalars, slope: Array, penalty: Penalty | None) -> Bound | None:
    mu = float(told.ell.sum()) + _convexity(penalty)
    size = float(np.linalg.norm(slope))
    return Bound(size * size / (2.0 * mu), "strong convexity", size / mu) if mu > 0 else None


def _curved(told: ProofScalars, slope: Array, penalty: Penalty | None) -> Bound | None:
    """The bounds from the Hessian at x, which is constant, changes slowly, or is constant in a ball around x.

    In the last case let x + h minimise f's quadratic model at x plus the penalty g. Then -(γ + Hh) is a difference of
    subgradients of g, at x + h and at x, so ⟨γ + Hh, h⟩ ≤ 0, since g is convex. Hence ‖h‖_H² ≤ -⟨γ, h⟩ ≤ ν‖h‖_H, and
    ‖h‖ ≤ ν/√μ. Where that is within the ball, the model's gradient at x + h is f's: x + h minimises F = f + g, and
    F(x) - F(x + h) ≤ -⟨γ, h⟩ - ½‖h‖_H² ≤ ½ν².
    """
    size, extra = float(np.linalg.norm(slope)), _convexity(penalty)
    mu = float(told.mu.sum()) + extra
    if size == 0.0:
        return Bound(0.0, "a zero subgradient", 0.0 if mu > 0 else None, 0.0)
    inverse = float(np.sum(1.0 / told.q)) + extra / size**2
    if inverse == 0.0:
        return None
    return _near(1.0 / inverse, mu, told)


def _near(nu2: float, mu: float, told: ProofScalars) -> Bound | None:
    """The bounds where ‖γ‖² in the norm of H⁻¹ is at most nu2 and the eigenvalues of H are at least mu."""
    in_norm = told.norm / math.sqrt(mu) if mu > 0 else np.full(told.norm.shape, np.inf)
    change = float(np.max(np.minimum(told.leverage, np.where(told.norm == 0, 0.0, in_norm))))
    nu = math.sqrt(nu2)
    if change == 0.0:
        radius, gap, reason = nu, 0.5 * nu2, "a quadratic bound"
    elif change * nu < 1.0:
        rho = -math.log1p(-change * nu)
        radius, gap, reason = rho / change, nu2 / (4.0 * _psi(rho)), "self-concordance"
    elif mu > 0 and nu <= math.sqrt(mu) * float(np.min(told.steady)):
        radius, gap, reason = nu, 0.5 * nu2, "a quadratic bound near x"
    else:
        return None
    return Bound(gap, reason, radius / math.sqrt(mu) if mu > 0 else None, radius)


def _psi(t: float) -> float:
    """(e⁻ᵗ + t - 1)/t², by its series where that cancels."""
    return 0.5 - t / 6.0 if t < 1e-4 else (math.expm1(-t) + t) / t**2


def _dual(told: ProofScalars, x: Array, gradient: Array, penalty: Penalty | None) -> Bound | None:
    """F(x) - F* ≤ max_y ⟨∇f(x), x - y⟩ + g(x) - g(y), over the y that the optimum can be among."""
    if penalty is None or not hasattr(penalty, "dual_gap"):
        return None
    level = (
        float(told.value.sum()) + penalty.value(x) - float(told.floor.sum())
    )  # g(x*) cannot be above
    gap = penalty.dual_gap(x, gradient, level)
    return Bound(max(gap, 0.0), "a duality bound")


def _convexity(penalty: Penalty | None) -> float:
    return float(getattr(penalty, "convexity", 0.0))


def _why_not(told: ProofScalars, x: Array) -> tuple[str, bool]:
    """Why nothing is proved, and whether that may change."""
    if np.isinf(told.q).all():
        return (
            "no client's Hessian is positive definite, so scalars prove nothing: add a ridge",
            False,
        )
    if (told.steady > KINK * np.linalg.norm(x)).all():
        return (
            "x is too far from the optimum for a bound from the costs near x: run more rounds",
            True,
        )
    if np.isinf(np.minimum(told.norm, told.leverage)).any():
        return (
            "the loss is not strongly convex, and how fast its Hessian changes is not known: add a ridge",
            False,
        )
    return "x is too far from the optimum for the self-concordance bound: run more rounds", True
