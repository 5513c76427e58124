"""FedSplit with information: clients tell Hessians, and every answer brings a proof."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask, matvec, packed, unpacked
from fedsplit.clients.local_models import WAY
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import ProofScalars
from fedsplit.errors import InputError
from fedsplit.methods.method import EPS, NUMERICAL_HAZARD
from fedsplit.methods.quadratic import minimise
from fedsplit.methods.semismooth import minimise_coordinatewise
from fedsplit.penalties.penalty import Penalty, check_penalty

FIRST_REACH = 256.0
"""How far clients may go in the first answer at most: almost to their own minimiser."""

REACH = 1.0
"""How far they may go later, in the metric of the mean Hessian."""

SHORTER = 0.25
"""The factor of the reach after a step that F refused."""

SHIFT = 1e-13
"""Added to the diagonal of ΣB_j, relative to it, in case it is singular."""

LARGEST = 2**29
"""The most entries of all clients' Hessians together, m·d²: four gigabytes at the server."""

PRECISION = 1e-12
"""How far the residual of the server's own problem is reduced with a penalty."""


@dataclass(frozen=True, eq=False)
class Models:
    """The second-order expansion of every f_j at its own p_j.

    Attributes
    ----------
    p, y : (m, d) arrays
        The points, and ∇f_j there.
    B : (m, d, d) array
        ∇²f_j there.
    heard : (m,) mask
        Who has answered; the others are taken for the mean of these.
    """

    p: Array
    y: Array
    B: Array
    heard: Mask

    def updated(self, answer: Answer) -> Models:
        """The models after an answer; those of absent clients stay."""
        present = answer.present
        B = unpacked(answer.parts["hessian"])
        B[~present] = self.B[~present]
        own = present[:, None]
        return Models(
            np.where(own, answer.parts["point"], self.p),
            np.where(own, answer.parts["gradient"], self.y),
            B,
            self.heard | present,
        )

    def kept(self, kept: Mask) -> Models:
        """Those of some clients, (m,)."""
        return Models(self.p[kept], self.y[kept], self.B[kept], self.heard[kept])

    def gradients(self, x: Array) -> Array:
        """The gradients of the models at x, (m, d); 0 of clients that were not heard."""
        moved = matvec(self.B, x - self.p)
        return np.where(self.heard[:, None], self.y + moved, 0.0)

    def are_at(self, x: Array) -> bool:
        """Whether all of them are about x, so that they have the gradient of F there."""
        return bool(self.heard.all() and (self.p == x).all())

    @cached_property
    def hessian(self) -> Array:
        """Σ_j B_j, (d, d), as if everyone had been heard."""
        heard = max(1, int(self.heard.sum()))
        H: Array = self.B.sum(axis=0) * (len(self.B) / heard)
        H[np.diag_indices_from(H)] += np.where(np.diag(H) > 0, SHIFT * np.diag(H), 1.0)
        return H


class Evidence(NamedTuple):
    """What every client told about x.

    Attributes
    ----------
    gradients : (m, d) array
        ∇f_j(x).
    spread : (m,) array
        t_j, such that ∇²f_j(x) ⪰ e^(-t_j)B_j.
    hessians : (m, d(d + 1)/2) array
        B_j, or ∇²f_j(x) itself where the loss states no concordance.
    scalars : ProofScalars
    drift : float
        How far Σ_j∇f_j(x) may be from the sum of the gradients, in the norm of
        ``least_hessian``⁻¹.
    """

    gradients: Array
    spread: Array
    hessians: Array
    scalars: ProofScalars
    drift: float = 0.0

    @property
    def least_hessian(self) -> Array:
        """Σ_j e^(-t_j)B_j ⪯ ∇²F(x), (d, d)."""
        return unpacked(np.exp(-self.spread) @ self.hessians)


