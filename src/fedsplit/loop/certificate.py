"""Certificates: proved bounds on how far x is from the optimum."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask, inverse_norm, to_host
from fedsplit.checks import instance
from fedsplit.clients.oracle import Oracle, clients_of
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Decrement, Gradient, Information, ProofScalars
from fedsplit.clients.stacked import QUIET
from fedsplit.dialogue import Dialogue, converse
from fedsplit.penalties.penalty import Penalty


@dataclass(frozen=True)
class Certificate:
    """What is proved about x, where F is the whole objective with its penalty.

    Attributes
    ----------
    gap : float or None
        F(x) - F* is at most this; None if nothing can be proved.
    distance : float or None
        ‖x - x*‖ is at most this; None if nothing can be proved.
    radius : float or None
        ‖x - x*‖ in the norm of ∇²F(x) is at most this; None if nothing can be proved.
    objective : float
        F(x).
    reason : str
        By what argument, or why there is none.
    hopeful : bool
        Without a proof, whether there may be one at a later x.
    scale : float
        max(|F(x)|, F(0) - F(x)), or |F(x)| if F(0) is not known: what a tolerance is relative to.
    rounding : float
        How much of the gap may be rounding: that of F(x), which is a sum of the |f_j(x)|, and that
        of its gradient.
    vain : bool
        Whether F hardly falls any more by its quadratic model, while x moves on and nothing is
        proved.
    separable : bool
        Whether every observation is on its side of the plane at x, so that there is no minimiser.
    """

    gap: float | None
    distance: float | None
    radius: float | None = field(default=None, kw_only=True)
    objective: float
    reason: str
    hopeful: bool = False
    scale: float = field(default=math.nan, kw_only=True)
    rounding: float = field(default=0.0, kw_only=True)
    vain: bool = field(default=False, kw_only=True)
    separable: bool = field(default=False, kw_only=True)

    def within(self, tol: float) -> bool:
        """Whether the proved gap is at most tol · scale, as far as F(x) has digits to say so.

        Rounding excuses no more than half of the digits of F.
        """
        excused = min(2.0 * self.rounding, math.sqrt(sys.float_info.epsilon) * self.scale)
        return self.gap is not None and self.gap <= tol * self.scale + excused

    @property
    def final(self) -> bool:
        """Whether the gap is at the level of rounding, so that no later one is much smaller."""
        return self.gap is not None and self.gap <= 2.0 * self.rounding

    def about(self, rows: str) -> Certificate:
        """The same, which says what was done to the rows that a proof is about, if anything."""
        if self.gap is None or not rows:
            return self
        return replace(self, reason=f"{self.reason}, {rows}")


SEPARABLE = "the classes are separable"

VAIN = (
    "F hardly falls any more, but x moves on: there may be no minimiser, as where a plane nearly "
    "separates classes; add a ridge, or fit with Firth's penalty"
)

MOVED = Certificate(None, None, math.nan, "x has moved since the last proof")

NOT_ASKED = Certificate(None, None, math.nan, "the run ended before a certificate was asked for")

INTERRUPTED = Certificate(
    None, None, math.nan, "the rounds ended before every client had answered", hopeful=True
)


def certify(
    clients: Oracle,
    x: Array,
    penalty: Penalty | None = None,
    subgradient: Array | None = None,
) -> Certificate:
    """Prove how far x is from the optimum, with two questions to every client, or three.

    Parameters
    ----------
    clients : Clients
        They are asked for gradients, then for scalars, and for their Hessians if these are at most
        16 Mi floats and none of them is positive definite, while that of the sum may be.
    x : (d,) array
    penalty : Penalty, optional
        A convex g that is part of F.
    subgradient : (d,) array, optional
        One of g at x. Without it, only a duality bound can be proved, unless the penalty says which
        one is best.

    Returns
    -------
    Certificate

    Notes
    -----
    With h = x* - x and a subgradient γ of F at x, F* ≥ F(x) + ⟨γ, h⟩ + (what the curvature adds),
    and the right side has a least value. Each of these is a lower bound on what the curvature adds:

    - F strongly convex everywhere: ½ Σℓ_j ‖h‖²;
    - quadratics: ½ hᵀHh, where γᵀH⁻¹γ ≤ 1/Σ(1/q_j) =: ν² with q_j = γᵀH_j⁻¹γ, because of the
      parallel sum of the H_j;
    - logistic, multinomial, Poisson and gamma costs, whose third derivative is at most c‖h‖_H times
      their second: ψ(ρ)·hᵀHh at ρ = c‖h‖_H, where ψ(t) = (e⁻ᵗ + t - 1)/t². If cν < 1, then
      ρ ≤ -ln(1 - cν), and the gap is at most ν²/(4ψ(ρ));
    - Huber's, quadratic in a ball around x: the bound of quadratics, if the minimiser of that
      quadratic is in the ball.

    A bounded constraint, or a penalty whose level the optimum cannot exceed, bounds the gap without
    curvature.
    """
    instance("clients", clients, "the clients of a problem: pass problem.clients", "ask")
    known = clients_of(clients)
    pooled = known.pooled()
    with np.errstate(**QUIET):
        proof = converse(prove(to_host(x), pooled.m, penalty, subgradient), pooled)
    return proof.about(known.rounded)


def prove(
    x: Array,
    m: int,
    penalty: Penalty | None = None,
    subgradient: Array | None = None,
    most: float = math.inf,
    tol: float = 0.0,
    largest: float = 2.0**24,
) -> Dialogue[Certificate]:
    """``certify``, as a dialogue.

    Parameters
    ----------
    x : (d,) array
    m : int
        The number of clients.
    penalty, subgradient
        As in ``certify``.
    most : float
        How many questions may be asked: absent clients are asked again at the same x.
    tol : float
        A gap that is small enough for this tolerance ends the proof: no Hessians are asked for.
    largest : float
        The most floats of Hessians, m·d², that are asked for.
    """
    parts, left = yield from _of_everyone(Gradient(x), most)
    if parts is None:
        return INTERRUPTED
    gradient = parts["gradient"].sum(axis=0)
    slope, slack = best_slope(gradient, x, penalty, subgradient)
    parts, left = yield from _of_everyone(Decrement(x, slope, origin=True), left)
    if parts is None:
        return INTERRUPTED
    scalars = ProofScalars.of(parts)
    margin = parts.get("margin", np.full(m, np.nan))  # clients of one's own may leave it out
    if penalty is None and (margin > 0).all():
        return Certificate(None, None, _objective(scalars, x, penalty), SEPARABLE, separable=True)
    bounds = [_dual(scalars, x, gradient, penalty)]
    if penalty is not None and subgradient is None and slack is None:
        return _best(bounds, scalars, x, penalty)
    convexity = float(getattr(penalty, "convexity", 0.0))
    bounds += [_strong(scalars, slope, convexity), _curved(scalars, slope, convexity)]
    proof = _best(bounds, scalars, x, penalty)
    if proof.within(tol) or np.isfinite(scalars.q).any() or m * len(x) ** 2 > largest:
        return proof
    parts, _ = yield from _of_everyone(Information(x), left)
    if parts is None:
        return proof
    H = parts["hessian"].sum(axis=0)
    pooled = certify_by_information(H, slope, scalars, x, penalty, slack)
    if proof.gap is None or (pooled.gap is not None and pooled.gap < proof.gap):
        return pooled
    return proof


def _of_everyone(
    question: CostQuestion, most: float
) -> Dialogue[tuple[dict[str, Array] | None, float]]:
    """The parts of all answers, of absent clients from the next time, and the questions left.

    The parts are None if the questions did not suffice.
    """
    known: Answer | None = None
    while most > 0:
        answer: Answer = yield question
        most -= 1
        known = answer if known is None else known.joined(answer)
        if known.complete:
            return known.parts, most
    return None, 0.0


def best_slope(
    gradient: Array, x: Array, penalty: Penalty | None, subgradient: Array | None
) -> tuple[Array, Array | None]:
    """A subgradient of F at x, the smallest one if the penalty tells it, and its slack.

    The slack is that of ``nearest_subgradient`` in ``Penalty``; None if the penalty has none.
    """
    nearest = getattr(penalty, "nearest_subgradient", None)
    if nearest is not None:
        subgradient, slack = nearest(x, -gradient)
        return gradient + subgradient, slack
    if subgradient is None:
        return gradient, None
    return gradient + subgradient, None


@np.errstate(**QUIET)
def certify_at_hand(
    H: Array,
    gradient: Array,
    scalars: ProofScalars,
    x: Array,
    penalty: Penalty | None,
    subgradient: Array | None,
    drift: float = 0.0,
) -> Certificate:
    """Prove how far x is from the optimum, from what is known of it: nobody is asked.

    Parameters
    ----------
    H : (d, d) array
        At most Σ_j ∇²f_j(x), as positive semidefinite matrices are compared.
    gradient : (d,) array
        Σ_j ∇f_j(x).
    scalars : ProofScalars
        Without q, mu and leverage.
    x : (d,) array
    penalty : Penalty or None
    subgradient : (d,) array or None
        As in ``certify``.
    drift : float
        How far the true gradient may be from this one, in the norm of H⁻¹.
    """
    slope, slack = best_slope(gradient, x, penalty, subgradient)
    if drift > 0.0:  # other bounds, and those on the support alone, need the gradient itself
        return certify_by_information(H, slope, scalars, x, penalty, None, drift)
    curved = certify_by_information(H, slope, scalars, x, penalty, slack)
    dual = _best([_dual(scalars, x, gradient, penalty)], scalars, x, penalty)
    if dual.gap is not None and (curved.gap is None or dual.gap < curved.gap):
        return dual
    return curved


def certify_by_information(
    H: Array,
    slope: Array,
    scalars: ProofScalars,
    x: Array,
    penalty: Penalty | None = None,
    slack: Array | None = None,
    drift: float = 0.0,
) -> Certificate:
    """Prove how far x is from the optimum, if the Hessian of the sum is known.

    There is a proof also where every client's own Hessian is singular, for want of rows or of some
    category: ν² = γᵀH⁻¹γ needs no bound. What rounding adds to γ is allowed for. With a slack, see
    ``_supported``, H need only be regular on the support.

    H itself may be singular to rounding, as with a dummy for each of several groups beside an
    intercept. If every client states a concordance c, e^(-c‖h‖)H(x) ⪯ H(x + h) ⪯ e^(c‖h‖)H(x), so
    that the kernel of H is the same at every x, and F is affine along it: constant, if γ has no
    part there but rounding. Then the proof is about the other directions, with ν² = γᵀH⁺γ. Without
    a concordance only this H may be singular, as Huber's is where all residuals are large: nothing
    is proved.

    Parameters
    ----------
    H : (d, d) array
        Σ_j ∇²f_j(x).
    slope : (d,) array
        γ, a subgradient of F at x.
    scalars : ProofScalars
    x : (d,) array
    penalty : Penalty, optional
    slack : (d,) array, optional
        g(x + h) is at least Σ_i slack_i|h_i| above the tangent that the slope has.
    drift : float
        How far the true γ may be from this one, in the norm of H⁻¹.
    """
    if np.isnan(slope).any():
        objective = _objective(scalars, x, penalty)
        return Certificate(None, None, objective, "no subgradient at x is known", hopeful=True)
    nu2, mu, _ = inverse_norm(H[None], slope[None])
    on = _supported(H, slope, slack)
    within = H[np.ix_(on, on)]
    if not on.all():
        nu2, _, _ = inverse_norm(within[None], slope[None, on])
    found = Curved(float(nu2[0]), float(mu[0]), len(within))
    if math.isinf(found.nu2):
        found = _in_range(within, slope[on], scalars, x[on])
        if not on.all():  # what H is elsewhere was not looked at
            found = found._replace(mu=0.0)
    if math.isinf(found.nu2):
        reason = "the Hessian of the sum is singular: add a ridge"
        # F may still fall along the kernel: standing still is then no sign of an optimum
        falls = bool(np.isfinite(scalars.norm).all())
        if falls:
            reason = (
                "the Hessian of the sum is singular to rounding, and the gradient has a part along "
                "its kernel: add a ridge"
            )
        return Certificate(None, None, _objective(scalars, x, penalty), reason, falls)
    noise = _rounding(within, scalars, x[on])
    nu = math.sqrt(found.nu2) + drift + noise
    bound = None
    if math.isfinite(nu):
        bound = _near(nu * nu, found.mu, scalars)
    if bound is not None and found.rank < len(within):
        directions = f"in the {found.rank} of {len(within)} directions that the data determine"
        bound = Bound(bound.gap, f"{bound.reason}, {directions} to rounding", None, bound.radius)
    if bound is None and drift == 0.0:
        bound = _strong(scalars, slope, float(getattr(penalty, "convexity", 0.0)))
    # That no client's own Hessian is definite does not matter here.
    return _best([bound], scalars._replace(q=np.full(1, found.nu2)), x, penalty, noise**2)


class Curved(NamedTuple):
    """What a Hessian says about a slope.

    Attributes
    ----------
    nu2 : float
        γᵀH⁻¹γ, or γᵀH⁺γ if the rank is below d; inf if nothing is known.
    mu : float
        The smallest eigenvalue of H, of those that count.
    rank : int
    """

    nu2: float
    mu: float
    rank: int


def _in_range(H: Array, slope: Array, scalars: ProofScalars, x: Array) -> Curved:
    """γᵀH⁺γ for an H that is singular to rounding, if that is all that there is to γ.

    In units in which the diagonal of H is 1, an eigenvalue counts if it is above rounding, as in
    ``inverse_norm``. In such units the rounding of γ is about ε times the lengths that it is a sum
    of: a part outside the range that is larger says that F falls there.
    """
    d = len(H)
    unknown = Curved(math.inf, 0.0, 0)
    if not (np.isfinite(H).all() and np.isfinite(scalars.norm).all()):
        return unknown
    diagonal = np.diag(H)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    spectrum, Q = np.linalg.eigh(H / np.outer(size, size))
    rounding = 4 * d * sys.float_info.epsilon
    certain = spectrum > 2 * rounding * spectrum[-1]
    along = Q.T @ (slope / size)
    lengths = float(np.abs(size * x).sum()) + _deviation(scalars)
    if not certain.any() or np.linalg.norm(along[~certain]) > rounding * lengths:
        return unknown
    least = spectrum[certain] - rounding * spectrum[-1]
    # A minimiser is as far as it is in some complement of the kernel: that of these units, or the
    # orthogonal one.
    own = np.linalg.eigvalsh(H)
    orthogonal = own[-len(least)] - rounding * own[-1]
    mu = max(float(least[0] * np.min(size[diagonal > 0] ** 2)), float(orthogonal))
    return Curved(float(np.sum(along[certain] ** 2 / least)), mu, len(least))


def _supported(H: Array, slope: Array, slack: Array | None) -> Mask:
    """The coordinates on which a proof needs the Hessian, (d,).

    F(x + h) - F(x) ≥ ⟨γ, h⟩ + Σ_i slack_i|h_i| + (what the curvature adds). If u has (Hu + γ)_i = 0
    where i is on, and |Hu + γ|_i ≤ slack_i elsewhere, the first two terms are at least -⟨Hu, h⟩, so
    that uᵀHu takes the place of ν². With u = 0 elsewhere that is γᵀH⁻¹γ on the support alone.
    """
    if slack is None or not np.isfinite(H).all():
        return np.ones(len(slope), dtype=bool)
    on: Mask = (slack == slack.min()) | (slope != 0.0)  # at least one
    more = on
    while more.any():
        u = np.zeros(len(slope))
        u[on] = -np.linalg.lstsq(H[np.ix_(on, on)], slope[on], rcond=None)[0]
        more = ~on & ~(np.abs(H @ u) <= slack)
        on = on | more
    return on


def moved(H: Array, nu: float, scalars: ProofScalars) -> float:
    """How far the minimiser moves at most, in the norm of H, if the gradient moves by ν.

    Parameters
    ----------
    H : (d, d) array
        The Hessian near the minimiser.
    nu : float
        The length of the gradient's move in the norm of H⁻¹.
    scalars : ProofScalars
        How fast the Hessian changes.
    """
    _, mu, _ = inverse_norm(H[None], np.zeros((1, len(H))))
    bound = None
    if math.isfinite(nu):
        bound = _near(nu * nu, float(mu[0]), scalars)
    if bound is None or bound.radius is None:
        return math.inf
    return bound.radius


class Bound(NamedTuple):
    """The bounds of one argument, as in ``Certificate``."""

    gap: float
    reason: str
    distance: float | None = None
    radius: float | None = None


def _best(
    bounds: Sequence[Bound | None],
    scalars: ProofScalars,
    x: Array,
    penalty: Penalty | None,
    noise: float = 0.0,
    tol: float = 1e-9,
) -> Certificate:
    """The smallest gap and distance of several arguments, with what rounding adds to the gap.

    ``noise`` is what rounding of the gradient has added to it already, and ``tol`` the share of F
    that a run is content with.
    """
    objective = _objective(scalars, x, penalty)
    at_zero = _value_at_zero(scalars, len(x), penalty)
    scale = max(abs(objective), at_zero - objective) if math.isfinite(at_zero) else abs(objective)
    proved = [bound for bound in bounds if bound is not None and np.isfinite(bound.gap)]
    if not proved or not math.isfinite(objective):
        reason, hopeful = _why_not(scalars, x, tol * scale)
        vain = reason == VAIN
        return Certificate(None, None, objective, reason, hopeful, scale=scale, vain=vain)
    best = min(proved, key=lambda bound: bound.gap)
    rounding = 4 * sys.float_info.epsilon * float(np.abs(scalars.value).sum())
    distances = [bound.distance for bound in proved if bound.distance is not None]
    radii = [bound.radius for bound in proved if bound.radius is not None]
    return Certificate(
        float(best.gap + rounding),
        min(distances, default=None),
        objective,
        best.reason,
        radius=next(iter(radii), None),
        scale=scale,
        rounding=rounding + noise,
    )


def _value_at_zero(scalars: ProofScalars, d: int, penalty: Penalty | None) -> float:
    """F(0) with the penalty; nan if it is not known, and inf where a constraint excludes 0."""
    if len(scalars.origin) == 0:
        return math.nan
    value = float(scalars.origin.sum())
    return value if penalty is None else value + penalty.value(np.zeros(d))


def _objective(scalars: ProofScalars, x: Array, penalty: Penalty | None) -> float:
    """F(x)."""
    value = float(scalars.value.sum())
    if penalty is not None:
        value += penalty.value(x)
    return value


def _strong(scalars: ProofScalars, slope: Array, convexity: float) -> Bound | None:
    """‖γ‖²/(2μ) and ‖γ‖/μ, where μ is the strong convexity of F, with the penalty's, everywhere."""
    mu = float(scalars.ell.sum()) + convexity
    if mu <= 0:
        return None
    size = float(np.linalg.norm(slope))
    return Bound(size * size / (2.0 * mu), "strong convexity", size / mu)


