"""Certificates: proved bounds on how far x is from the optimum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import EPS, Array, Mask
from fedsplit.checks import instance
from fedsplit.clients.oracle import Oracle, Pooled, clients_of
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Decrement, Gradient, Information, ProofScalars
from fedsplit.clients.stacked import QUIET
from fedsplit.device.backend import numbers
from fedsplit.dialogue import BudgetSpent, Dialogue, converse
from fedsplit.errors import InputError
from fedsplit.methods.method import Evidence
from fedsplit.penalties.penalty import Penalty

SEPARABLE = "the classes are separable"

VAIN = (
    "F hardly falls any more, but x moves on: there may be no minimiser, as where a plane nearly "
    "separates classes; add a ridge, or fit with Firth's penalty"
)


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
        F(x); nan if it is not known. Asynchronously, where each client was last asked about a point
        of its own, it is a lower bound.
    reason : str
        By what argument, or why there is none.
    hopeful : bool
        Without a proof, whether there may be one at a later x.
    scale : float
        max(|F(x)|, F(0) - F(x)), or |F(x)| if F(0) is not known: what a tolerance is relative to.
    rounding : float
        How much of the gap may be rounding: that of F(x), which is a sum of the |f_j(x)|, and that
        of its gradient.
    """

    gap: float | None
    distance: float | None
    radius: float | None = field(default=None, kw_only=True)
    objective: float
    reason: str
    hopeful: bool = False
    scale: float = field(default=math.nan, kw_only=True)
    rounding: float = field(default=0.0, kw_only=True)

    def within(self, tol: float) -> bool:
        """Whether the proved gap is at most tol · scale, as far as F(x) has digits to say so."""
        # rounding excuses no more than half of the digits of F
        excused = min(2.0 * self.rounding, math.sqrt(EPS) * self.scale)
        return self.gap is not None and self.gap <= tol * self.scale + excused

    @property
    def final(self) -> bool:
        """Whether the gap is at the level of rounding, so that no later one is much smaller."""
        return self.gap is not None and self.gap <= 2.0 * self.rounding

    @property
    def vain(self) -> bool:
        """Whether F hardly falls any more by its quadratic model, while x moves on unproved."""
        return self.reason == VAIN

    @property
    def separable(self) -> bool:
        """Whether every observation is on its side of the plane at x: there is no minimiser."""
        return self.reason == SEPARABLE

    def about(self, rows: str) -> Certificate:
        """The certificate with a remark about the rows that a proof is about, if there is one."""
        if self.gap is None or not rows:
            return self
        return replace(self, reason=f"{self.reason}, {rows}")


NOT_ASKED = Certificate(None, None, math.nan, "the run ended before a certificate was asked for")


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
    instance("clients", clients, "the clients of a problem: pass problem.clients", "m", "ask")
    known = clients_of(clients)
    point = numbers(x)
    if point is None or point.ndim != 1 or (known.d and len(point) != known.d):
        raise InputError(f"x must be {known.d or 'd'} numbers, its shape is {np.shape(x)}")
    with np.errstate(**QUIET):
        proof = converse(prove(point, penalty, subgradient), known.pooled())
    return proof.about(known.rounded)


def prove(
    x: Array,
    penalty: Penalty | None = None,
    subgradient: Array | None = None,
    tol: float = 0.0,
    pooled: bool = False,
    largest: float = 2.0**24,
) -> Dialogue[Certificate]:
    """``certify``, as a dialogue, which asks absent clients again while the budget lasts.

    A gap that is small enough for ``tol`` ends it: no Hessians are asked for, nor are more than
    ``largest`` floats of them. ``pooled`` asks the one client that all are together, see
    ``Pooled``.
    """
    proof = Certificate(
        None, None, math.nan, "the rounds ended before every client had answered", hopeful=True
    )
    try:
        answer = yield from _of_everyone(Gradient(x), pooled)
        gradient = answer.rows.sum(axis=0)
        slope, slack = best_slope(gradient, x, penalty, subgradient)
        # without a subgradient, the scalars are those of the smooth part, and bound nothing alone
        asked = gradient if np.isnan(slope).any() else slope
        answer = yield from _of_everyone(Decrement(x, asked, origin=True), pooled)
        m = len(answer.present)
        facts = Facts(x, slope, ProofScalars.of(answer.parts), penalty, slack, gradient)
        margin = answer.parts.get("margin", np.full(m, np.nan))  # which some clients leave out
        if penalty is None and (margin > 0).all():
            return Certificate(None, None, facts.objective, SEPARABLE)
        proof = facts.certificate()
        # where a client's own Hessian is definite, that of the sum would prove little more
        definite = np.isfinite(facts.scalars.q).any()
        if proof.within(tol) or definite or np.isnan(slope).any() or m * len(x) ** 2 > largest:
            return proof
        answer = yield from _of_everyone(Information(x), pooled)
    except BudgetSpent:
        return proof
    closer = facts.certificate(answer.rows.sum(axis=0))
    worse = proof.gap is not None and (closer.gap is None or closer.gap >= proof.gap)
    return proof if worse else closer


