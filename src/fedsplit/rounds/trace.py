"""What a run leaves behind: one row a round, and the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Incident
from fedsplit.methods.method import State
from fedsplit.rounds.certificate import NOT_ASKED, Certificate

Kind = Literal["setup", "round", "certificate"]

StoppedBy = Literal["certificate", "residual", "method", "rounds", "callback", "diverged"]


class Row(NamedTuple):
    """One round: one question to every client. A message beyond its size is spread over several rows.

    objective : F(x) after the round, a measurement that is not counted as communication.
    residual : ‖z⁺ - z‖ of the method's own variable; not a number in a set-up or certificate round.
    error : the largest proved prox error of a client, Theorem 1's b.
    floats_up, floats_down : floats received from and sent to all clients.
    answered : how many clients answered.
    seconds : time spent, without the measurement of the objective.
    kind : "setup", "round" or "certificate".
    margin : the smallest b_i a_iᵀx of a classifier at the round's first x: above zero, the classes are separable. Not a
        number for other losses, or where a client did not answer.
    latency : seconds from the question to each client's answer, by name, of those who answered; None where the clients
        are in this process.
    """

    objective: float
    residual: float
    error: float
    floats_up: int
    floats_down: int
    answered: int
    seconds: float
    kind: Kind
    margin: float = math.nan
    latency: Mapping[str, float] | None = None


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

    @property
    def latency(self) -> dict[str, Array]:
        """By client, the seconds to its answer in every round, not a number where it gave none."""
        names = dict.fromkeys(name for row in self.rows for name in row.latency or ())
        return {
            name: np.array([(row.latency or {}).get(name, np.nan) for row in self.rows])
            for name in names
        }

    def _column(self, name: str) -> NDArray[Any]:
        return np.array([getattr(row, name) for row in self.rows])


@dataclass(frozen=True)
class Result:
    """The answer and how it came about.

    x : the answer, (d,).
    rounds : questions asked of every client, set-up and certificate included.
    converged : whether the tolerance was reached, or the method did all it promised, and every client was heard.
    stopped_by : "certificate" (the proved gap is within the tolerance), "residual" (the iterate no longer moves),
        "method" (it had done all it promised), "rounds" (budget spent), "callback", or "diverged".
    state : the method's state; pass it as ``state=`` to go on from here.
    trace : one row a round.
    certificate : proved bounds on F(x) - F* and ‖x - x*‖, or why there are none.
    absent : the clients that never answered.
    removed : by name, those that were given up; x then minimises the sum of the others' costs.
    incidents : what went wrong with answers of clients elsewhere.
    notes : what the method could not do for this problem.
    """

    x: Array
    rounds: int
    converged: bool
    stopped_by: StoppedBy
    state: State
    trace: Trace
    certificate: Certificate = NOT_ASKED
    absent: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()

    @property
    def step(self) -> float | Array:
        """The step s in use at the end: a number, or one for each coordinate."""
        return self.state.s


class Diverged(ArithmeticError):
    """The iterates grew without bound or stopped being numbers.

    Attributes
    ----------
    round : int
        The round in which it was noticed.
    cause : str
        The likely cause, with what to do about it.
    result : Result
        Everything computed before that round.
    """

    def __init__(self, what: str, cause: str, result: Result) -> None:
        self.what = what
        self.round = result.rounds + 1
        self.cause = cause
        self.result = result
        super().__init__(f"{what} in round {self.round}; likely cause: {cause}")

    def __reduce__(self) -> tuple[type[Diverged], tuple[str, str, Result]]:
        return Diverged, (self.what, self.cause, self.result)