def _curved(scalars: ProofScalars, slope: Array, convexity: float) -> Bound | None:
    """The bounds from the Hessians at x, with ν² ≤ 1/Σ(1/q_j), and the penalty's convexity."""
    size = float(np.linalg.norm(slope))
    mu = float(scalars.mu.sum()) + convexity
    if size == 0.0:
        distance = None
        if mu > 0:
            distance = 0.0
        return Bound(0.0, "a zero subgradient", distance, 0.0)
    inverse = float(np.sum(1.0 / scalars.q)) + convexity / size**2
    if inverse == 0.0:
        return None
    return _near(1.0 / inverse, mu, scalars)


def _near(nu2: float, mu: float, scalars: ProofScalars) -> Bound | None:
    """The bounds if γᵀH⁻¹γ ≤ ν² and the eigenvalues of H are at least μ.

    H is constant, changes slowly, or is constant in a ball around x. In the last case let x + h
    minimise f's quadratic model at x plus the penalty g. Then -(γ + Hh) is a difference of
    subgradients of g, at x + h and at x, so ⟨γ + Hh, h⟩ ≤ 0, since g is convex. Hence
    ‖h‖_H² ≤ -⟨γ, h⟩ ≤ ν‖h‖_H, and ‖h‖ ≤ ν/√μ. If that is within the ball, the model's gradient at
    x + h is f's: x + h minimises F = f + g, and F(x) - F(x + h) ≤ -⟨γ, h⟩ - ½‖h‖_H² ≤ ½ν².
    """
    nu = math.sqrt(nu2)
    # c of each client by its own Hessian, or, since ‖h‖ ≤ ‖h‖_H/√μ, by that of the sum.
    by_norm = np.where(scalars.norm == 0, 0.0, np.inf)
    if mu > 0:
        by_norm = scalars.norm / math.sqrt(mu)
    c = float(np.max(np.minimum(scalars.leverage, by_norm)))
    radius = nu
    gap = 0.5 * nu2
    if c == 0.0:
        reason = "a quadratic bound"
    elif c * nu < 1.0:
        rho = -math.log1p(-c * nu)
        radius = rho / c
        psi = 0.5 - rho / 6.0  # its series, where the formula would cancel
        if rho >= 1e-4:
            psi = (math.expm1(-rho) + rho) / rho**2
        gap = nu2 / (4.0 * psi)
        reason = "self-concordance"
    elif mu > 0 and nu <= math.sqrt(mu) * float(np.min(scalars.steady)):
        reason = "a quadratic bound near x"
    else:
        return None
    distance = None
    if mu > 0:
        distance = radius / math.sqrt(mu)
    return Bound(gap, reason, distance, radius)


