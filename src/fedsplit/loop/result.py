"""The result of a run, also of one that diverged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients, Incident
from fedsplit.clients.questions import Value
from fedsplit.loop.certificate import NOT_ASKED, Certificate
from fedsplit.loop.trace import Trace
from fedsplit.penalties.penalty import Penalty, prox_or_same

StoppedBy = Literal["certificate", "residual", "method", "rounds", "callback", "diverged"]


class ProblemOrigin(NamedTuple):
    """What a problem shows at one x, by which another problem is recognised."""

    # (m,): f_j(x); None of clients elsewhere, which are not asked for a measurement alone
    values: Array | None
    # (k,): points of the penalty's prox near and far from x, one after the other; empty without one
    penalty: Array

    @classmethod
    def at(cls, x: Array, clients: Clients, penalty: Penalty | None) -> ProblemOrigin:
        """What these clients and this penalty show at x, (d,)."""
        values = None
        if clients.free and clients.on_device:  # a million numbers would be too many to keep
            values = np.array([clients.objective(clients.vector(x))])
        elif clients.free:
            values = clients.ask(Value(x)).rows
        # near and far, as penalties of one kind may differ in a threshold or a bound alone
        shifts = () if penalty is None else (-1e3, -1.0, 1e-3, 1.0, 1e3)
        points = [prox_or_same(penalty, x + by, t) for by in shifts for t in (1e-3, 1.0)]
        return cls(values, np.concatenate([np.zeros(0), *points]))

    def is_that_of(self, other: ProblemOrigin) -> bool:
        """Whether it is the same problem but for rounding, as far as both show."""
        # clients elsewhere show nothing, which must not keep a run from going on
        shown = [
            (a, b) for a, b in zip(self, other, strict=True) if a is not None and b is not None
        ]
        return all(
            a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=0, equal_nan=True)
            for a, b in shown
        )


@dataclass(frozen=True)
class RunState:
    """Where a run ended: pass it as ``state=`` to go on from there.

    Attributes
    ----------
    inner : Any
        The method's own state.
    origin : ProblemOrigin or None
        Identifies the problem: on another one the state would lead nowhere. None if not known.
    asked : int
        How many questions had been asked: what is drawn next depends on that number.
    """

    inner: Any
    origin: ProblemOrigin | None
    asked: int

    @property
    def x(self) -> Array:
        """The server's point, (d,)."""
        result: Array = self.inner.x
        return result


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
    state : RunState
        Where the run ended; pass it as ``state=`` to go on from here.
    method : str
        What ran, in words.
    step : float or array
        The step s at the end: a number, one per coordinate, (d,), or nan if there is none.
    trace : Trace
        One row per round.
    certificate : Certificate
        Proved bounds on F(x) - F* and ‖x - x*‖, or why there are none.
    absent : tuple of int
        The clients that never answered.
    notes : tuple of str
        First, if so, that the run did not converge; what ran and why; and what the method could
        not do for this problem.
    removed : tuple of str
        By name, the clients that were given up; x then minimises the sum of the others' costs.
    incidents : tuple of Incident
        What went wrong with answers of clients elsewhere.
    """

    x: Array
    rounds: int
    converged: bool
    stopped_by: StoppedBy
    state: RunState
    trace: Trace
    method: str
    step: float | Array
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

    # an exception is pickled by the arguments of its message, which these are not
    def __reduce__(self) -> tuple[type[Diverged], tuple[str, str, Result]]:
        return Diverged, (self.what, self.cause, self.result)