def _of_everyone(question: CostQuestion, pooled: bool) -> Dialogue[Answer]:
    """The answers of all clients, those of absent clients from the next time."""
    asked = Pooled(question) if pooled else question
    known: Answer = yield asked
    while not known.complete:
        later: Answer = yield asked
        known = known.joined(later)
    return known


@np.errstate(**QUIET)
def certify_at_hand(
    evidence: Evidence, x: Array, penalty: Penalty | None, subgradient: Array | None
) -> Certificate:
    """What the answers of a method's last round prove about x; nobody is asked."""
    gradient = evidence.gradients.sum(axis=0)
    slope, slack = best_slope(gradient, x, penalty, subgradient)
    facts = Facts(x, slope, evidence.scalars, penalty, slack, gradient)
    return facts.certificate(evidence.least_hessian, evidence.drift)


def best_slope(
    gradient: Array, x: Array, penalty: Penalty | None, subgradient: Array | None
) -> tuple[Array, Array | None]:
    """A subgradient of F at x, the smallest one if the penalty tells it, and its slack.

    The slack is that of ``nearest_subgradient`` in ``Penalty``; None if the penalty has none. The
    subgradient is nan if none is known.
    """
    nearest = getattr(penalty, "nearest_subgradient", None)
    if nearest is not None:  # the smallest one gives the best bounds, whatever the method has
        subgradient, slack = nearest(x, -gradient)
        return gradient + subgradient, slack
    if subgradient is not None:
        return gradient + subgradient, None
    return (gradient if penalty is None else np.full_like(gradient, np.nan)), None


class Bound(NamedTuple):
    """What one argument proves; a gap of inf is no proof, and the reason says why."""

    # as in ``Certificate``, with inf in the place of None
    gap: float
    reason: str
    distance: float = math.inf
    radius: float = math.inf
    # how far rounding may have moved γ, in the norm of H⁻¹; 0 if that is not known
    noise: float = 0.0
    hopeful: bool = False