class InformationState(NamedTuple):
    """What the server knows.

    Attributes
    ----------
    x : (d,) array
        The best point at which everyone was asked.
    subgradient : (d,) array
        Of the penalty at x; 0 without one.
    ahead, slope : (d,) arrays
        The next point, and a subgradient of the penalty there.
    models : Models
    s : float
        The reach; 0 if all clients stay at x.
    still : bool
        Whether the next question has p_j = x, as in Newton's method.
    both : bool
        Whether the next question asks for ∇²f_j(x) too.
    evidence : Evidence or None
        At x; None unless everyone answered.
    """

    x: Array
    subgradient: Array
    ahead: Array
    slope: Array
    models: Models
    s: float
    still: bool = False
    both: bool = False
    evidence: Evidence | None = None

    @property
    def iterate(self) -> Array:
        return self.ahead

    @property
    def values(self) -> Array | None:
        """f_j(x), (m,), where the answers had them."""
        if self.evidence is None:
            return None
        return self.evidence.scalars.value


@dataclass(frozen=True)
class FedSplitInformation:
    """FedSplit in the metric of the pooled curvature, with models that are exact to second order.

    In each round client j tells p_j = argmin_u f_j(u) + ½(u - v_j)ᵀM(u - v_j), y_j = ∇f_j(p_j) and
    B_j = ∇²f_j(p_j), and the server takes

        x⁺ = argmin_x g(x) + Σ_j ⟨y_j, x - p_j⟩ + ½(x - p_j)ᵀB_j(x - p_j),
        v_j = x⁺ + M⁻¹(y_j + B_j(x⁺ - p_j)),    M = Σ_j B_j/m.

    With B_j = M = I/s this is Algorithm 1. A fixed point, p_j = x for all j, minimises F + g for
    every M. In the first round each client takes its own metric, ∇²f_j(x), and goes as far towards
    its own minimiser as its data tell more than noise; x⁺ is then close to the fixed-effect
    meta-analysis of the clients' own estimates.

    Every answer has F and its gradient at the x of the question, so that each round proves how far
    that x is from the optimum. A step that raises F is refused: the next question is at the best
    point on the way, where it is Newton's. Absent clients keep their models.

    A round takes d(d + 1)/2 floats per client both ways, where ``FedSplit`` takes d.

    Parameters
    ----------
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    penalty: Penalty | None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[InformationState]] = InformationState
    hazard: ClassVar[str] = NUMERICAL_HAZARD

    def __post_init__(self) -> None:
        check_penalty(self.penalty)

    def start(self, clients: Clients, x0: Array) -> InformationState:
        """No question; from a start far off, the first answers say whether 0 is a better one."""
        check_size("FedSplitInformation", clients)
        m = clients.m
        d = clients.d
        zeros = np.zeros((m, d))
        unheard = np.zeros(m, dtype=bool)
        models = Models(np.tile(x0, (m, 1)), zeros, np.zeros((m, d, d)), unheard)
        slope = zeros[0]
        if self.penalty is not None:
            slope = np.full(d, np.nan)  # known after the first minimisation
        return InformationState(zeros[0], slope, x0, slope, models, FIRST_REACH)

    def update(self, clients: Clients, state: InformationState) -> InformationState:
        return self.after(state, self.ask(clients, state))

    def after(self, state: InformationState, answer: Answer) -> InformationState:
        """The state after an answer to ``ask``."""
        x = state.ahead
        models = state.models.updated(answer)
        # Of the start those who answered can tell; later an absent one may be why F has to rise.
        comparable = answer.present.all() or not state.models.heard.any()
        if comparable and not self._falls(state, answer):
            return self._refused(state, answer)
        ahead, slope = minimiser(models, x, self.penalty)
        here = state.slope
        if np.array_equal(ahead, x):
            here = slope  # what is known since
        evidence = _evidence(answer)
        both = evidence is not None and not np.isfinite(evidence.spread).all()
        reach = min(REACH, state.s / SHORTER)
        # Quadratics stay at x in any metric, and so does who stayed in the pooled one.
        settled = state.models.heard.all() or bool((answer.parts["norm"] == 0).all())
        if settled and not state.still and models.are_at(x):
            reach = 0.0  # no metric is needed any more
        return InformationState(
            x, here, ahead, slope, models, reach, False, both or state.both, evidence
        )

    def resume(self, state: InformationState) -> InformationState:
        """The state to continue from under this method's penalty; no client is asked."""
        ahead, slope = minimiser(state.models, state.x, self.penalty)
        return state._replace(ahead=ahead, slope=slope, evidence=None)

    def remaining(self, state: InformationState, kept: Mask) -> InformationState:
        """The state to continue from with the clients kept, (m,), after others were removed."""
        return self.resume(state._replace(models=state.models.kept(kept)))

    def ask(self, clients: Clients, state: InformationState) -> Answer:
        """The question of a round."""
        x = state.ahead
        models = state.models
        reach = 0.0 if state.still else state.s
        before = None
        if not np.array_equal(state.x, x):
            before = state.x
        if reach == 0.0 or not models.heard.any():
            return clients.local_model(x, None, None, reach, before, state.both)
        mean = models.hessian / clients.m
        v = x + reach * np.linalg.solve(mean, models.gradients(x).T).T
        return clients.local_model(x, v, packed(mean), reach, before, state.both)

    def _falls(self, state: InformationState, answer: Answer) -> bool:
        """Whether F at the point asked is at most what it was before, to rounding."""
        values = answer.parts["values"][answer.present]
        now = self._value(values[:, 0], state.ahead)
        before = self._value(values[:, -1], state.x)
        return bool(now <= before + 16.0 * EPS * np.abs(values[:, -1]).sum())

    def _value(self, values: Array, x: Array) -> float:
        value = float(np.sum(values))
        if self.penalty is not None:
            value += self.penalty.value(x)
        return float(np.nan_to_num(value, nan=np.inf, posinf=np.inf))

    def _refused(self, state: InformationState, answer: Answer) -> InformationState:
        """Back on the way to the point of least F, with the models that showed the way."""
        way = state.ahead - state.x
        F = [
            self._value(values, state.x + t * way)
            for t, values in zip(WAY, answer.parts["values"][answer.present].T, strict=True)
        ]
        t = WAY[int(np.argmin(F))]
        if t == 0.0 and state.models.are_at(state.x):
            t = WAY[-2]  # Newton's step goes down, however short it has to be
        if not state.models.heard.any():  # the start was worse than 0: a better one
            return state._replace(ahead=state.x + t * way)
        return state._replace(
            ahead=state.x + t * way,
            slope=np.full_like(way, np.nan),  # known again after the next minimisation
            s=SHORTER * min(state.s, REACH),
            still=True,
        )


