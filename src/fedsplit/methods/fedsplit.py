"""FedSplit: the paper's Algorithm 1.

After a round the server has of client j a point p_j and the gradient y_j = ∇f_j(p_j). With any
positive definite B_j and M its step and its next questions could be

    x⁺  = argmin_x g(x) + Σ_j ⟨y_j, x - p_j⟩ + ½(x - p_j)ᵀB_j(x - p_j),
    v_j = x⁺ + M⁻¹(y_j + B_j(x⁺ - p_j)),

where client j answers p_j = argmin_u f_j(u) + ½‖u - v_j‖²_M: at a fixed point p_j = x for all j,
Σ_j ∇f_j(x) ∈ -∂g(x), and x minimises F + g. ``FedSplit``, here, has B_j = M = I/s, so that nothing
is sent but p_j; in ``FedSplitInformation`` the clients send B_j = ∇²f_j(p_j).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.arrays import Array, Mask, length, namespace
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Reflection
from fedsplit.dialogue import Dialogue
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.method import (
    StepMethod,
    average,
    extreme_curvature,
    step_from,
    subgradient_of_average,
    with_papers_step,
)
from fedsplit.penalties.penalty import Penalty, prox_or_same
from fedsplit.theory import fedsplit_step


class FedSplitState(NamedTuple):
    """The server's x, (d,); the clients' z_j as rows of z, (m, d); the step s.

    Beside them the local solver, if it depends on the curvature of all clients, notes, and ‖z⁺ - z‖
    of the last round, if the clients have told it.
    """

    x: Array
    z: Array
    s: float
    prox: ProxSolver | None = None
    notes: tuple[str, ...] = ()
    moved: float = math.nan


@dataclass(frozen=True)
class FedSplit(StepMethod[FedSplitState]):
    """Algorithm 1: Peaceman-Rachford splitting between the clients' costs and their agreement.

    At a fixed point z_j = x - s∇f_j(x), and x minimises F + g, for every s > 0 (Proposition 3); the
    penalty g is 0 in the paper. An absent client keeps its z_j.

    Parameters
    ----------
    step : float, optional
        s. None is Theorem 1's 1/√(ℓ*L*), or 1/L* if ℓ* = 0. If some L_j has no bound that holds for
        every x, the curvature at the start takes its place, and a note says so.
    prox : ProxSolver, optional
        The local solver; None is ``ExactProx()``.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    prox: ProxSolver | None = None
    penalty: Penalty | None = None

    newton_may_finish = True
    device = "arrays"
    state_type = FedSplitState

    def start(self, x0: Array, m: int) -> Dialogue[FedSplitState]:
        s = self.step
        notes: tuple[str, ...] = ()
        prox = yield from with_papers_step(self.prox, x0)
        if s is None:
            bounds = yield from extreme_curvature(x0)
            s = step_from(bounds, fedsplit_step)
            if not bounds.everywhere:
                notes = (
                    f"step {s:.4g}: from the curvature at the start, as no bound on the clients' "
                    "curvature holds everywhere; pass step= to choose it yourself",
                )
        z = namespace(x0).tile(x0, (m, 1))
        return FedSplitState(average(z, s, self.penalty), z, float(s), prox, notes)

    def update(self, state: FedSplitState) -> Dialogue[FedSplitState]:
        x, z, s, prox, notes, _ = state
        # 1a. local prox step, prox_{s f_j}(2x - z_j); 1b. local centring step
        answer: Answer = yield Reflection(x, z, s, prox or self.prox or ExactProx())
        z = answer.rows_or(z)
        known = answer.summary
        if known is None:  # 2. global average
            return FedSplitState(average(z, s, self.penalty), z, s, prox, notes)
        x = prox_or_same(self.penalty, known.mean, s / z.shape[0])
        return FedSplitState(x, z, s, prox, notes, known.moved)

    @property
    def hazard(self) -> str:
        if self.prox is None or isinstance(self.prox, ExactProx):
            return super().hazard
        return (
            "the local solver is too inexact for this start: use ExactProx(), "
            "GradientProx(start='broadcast') with its default step, or more inner steps"
        )

    def described(self) -> str:
        return f"FedSplit, the paper's Algorithm 1, with {type(self.prox or ExactProx()).__name__}"

    def iterate(self, state: FedSplitState) -> Array:
        return state.z

    def residual(self, before: FedSplitState, after: FedSplitState) -> float:
        return length(after.z - before.z) if math.isnan(after.moved) else after.moved

    def subgradient(self, state: FedSplitState) -> Array:
        return subgradient_of_average(state.x, state.z, state.s)

    def notes(self, state: FedSplitState) -> tuple[str, ...]:
        return state.notes

    def without(self, state: FedSplitState, kept: Mask) -> FedSplitState:
        z = state.z[kept]  # rows that stayed would keep pulling at x
        return state._replace(x=average(z, state.s, self.penalty), z=z)