class Facts(NamedTuple):
    """What is known about F at x, from which certificates follow without another question."""

    x: Array  # (d,)
    slope: Array  # (d,): γ, a subgradient of F at x; nan if none is known
    # q, mu and leverage are only needed where the Hessian of the sum is not known
    scalars: ProofScalars
    penalty: Penalty | None = None
    # (d,): g(x + h) is at least Σ_i slack_i|h_i| above the tangent that the slope has
    slack: Array | None = None
    gradient: Array | None = None  # (d,): Σ_j ∇f_j(x), for a duality bound

    @property
    def objective(self) -> float:
        """F(x)."""
        value = float(self.scalars.value.sum())
        return value if self.penalty is None else value + self.penalty.value(self.x)

    @property
    def scale(self) -> float:
        """What a tolerance is relative to, as in ``Certificate``."""
        size = abs(self.objective)
        at_zero = float(self.scalars.origin.sum()) if len(self.scalars.origin) else math.nan
        if self.penalty is not None:
            at_zero += self.penalty.value(0.0 * self.x)
        # inf where a constraint excludes 0
        return max(size, at_zero - self.objective) if math.isfinite(at_zero) else size

    def certificate(self, H: Array | None = None, drift: float = 0.0) -> Certificate:
        """The least gap and distance of several arguments, with what rounding adds to the gap.

        H is at most Σ_j ∇²f_j(x), as semidefinite matrices are compared; without it the clients'
        own q_j take its place. ``drift`` is how far the true γ may be from this one, in the norm of
        H⁻¹.
        """
        if np.isnan(self.slope).any():
            curved = Bound(math.inf, "no subgradient at x is known", hopeful=True)
        else:
            curved = self._by_clients() if H is None else self._by_hessian(H, drift)
        bounds = [curved]
        if drift == 0.0:  # other arguments need the gradient itself
            noise = curved.noise or self._noise()
            bounds.append(self._dual(noise))
            # That of H knows the rounding of γ by the units of the columns.
            mu = float(self.scalars.ell.sum()) + _convexity(self.penalty)
            if mu > 0 and (H is None or math.isinf(curved.gap)):  # ‖γ‖²/(2μ) and ‖γ‖/μ
                radius = float(np.linalg.norm(self.slope)) / math.sqrt(mu) + noise
                strong = Bound(0.5 * radius**2, "strong convexity", radius / math.sqrt(mu))
                bounds.append(strong._replace(noise=noise))
        proved = [bound for bound in bounds if math.isfinite(bound.gap)]
        objective = self.objective
        scale = self.scale
        if not proved or not math.isfinite(objective):
            failed = curved
            if math.isfinite(curved.gap):  # outside of a constraint, or beyond float64
                failed = Bound(math.inf, "F(x) is not finite", hopeful=True)
            # Far away, curvature that a minimiser has may vanish, as for logistic costs. While F
            # still falls by a good share of itself on the way of length ‖x‖, x is no minimiser.
            steep = np.linalg.norm(self.slope) * np.linalg.norm(self.x) > 1e-3 * scale
            hopeful = failed.hopeful or bool(steep)
            return Certificate(None, None, objective, failed.reason, hopeful, scale=scale)
        best = min(proved, key=lambda bound: bound.gap)
        # every argument holds by itself, so that the best of each number is proved too
        distance = min(bound.distance for bound in proved)
        # F(x) is a rounded sum: no gap below its last digits is proved
        rounding = 4 * EPS * float(np.abs(self.scalars.value).sum())
        return Certificate(
            float(best.gap + rounding),
            distance if math.isfinite(distance) else None,
            objective,
            best.reason,
            radius=curved.radius if math.isfinite(curved.radius) else None,
            scale=scale,
            rounding=rounding + best.noise**2,
        )

    def _by_clients(self) -> Bound:
        """The bounds from the clients' Hessians at x, with ν² ≤ 1/Σ(1/q_j), and g's convexity."""
        size = float(np.linalg.norm(self.slope))
        convexity = _convexity(self.penalty)
        mu = float(self.scalars.mu.sum()) + convexity
        noise = self._noise()
        if size == 0.0:
            distance = noise / math.sqrt(mu) if mu > 0 else math.inf
            return Bound(0.5 * noise**2, "a zero subgradient", distance, noise, noise)
        inverse = float(np.sum(1.0 / self.scalars.q)) + convexity / size**2
        if inverse > 0.0:
            return self._near(1.0 / math.sqrt(inverse) + noise, mu)._replace(noise=noise)
        reason = (
            "no client's Hessian is known to be positive definite, so that nothing bounds the gap"
        )
        return Bound(math.inf, f"{reason}: add a ridge, which may be small")

    def _by_hessian(self, H: Array, drift: float) -> Bound:
        """The bounds from the Hessian of the sum, which may be regular where no client's own is.

        H need only be regular on the support, see ``_supported``, and may even be singular to
        rounding, as with a dummy for each of several groups beside an intercept. If every client
        states a concordance c, e^(-c‖h‖)H(x) ⪯ H(x + h) ⪯ e^(c‖h‖)H(x), so that the kernel of H is
        the same at every x, and F is affine along it: constant, if γ has no part there but
        rounding. Then the proof is about the other directions, with ν² = γᵀH⁺γ. Without a
        concordance only this H may be singular, as Huber's is where all residuals are large:
        nothing is proved.

        What rounding adds to γ is allowed for. γ_k is a sum of slopes times a_ik, and slopes are
        off by curvature times the rounding of η, which is that of Σ_k|a_ik x_k|: its terms may
        cancel. By Cauchy's inequality the rounding of γ_k is about ε√H_kk(Σ_l √H_ll|x_l| + √D),
        where D is the deviance; four times that is allowed for.
        """
        # The support follows from the gradient itself: one that has drifted says nothing about it.
        on = _supported(H, self.slope, self.slack if drift == 0.0 else None)
        within = ScaledHessian(H[np.ix_(on, on)])
        nu, outside = within.inverse_norm(self.slope[on])
        deviance = max(0.0, 2.0 * float(np.sum(self.scalars.value - self.scalars.floor)))
        deviation = math.sqrt(deviance) if math.isfinite(deviance) else 0.0
        lengths = float(np.abs(within.sizes * self.x[on]).sum()) + deviation
        affine = bool(np.isfinite(self.scalars.norm).all())
        if within.singular and not (affine and outside <= within.rounding * lengths):
            reason = "the Hessian of the sum is singular"
            if affine:
                reason += " to rounding, and the gradient has a part along its kernel"
            # F still falls along the kernel: standing still is then no sign of an optimum, and
            # Huber's Hessian may be regular where more residuals are small
            hopeful = outside > within.rounding * lengths
            return Bound(math.inf, f"{reason}: add a ridge", hopeful=hopeful)
        noise = 4.0 * EPS * lengths * math.sqrt(within.sum_of_inverse())
        # off the support, what h adds to ‖h‖ is bounded by the whole of H alone
        mu = within.least(in_range=True) if on.all() else ScaledHessian(H).least()
        bound = self._near(nu + drift + noise, mu)._replace(noise=noise)
        if not within.singular or math.isinf(bound.gap):
            return bound
        directions = f"in the {within.rank} of {len(within.sizes)} directions that the data"
        reason = f"{bound.reason}, {directions} determine to rounding"
        # along the kernel, minimisers are anywhere
        return bound._replace(reason=reason, distance=math.inf)

    def _near(self, nu: float, mu: float) -> Bound:
        """``near``, with the reason where that proves nothing."""
        bound = near(nu, mu, self.scalars)
        if math.isfinite(bound.gap):
            return bound
        hopeful = True
        # A smaller ball of constant Hessians may be empty at the optimum: Huber's loss has kinks.
        if (self.scalars.steady > 1e-9 * np.linalg.norm(self.x)).all():
            reason = "x is too far from the optimum for a bound from the costs near x"
        elif np.isinf(np.minimum(self.scalars.norm, self.scalars.leverage)).any():
            reason = (
                "the loss is not strongly convex, and how fast its Hessian changes is not known"
            )
            hopeful = False
        elif 0.5 * nu * nu <= 1e-9 * self.scale:  # the share of F that a run is content with
            return Bound(math.inf, VAIN, hopeful=True)
        else:
            reason = "x is too far from the optimum for the self-concordance bound"
        advice = "run more rounds" if hopeful else "add a ridge"
        return Bound(math.inf, f"{reason}: {advice}", hopeful=hopeful)

    def _dual(self, noise: float) -> Bound:
        """F(x) - F* ≤ max_y ⟨∇f(x), x - y⟩ + g(x) - g(y), over the y that the optimum is among.

        With the curvature ½‖h‖²_H of f on the way h to the optimum, what rounding adds to ⟨∇f, h⟩
        is at most noise·‖h‖_H - ½‖h‖²_H ≤ ½noise²; twice that allows for an H that changes.
        """
        dual_gap = getattr(self.penalty, "dual_gap", None)
        if dual_gap is None or self.gradient is None:
            return Bound(math.inf, "")
        # g(x*) = F* - f(x*) cannot be above F(x) less a lower bound on f.
        level = self.objective - float(self.scalars.floor.sum())
        gap = max(dual_gap(self.x, self.gradient, level), 0.0) + noise**2
        return Bound(gap, "a duality bound", noise=noise)

    def _noise(self) -> float:
        """What rounding adds to γ in the norm of H⁻¹: the sum of that in the clients' own norms.

        Where a client does not state that, or its H_j is singular, it is d roundings of about ‖x‖
        in the norm of H_j, by how much f_j falls from 0 to x.
        """
        value, noise, origin = self.scalars.value, self.scalars.noise, self.scalars.origin
        level = np.fmax(np.abs(value), origin) if len(origin) else np.abs(value)
        rough = 4.0 * len(self.x) * EPS * np.sqrt(2.0 * level)
        each = np.where(np.isfinite(noise), noise, rough) if len(noise) else rough
        return float(np.sum(each[np.isfinite(each)]))