def minimiser(models: Models, x: Array, penalty: Penalty | None) -> tuple[Array, Array]:
    """The minimiser of all models with the penalty, and a subgradient of the penalty there.

    ``x`` is where the server is.
    """
    H = models.hessian
    g = models.gradients(x).sum(axis=0) * (len(models.heard) / max(1, models.heard.sum()))
    if penalty is None:
        return x - np.linalg.solve(H, g), np.zeros_like(x)
    b = H @ x - g
    scale = np.ones_like(x)
    if getattr(penalty, "coordinatewise", False):
        found = minimise_coordinatewise(H, b, penalty, x, PRECISION)
        if found is not None:
            return found
        scale = 1.0 / np.sqrt(np.diag(H))
    M = scale[:, None] * H * scale
    largest = float(np.linalg.eigvalsh(M)[-1])
    ahead, slope = minimise(M, scale * b, largest, penalty, scale, x, PRECISION)
    return ahead, slope / scale


def _evidence(answer: Answer) -> Evidence | None:
    """What the answer proves at the x of the question; None unless everyone answered."""
    if not answer.present.all():
        return None
    parts = answer.parts
    unknown = np.full(len(answer.present), np.inf)
    nothing = np.zeros(len(answer.present))
    scalars = ProofScalars(
        value=parts["values"][:, 0],
        q=unknown,
        mu=nothing,
        ell=parts["ell"],
        norm=parts["norm"],
        leverage=unknown,
        floor=parts["floor"],
        steady=parts["steady"],
    )
    spread = parts["spread"]
    hessians = parts["hessian"]
    if "hessian_at_x" in parts:
        known = np.isfinite(spread)
        hessians = np.where(known[:, None], hessians, parts["hessian_at_x"])
        spread = np.where(known, spread, 0.0)
    return Evidence(parts["slope"], spread, hessians, scalars)


def check_size(name: str, clients: Clients) -> None:
    """Raise InputError if the clients' Hessians are too large for the server."""
    m = clients.m
    d = clients.d
    if m * d**2 > LARGEST:
        raise InputError(
            f"{name}: {m} Hessians of {d} × {d} numbers are too large for the server: use "
            "FedSplit() or LBFGS(), which ask for vectors"
        )
