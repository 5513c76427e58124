"""The result of a run, also of one that diverged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Incident
from fedsplit.methods.method import State
from fedsplit.rounds.certificate import NOT_ASKED, Certificate
from fedsplit.rounds.trace import Trace

StoppedBy = Literal["certificate", "residual", "method", "rounds", "callback", "diverged"]


@dataclass(frozen=True)
class Result:
    """The minimiser that a run found, and how it found it.

    Attributes
    ----------
    x : (d,) array
        The minimiser.
    rounds : int
        Questions asked of every client, set-up and certificate included.
    converged : bool
        Whether the tolerance was reached, or the method did all it promised, and every client was
        heard.
    stopped_by : str
        "certificate" (the proved gap is within the tolerance), "residual" (the iterate no longer
        moves), "method" (it had done all it promised), "rounds" (the budget is spent), "callback",
        or "diverged".
    state : State
        The method's state; pass it as ``state=`` to go on from here.
    trace : Trace
        One row per round.
    certificate : Certificate
        Proved bounds on F(x) - F* and ‖x - x*‖, or why there are none.
    absent : tuple of int
        The clients that never answered.
    notes : tuple of str
        What the method could not do for this problem.
    removed : tuple of str
        By name, the clients that were given up; x then minimises the sum of the others' costs.
    incidents : tuple of Incident
        What went wrong with answers of clients elsewhere.
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

    def __repr__(self) -> str:
        x = np.array2string(self.x, threshold=6, edgeitems=3, precision=6)
        return (
            f"Result(x={x}, rounds={self.rounds}, converged={self.converged}, "
            f"stopped_by={self.stopped_by!r}, gap={self.certificate.gap})"
        )

    @property
    def step(self) -> float | Array:
        """The step s at the end: a number, or one per coordinate, (d,)."""
        return self.state.s


class Diverged(ArithmeticError):
    """The iterates grew without bound or stopped being numbers.

    Attributes
    ----------
    what : str
        What showed it.
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