def _convexity(penalty: Penalty | None) -> float:
    return float(getattr(penalty, "convexity", 0.0))


def near(nu: float, mu: float, scalars: ProofScalars) -> Bound:
    """The bounds if √(γᵀH⁻¹γ) ≤ ν and the eigenvalues of H are at least μ.

    H is constant, changes slowly, or is constant in a ball around x. In the last case let x + h
    minimise f's quadratic model at x plus the penalty g. Then -(γ + Hh) is a difference of
    subgradients of g, at x + h and at x, so ⟨γ + Hh, h⟩ ≤ 0, since g is convex. Hence
    ‖h‖_H² ≤ -⟨γ, h⟩ ≤ ν‖h‖_H, and ‖h‖ ≤ ν/√μ. If that is within the ball, the model's gradient at
    x + h is f's: x + h minimises F = f + g, and F(x) - F(x + h) ≤ -⟨γ, h⟩ - ½‖h‖_H² ≤ ½ν².
    """
    if not math.isfinite(nu):
        return Bound(math.inf, "")
    root = math.sqrt(mu)
    # c of each client by its own Hessian, or, since ‖h‖ ≤ ‖h‖_H/√μ, by that of the sum.
    by_norm = np.where(scalars.norm == 0, 0.0, np.inf)  # and not 0/0
    if mu > 0:
        by_norm = scalars.norm / root
    c = float(np.max(np.minimum(scalars.leverage, by_norm)))
    radius = nu
    gap = 0.5 * nu * nu
    if c == 0.0:
        reason = "a quadratic bound"
    elif c * nu < 1.0:
        rho = -math.log1p(-c * nu)
        radius = rho / c
        psi = 0.5 - rho / 6.0  # its series, where the formula would cancel
        if rho >= 1e-4:
            psi = (math.expm1(-rho) + rho) / rho**2
        gap = nu * nu / (4.0 * psi)
        reason = "self-concordance"
    elif mu > 0 and nu <= root * float(np.min(scalars.steady)):
        reason = "a quadratic bound near x"
    else:
        return Bound(math.inf, "")
    return Bound(gap, reason, radius / root if mu > 0 else math.inf, radius)


