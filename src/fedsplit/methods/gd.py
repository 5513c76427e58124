"""GD: gradient descent on F, one gradient of every client a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Answer
from fedsplit.errors import InputError
from fedsplit.methods.fedgd import AverageState
from fedsplit.methods.method import check_step
from fedsplit.theory import fedgd_step


@dataclass(frozen=True)
class GD:
    """Gradient descent: x ← x - s Σ_j ∇f_j(x). Every client must answer in every round.

    Parameters
    ----------
    step : float, optional
        s. None is 2/(Σℓ_j + ΣL_j), or 1/ΣL_j where Σℓ_j = 0. Where some L_j is not known for every x, the curvature
        at the start stands in, and the step may be too large elsewhere.
    """

    step: float | None = None

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[AverageState]] = AverageState

    def __post_init__(self) -> None:
        check_step("GD", self.step)

    @property
    def hazard(self) -> str:
        return "the step is above 2/L of the sum F: pass a smaller step"

    def start(self, clients: Clients, x0: Array) -> AverageState:
        s = fedgd_step(*pooled_curvature("GD", clients, x0)) if self.step is None else self.step
        return AverageState(x0, s)

    def update(self, clients: Clients, state: AverageState) -> AverageState:
        x, s = state
        return AverageState(x - s * total("GD", clients.gradient(x)), s)


def total(name: str, answer: Answer) -> Array:
    """Σ_j of the rows of an answer."""
    rows: Array = array_namespace(answer.rows).sum(complete(name, answer), axis=0)
    return rows


def complete(name: str, answer: Answer) -> Array:
    """The rows of every client: a sum without one of them is that of another F."""
    if not array_namespace(answer.rows).all(answer.present):
        raise InputError(
            f"{name} needs every client's answer in every round: use a method that does not, as FedSplit"
        )
    return answer.rows


def curvatures(name: str, clients: Clients, x0: Array) -> Array:
    """ℓ_j and L_j, (m, 2); those at x0 where some L_j is not known for every x."""
    xp = array_namespace(x0)
    rows = complete(name, clients.curvature())
    if not xp.all(xp.isfinite(rows)):
        rows = complete(name, clients.curvature(x0))
    if not (xp.all(xp.isfinite(rows)) and xp.max(rows[:, 1]) > 0):
        raise InputError(
            f"{name}: no step follows from curvatures L_j up to {float(xp.max(rows[:, 1])):g}: pass step="
        )
    return rows


def pooled_curvature(name: str, clients: Clients, x0: Array) -> tuple[float, float]:
    """Σℓ_j and ΣL_j, bounds for the Hessian of F."""
    ell, L = array_namespace(x0).sum(curvatures(name, clients, x0), axis=0)
    return float(ell), float(L)