def _dual(
    scalars: ProofScalars, x: Array, gradient: Array, penalty: Penalty | None
) -> Bound | None:
    """F(x) - F* ≤ max_y ⟨∇f(x), x - y⟩ + g(x) - g(y), over the y that the optimum is among."""
    dual_gap = getattr(penalty, "dual_gap", None)
    if dual_gap is None:
        return None
    # g(x*) = F* - f(x*) cannot be above F(x) less a lower bound on f.
    level = _objective(scalars, x, penalty) - float(scalars.floor.sum())
    return Bound(max(dual_gap(x, gradient, level), 0.0), "a duality bound")


def _rounding(H: Array, scalars: ProofScalars, x: Array) -> float:
    """About how much rounding adds to ‖γ‖ in the norm of H⁻¹.

    γ_k is a sum of slopes times a_ik, and slopes are off by curvature times the rounding of η,
    which is that of Σ_k|a_ik x_k|: its terms may cancel. By Cauchy's inequality the rounding of γ_k
    is about ε√H_kk(Σ_l √H_ll|x_l| + √D), where D is the deviance; four times that is allowed for.
    """
    size = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
    scaled = H / np.outer(size, size)
    # the threshold of ``_in_range``
    inverse = np.linalg.pinv(scaled, rcond=8 * len(H) * sys.float_info.epsilon, hermitian=True)
    spread = float(np.abs(size * x).sum()) + _deviation(scalars)
    return float(4.0 * sys.float_info.epsilon * spread * math.sqrt(np.abs(inverse).sum()))


