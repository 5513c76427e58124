"""The choice between FedSplit's variants: Algorithm 1, or its acceleration."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from fedsplit.arrays import Array, Mask
from fedsplit.checks import instance
from fedsplit.clients.oracle import Clients
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.accelerated import AcceleratedFedSplit, AcceleratedState
from fedsplit.methods.accelerator import Accelerator, NoAcceleration
from fedsplit.methods.adapt import Adapt
from fedsplit.methods.fedsplit import FedSplitState, PlainFedSplit
from fedsplit.methods.method import NUMERICAL_HAZARD, average, check_settings
from fedsplit.methods.secants import Secants
from fedsplit.penalties.penalty import Penalty


@dataclass(frozen=True)
class FedSplit:
    """FedSplit. Its fixed points minimise F for every s > 0 (Proposition 3).

    With ``accelerate`` and ``adapt`` None it is the paper's Algorithm 1, which is
    ``FedSplit.plain(step, prox)``. As it comes, the same iteration uses what the server has seen of
    the clients' curvature, and a step that follows it.

    Parameters
    ----------
    step : float, optional
        s. With ``adapt=None`` it is fixed, and None is Theorem 1's 1/√(ℓ*L*), or 1/L* if ℓ* = 0.
        With adaptation it is the first step, and None takes it from the clients' curvature at the
        start; if the coordinates get their own steps it is their geometric mean.
    prox : ProxSolver, optional
        The local solver. None is ``NewtonProx()``, which solves only as accurately as the round
        needs, and ``ExactProx()`` for Algorithm 1.
    accelerate : Secants, Anderson or None
        How the server uses earlier answers; None is the plain step.
    adapt : Adapt or None
        How the step follows the curvature seen; None keeps it.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    prox: ProxSolver | None = None
    accelerate: Accelerator | None = field(default_factory=Secants)
    adapt: Adapt | None = field(default_factory=Adapt)
    penalty: Penalty | None = None

    settles: ClassVar[bool] = True
    newton_may_finish: ClassVar[bool] = True

    @classmethod
    def plain(cls, step: float | None = None, prox: ProxSolver | None = None) -> FedSplit:
        """The paper's method: no acceleration, a fixed step."""
        return cls(step, prox, accelerate=None, adapt=None)

    def __post_init__(self) -> None:
        check_settings("FedSplit", self.step, self.prox, self.penalty)
        if self.accelerate is not None:
            instance("FedSplit: accelerate", self.accelerate, "Secants() or Anderson()", "propose")
        if self.adapt is not None:
            instance("FedSplit: adapt", self.adapt, "Adapt()", "follow")

    @property
    def _plain(self) -> bool:
        return self.accelerate is None and self.adapt is None

    @cached_property
    def _accelerated(self) -> AcceleratedFedSplit:
        accelerate = self.accelerate or NoAcceleration()
        return AcceleratedFedSplit(self.step, self.prox, accelerate, self.adapt, self.penalty)

    @cached_property
    def variant(self) -> PlainFedSplit | AcceleratedFedSplit:
        """The method that runs."""
        if self._plain:
            return PlainFedSplit(self.step, self.prox or ExactProx(), self.penalty)
        return self._accelerated

    @property
    def hazard(self) -> str:
        # The solvers that take a step per coordinate are Newton's, which leave no error to blame.
        prox = self.variant.prox
        if getattr(prox, "per_coordinate", prox is None):
            return NUMERICAL_HAZARD
        return (
            "the local solver is too inexact for this start: use ExactProx(), "
            "GradientProx(start='broadcast') with its default step, or more inner steps"
        )

    @property
    def state_type(self) -> type[FedSplitState] | type[AcceleratedState]:
        return self.variant.state_type

    # A state is that of the variant: FedSplitState or AcceleratedState.

    def start(self, clients: Clients, x0: Array) -> Any:
        return self.variant.start(clients, x0)

    def update(self, clients: Clients, state: Any) -> Any:
        return self.variant.update(clients, state)

    def resume(
        self, state: Any, gradients: Array | None = None, hessians: Array | None = None
    ) -> Any:
        """The state to continue from under this method's penalty; no client is asked.

        What the server knows of the clients' costs stays, and x is at once the minimiser of their
        models with this penalty. The clients' gradients and Hessians at ``state.x``, (m, d) and
        (m, d, d), make the models exact there if they are known.
        """
        if self._plain:
            return state._replace(x=average(state.z, state.s, self.penalty))
        return self._accelerated.resume(state, gradients, hessians)

    def remaining(self, state: Any, kept: Mask) -> Any:
        """The state to continue from with the clients kept, (m,), after others were removed."""
        if self._plain:  # rows that stay would keep pulling at x
            return self.resume(state._replace(z=state.z[kept]))
        return self._accelerated.remaining(state, kept)
