"""What a run leaves behind: one row a round, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.methods.method import State


class Row(NamedTuple):
    """One round: one question to every client.

    objective : F(x) after the round, a measurement that is not counted as communication.
    residual : ‖z⁺ - z‖ of the method's own variable; not a number in a set-up round.
    error : the largest proved prox error of a client, Theorem 1's b.
    floats_up, floats_down : floats received from and sent to all clients.
    answered : how many clients answered.
    seconds : time spent, without the measurement of the objective.
    kind : "setup" or "round".
    """

    objective: float
    residual: float
    error: float
    floats_up: int
    floats_down: int
    answered: int
    seconds: float
    kind: Literal["setup", "round"]


@dataclass
class Trace:
    """The rows of a run, and its columns as arrays of one entry a round; ``objective`` has one more, for the start."""

    start: float
    rows: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def objective(self) -> Array:
        return np.array([self.start, *self._column("objective")])

    @property
    def residual(self) -> Array:
        return self._column("residual")

    @property
    def error(self) -> Array:
        return self._column("error")

    @property
    def floats_up(self) -> NDArray[np.int64]:
        return self._column("floats_up")

    @property
    def floats_down(self) -> NDArray[np.int64]:
        return self._column("floats_down")

    @property
    def answered(self) -> NDArray[np.int64]:
        return self._column("answered")

    @property
    def seconds(self) -> Array:
        return self._column("seconds")

    @property
    def kind(self) -> NDArray[np.str_]:
        return self._column("kind")

    def _column(self, name: str) -> NDArray[Any]:
        return np.array([getattr(row, name) for row in self.rows])


@dataclass(frozen=True)
class Result:
    """The answer and how it came about.

    x : the answer, (d,).
    rounds : questions asked of every client, set-up included.
    converged : whether the tolerance was reached, or the method did all it promised.
    stopped_by : "residual" (tolerance reached), "method" (it had done all it promised), "rounds" (budget spent),
        "callback", or "diverged".
    state : the method's state; pass it as ``state=`` to go on from here.
    trace : one row a round.
    """

    x: Array
    rounds: int
    converged: bool
    stopped_by: Literal["residual", "method", "rounds", "callback", "diverged"]
    state: State
    trace: Trace

    @property
    def step(self) -> float:
        """The step s in use at the end."""
        return self.state.s