def _deviation(scalars: ProofScalars) -> float:
    """The square root of the deviance; 0 if that is not known."""
    deviance = max(0.0, 2.0 * float(np.sum(scalars.value - scalars.floor)))
    return math.sqrt(deviance) if math.isfinite(deviance) else 0.0


def _why_not(scalars: ProofScalars, x: Array, enough: float) -> tuple[str, bool]:
    """Why nothing is proved, and whether that may change.

    A gain of ``enough`` is what the rounds are run for.
    """
    if np.isinf(scalars.q).all():
        return (
            "no client's Hessian is known to be positive definite, so that nothing bounds the gap: "
            "add a ridge, which may be small",
            False,
        )
    # A smaller ball of constant Hessians may be empty at the optimum: Huber's loss has kinks.
    if (scalars.steady > 1e-9 * np.linalg.norm(x)).all():
        return (
            "x is too far from the optimum for a bound from the costs near x: run more rounds",
            True,
        )
    if np.isinf(np.minimum(scalars.norm, scalars.leverage)).any():
        reason = (
            "the loss is not strongly convex, and how fast its Hessian changes is not known: "
            "add a ridge"
        )
        return reason, False
    if 0.5 / float(np.sum(1.0 / scalars.q)) <= enough:
        return VAIN, True
    return "x is too far from the optimum for the self-concordance bound: run more rounds", True
