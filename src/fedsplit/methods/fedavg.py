"""FedAvg and FedSGD as published: local steps with minibatches, then the average (§2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedsplit.arrays import Array, column_means
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Descend, StochasticDescend
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.methods.method import StepMethod, choose_step
from fedsplit.theory import batch_step, fedgd_step


class FedAvgState(NamedTuple):
    """The server's average x, (d,), the first step s, and the number of rounds so far."""

    x: Array
    s: float
    round: int


@dataclass(frozen=True)
class FedAvg(StepMethod[FedAvgState]):
    """Stochastic gradient steps at the clients from the average, then the average of those.

    With batches drawn independently at each step and a constant step, the mean of x is that of
    FedGD on least squares: it settles at the fixed point of Proposition 1, which is not the optimum
    for more than one local step, and x hovers around that. With falling steps it converges to the
    optimum.

    Parameters
    ----------
    step : float, optional
        The first step s. None is 1/ℒ* with the largest expected smoothness of a client's batches,
        or FedGD's 2/(ℓ* + L*) with all rows.
    local_steps : int
        e; 1 is FedSGD.
    batch : int, optional
        The number B of rows in a batch, whose gradient is multiplied by n_j/B. None is all rows.
    clients : float
        The share of the clients that is drawn in each round; the average is over them.
    epochs : int, optional
        So many passes over a client's rows in random order, in batches of B, in the place of
        ``local_steps``.
    decay : float
        The step in round t = 0, 1, … is s/(1 + decay·t).
    """

    step: float | None = None
    local_steps: int = 1
    batch: int | None = None
    clients: float = 1.0
    epochs: int | None = None
    decay: float = 0.0

    device = "arrays"
    state_type = FedAvgState
    may_be_zero = ("decay",)
    hazard = "the step is too large for this batch: pass a smaller step"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clients > 1.0:
            raise InputError(f"FedAvg: clients must be a share, at most 1, not {self.clients!r}")
        if self.epochs is not None and self.local_steps != 1:
            raise InputError("FedAvg: pass local_steps or epochs, not both")

    def start(self, x0: Array, m: int) -> Dialogue[FedAvgState]:
        rule = fedgd_step if self.batch is None else batch_step
        s = yield from choose_step(self.step, rule, x0, self.batch)
        return FedAvgState(x0, s, 0)

    def update(self, state: FedAvgState) -> Dialogue[FedAvgState]:
        x, s, t = state
        step, steps = s / (1.0 + self.decay * t), self.epochs or self.local_steps
        question: Any = Descend(x, step, steps)
        if self.batch is not None:
            question = StochasticDescend(x, step, steps, self.batch, self.epochs is not None)
        answer: Answer = yield question
        if answer.present.any():  # the average is over those who were drawn
            x = column_means(answer.present_rows())
        return FedAvgState(x, s, t + 1)

    @property
    def drawn(self) -> float:
        return self.clients