class ScaledHessian:
    """A Hessian, (d, d), by its eigenvalues in units in which its diagonal is 1.

    In such units columns on different scales are not taken for singularity. An eigenvalue counts if
    it is above rounding, and rounding is subtracted from it. ``rank`` is how many count, 0 if H is
    not finite, ``sizes`` has the square roots of the diagonal, 1 where that is 0, and ``rounding``
    is that of a sum of d products, relative to their sizes.
    """

    def __init__(self, H: Array) -> None:
        d = len(H)
        self._H = np.where(np.isfinite(H).all(), H, np.zeros_like(H))
        diagonal = np.diag(self._H)
        self._present = diagonal > 0
        self.sizes: Array = np.sqrt(np.where(self._present, diagonal, 1.0))
        self.rounding = 4 * d * EPS
        spectrum, Q = np.linalg.eigh(self._H / np.outer(self.sizes, self.sizes))
        certain = spectrum > 2 * self.rounding * spectrum[-1]
        self._Q = Q[:, certain]
        self._kernel = Q[:, ~certain]
        self._spectrum: Array = spectrum[certain]
        # Weyl's inequality: no eigenvalue is off by more
        self._least: Array = self._spectrum - self.rounding * spectrum[-1]
        self.rank = len(self._spectrum)

    @property
    def singular(self) -> bool:
        """Whether some eigenvalue is rounding."""
        return self.rank < len(self.sizes)

    def inverse_norm(self, g: Array) -> tuple[float, float]:
        """√(gᵀH⁺g), inf if nothing counts, and the length of what H⁺ leaves out, in these units."""
        g = g / self.sizes
        inside = float(np.sum((self._Q.T @ g) ** 2 / self._least)) if self.rank else math.inf
        return math.sqrt(inside), float(np.linalg.norm(self._kernel.T @ g))

    def least(self, in_range: bool = False) -> float:
        """The least eigenvalue of H itself; 0 if it is rounding.

        That of a singular H ``in_range`` is the least one that counts: some minimiser is in the
        complement of the kernel in these units, and one in the orthogonal complement.
        """
        if self.rank == 0 or (self.singular and not in_range):
            return 0.0
        own = np.linalg.eigvalsh(self._H)
        orthogonal = float(own[-self.rank] - self.rounding * own[-1])
        scaled = float(self._least[0] * np.min(self.sizes[self._present] ** 2))
        return max(orthogonal, scaled)

    def sum_of_inverse(self) -> float:
        """The sum of the absolute entries of H⁺ in these units."""
        return float(np.abs((self._Q / self._spectrum) @ self._Q.T).sum())


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
