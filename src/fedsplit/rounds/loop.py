"""The one loop: rounds of a method, recorded, until a rule, a callback or the method ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedsplit.arrays import Array, length
from fedsplit.clients.delayed import DelayedClients, Latency
from fedsplit.clients.metered import Exchange, Kept, MeteredClients
from fedsplit.clients.oracle import Clients, Removed
from fedsplit.clients.sampled import SampledClients
from fedsplit.clients.seeded import SeededClients
from fedsplit.clients.stacked import QUIET
from fedsplit.device.backend import to_host
from fedsplit.methods.method import Method, State
from fedsplit.penalties.penalty import Penalty
from fedsplit.rounds.certificate import NOT_ASKED, Certificate
from fedsplit.rounds.divergence import Divergence
from fedsplit.rounds.origin import asked_until
from fedsplit.rounds.result import Diverged, Result, StoppedBy
from fedsplit.rounds.trace import Kind, Row, Trace
from fedsplit.threads import one_blas_thread

Callback: TypeAlias = Callable[[Row, State], object]


AHEAD = 2
"""How many rounds a device may be ahead of the host that reads their numbers. F after a round comes
with the answers of the next one, and the device is not to wait while the host looks at them."""


class OpenRound(NamedTuple):
    """A round that was made, and whose numbers have not been read.

    Attributes
    ----------
    before, after : State
    kept : sequence of Kept
        The answers to its questions.
    began : float
        When it began, by ``time.perf_counter``.
    """

    before: State
    after: State
    kept: Sequence[Kept]
    began: float


class StoppingRule:
    """Decides when a run ends, and says what is proved at its end.

    This one spends the whole budget and proves nothing. Others may ask the clients.
    """

    def begin(self, run: Run) -> None:
        """Prepare for a run, or for the rest of one with fewer clients, and set ``run.limit``."""
        run.limit = run.rounds

    def look(self, run: Run, before: State, residual: float) -> StoppedBy | None:
        """Why the run stops after the last round; None if it goes on.

        Parameters
        ----------
        run : Run
        before : State
            The state before the round; that after it is ``run.state``.
        residual : float
            ‖z⁺ - z‖ of the round.
        """
        return None

    def finish(self, run: Run, stopped_by: StoppedBy) -> StoppedBy | None:
        """Have the last word when ``run.limit`` is reached, or the method is done.

        Returns why the run stops; None if it goes on all the same, with another limit or method.
        """
        return stopped_by

    def conclude(self, run: Run, stopped_by: StoppedBy) -> tuple[Certificate, bool]:
        """What is proved at ``run.state``, and whether the tolerance is reached."""
        return NOT_ASKED, stopped_by == "method"


class Run:
    """One run of a method.

    Parameters
    ----------
    clients : Clients
    method : Method
        With the penalty.
    rule : StoppingRule
    rounds : int
        The budget.
    penalty : Penalty, optional
        Added to the objective that is recorded.
    participation : float
        The share of the clients that answer each question.
    seed : int
        Random seed of the participation, and of what clients draw.
    callbacks : sequence of callables
        Each is called as ``callback(row, state)`` after every round, and stops the run if it
        returns something true.
    asynchronous : Latency or bool
        How long clients take to answer, by a simulated clock; True in real time.

    Attributes
    ----------
    state : State
        The method's state after the last round.
    trace : Trace
        All rounds so far.
    limit : int
        The number of rounds after which the rule has its last word.
    meter : MeteredClients
        The clients as the method asks them. A rule that asks them says so with ``count_as``, and
        records it with ``record``.
    measured : bool
        Whether the last objective is the sum over all clients.
    divergence : Divergence
        What is known of the run's moves.
    """

    state: State
    meter: MeteredClients
    divergence: Divergence

    def __init__(
        self,
        clients: Clients,
        method: Method[Any],
        rule: StoppingRule,
        rounds: int,
        penalty: Penalty | None = None,
        participation: float = 1.0,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
        asynchronous: Latency | bool = False,
    ) -> None:
        self.clients = clients
        self.method = method
        self.rule = rule
        self.rounds = rounds
        self.limit = rounds
        self.penalty = penalty
        self.trace = Trace(np.nan)
        self.measured = True
        self._participation = participation
        self._seed = seed
        self._asynchronous = asynchronous
        self._callbacks = callbacks
        self._removed: tuple[str, ...] = ()
        self._earlier = 0  # questions before the state that the run goes on from
        # Rounds whose numbers have not been read, oldest first, and when the last one was.
        self._open: list[OpenRound] = []
        self._closed = 0.0
        # The clients that still take part, by their number at the start.
        self._numbers = np.arange(clients.m)
        self._earlier_incidents = len(clients.incidents)
        # Whether there is more than a set-up, which would be repeated without removed clients.
        self._begun = False
        self.count_as("setup")

    @property
    def subgradient(self) -> Array | None:
        """The penalty's at the x of the state, (d,); None without a penalty."""
        if self.penalty is None:
            return None
        return getattr(self.state, "subgradient", None)

    @property
    def asked(self) -> int:
        """How many questions the method has asked, those before its first state included."""
        return self._seeded.number

    @property
    def objective(self) -> float:
        """F(x), as measured last."""
        if self.trace.rows:
            return self.trace.rows[-1].objective
        return self.trace.start

    def go(self, start: Array, state: State | None = None) -> Result:
        """Run from a state, or else from the method's set-up at ``start``.

        When clients are removed, the run goes on with the others from where it is.
        """
        if state is not None:
            self.state = state
            self._begun = True
            self._earlier = asked_until(state)
        with one_blas_thread(), np.errstate(**QUIET):
            while True:
                self._count_anew()
                self.rule.begin(self)
                try:
                    if not self.trace.rows:
                        self.trace.start = self._measure(start)
                    self.divergence = Divergence(self.trace.start)
                    if not self._begun:
                        self.start_with(self.method, start)
                    stopped_by = None
                    while stopped_by is None:
                        stopped_by = self._advance()
                    return self._result(stopped_by)
                except Removed as gone:
                    if self._begun:
                        start = self.state.x
                    self._remove(gone.names)

    def start_with(self, method: Method[Any], x: Array) -> None:
        """Begin, or go on, with the set-up of a method at x."""
        self.method = method
        self._earlier = 0
        self._count_anew()
        self.count_as("setup")
        self.state = method.start(self.meter, x)
        if self.meter.waiting:
            self.record(self._measure(self.state.x))

    def count_as(self, kind: Kind) -> None:
        """Count the questions that follow as rounds of this kind, and time them."""
        self._kind = kind
        self._began = time.perf_counter()

    def record(self, objective: float) -> None:
        """Record what ``meter`` was asked since the last record, one row per question.

        The last row has the new objective, and the server's own time.
        """
        elapsed = time.perf_counter() - self._began
        self._write(self.meter.take(), self._kind, elapsed, objective)

    def _write(
        self,
        rounds: Sequence[Exchange],
        kind: Kind,
        elapsed: float,
        objective: float,
        residual: float = np.nan,
    ) -> None:
        """Add rows to the trace: the last has the objective, the residual, and the time left."""
        if not rounds:
            return
        *earlier, last = rounds
        self.trace.rows += [Row.of(each, kind, self.objective) for each in earlier]
        server = max(0.0, elapsed - sum(each.seconds for each in rounds))
        last = last._replace(seconds=last.seconds + server)
        self.trace.rows.append(Row.of(last, kind, objective, residual))

    def _count_anew(self) -> None:
        """Count the method's questions from zero."""
        asked = self.clients
        if getattr(self.method, "unanimous", False):
            asked = asked.insistent()
        if self._asynchronous is True:
            asked = asked.asynchronously()
        self._seeded = SeededClients(asked, self._seed, self._earlier)
        asked = self._seeded
        own = getattr(self.method, "clients", 1.0)
        if self._participation < 1:
            share = self._participation
            asked = SampledClients(asked, share, self._seed, earlier=self._earlier)
        elif own < 1:  # a method that draws clients itself
            asked = SampledClients(asked, own, self._seed, False, self._earlier)
        if isinstance(self._asynchronous, Latency):
            asked = DelayedClients(asked, self._asynchronous, self._seed)
        self.meter = MeteredClients(asked)

    def _advance(self) -> StoppedBy | None:
        """One more round; why the run stops, or None."""
        if len(self.trace) + len(self._open) >= self.limit:
            return self._close(0) or self.rule.finish(self, "rounds")
        before = self._open[-1].after if self._open else self.state
        self.count_as("round")
        began = self._began
        try:
            after = self.method.update(self.meter, before)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            stopped_by = self._close(0)
            if stopped_by is not None:  # the run ended before this round
                return stopped_by
            sign = f"the arithmetic left float64 ({error})"
            raise Diverged(sign, self.method.hazard, self._result("diverged")) from None
        if after is None:
            return self._close(0) or self.rule.finish(self, "method")
        self._open.append(OpenRound(before, after, self.meter.release(), began))
        return self._close(AHEAD if self.clients.tells_values else 0)

    def _close(self, left: int) -> StoppedBy | None:
        """Read and record the oldest rounds, until so many are open; why the run stops, or None.

        The state is that of the last round that was closed. Where the run stops, or proofs have
        used up the budget, the rounds that are still open do not count.
        """
        while len(self._open) > left:
            stopped_by = self._close_one(self._open.pop(0))
            self._closed = time.perf_counter()
            if stopped_by is not None or len(self.trace) >= self.limit:
                self._open.clear()
                return stopped_by
        return None

    def _close_one(self, done: OpenRound) -> StoppedBy | None:
        before, after, kept, began = done
        residual = length(after.iterate - before.iterate)
        rounds = [each.read() for each in kept]
        elapsed = time.perf_counter() - max(began, self._closed)
        objective = self._objective(after)
        if self.meter.present.any():
            moved = residual
            if getattr(after, "evidence", None) is not None and np.isfinite(residual):
                moved = 0.0  # x has, the iterate is a proposal that is refused if F rises there
            sign = self.divergence.sign(before.iterate, moved, objective, self.measured)
            if sign:
                self._open.clear()
                raise Diverged(sign, self.method.hazard, self._result("diverged"))
        self.state = after
        self._begun = True
        self._write(rounds, "round", elapsed, objective, residual)
        row = self.trace.rows[-1]
        stops = [bool(callback(row, after)) for callback in self._callbacks]
        stopped_by = self.rule.look(self, before, residual)
        if stopped_by is None and any(stops):
            return "callback"
        return stopped_by

    def _objective(self, after: State) -> float:
        """F after a round: as the next one's answers tell it, if they do."""
        if self._open:
            told = self._open[0].kept[0].answer.objective
            if told is not None:
                self.measured = True
                return told
        return self._measure(after.x, getattr(after, "values", None))

    def _remove(self, names: Sequence[str]) -> None:
        """Leave these clients out, also of the state, if the method can do that."""
        self.record(self.objective)  # what was answered before the run was interrupted
        kept = np.array([name not in names for name in self.clients.names or ()])
        self.clients = self.clients.without(names)
        self._removed = (*self._removed, *names)
        self._numbers = self._numbers[kept]
        remaining = getattr(self.method, "remaining", None)
        if remaining is None:
            self._begun = False
        elif self._begun:
            self.state = remaining(self.state, kept)

    def _measure(self, x: Array, values: Array | None = None) -> float:
        """F(x) with the penalty; nan where it is not known, which is no sign of divergence.

        Nobody is asked if the f_j(x), ``values``, came with an answer. Remote clients are not asked
        for a measurement alone.
        """
        self.measured = values is not None
        if values is None:
            if not self.clients.free or self._asynchronous is True:
                return np.nan  # who is at work on another question would have to be waited for
            paused = time.perf_counter()
            value = self.clients.objective(x)
            self._began += time.perf_counter() - paused  # a measurement is not the run's time
            if value is None:
                return np.nan
            self.measured = True
        else:
            value = float(values.sum())
        if self.penalty is not None:
            value += self.penalty.value(x)
        return value

    def _result(self, stopped_by: StoppedBy) -> Result:
        absent: tuple[int, ...] = ()
        if self.trace.rows and not self.meter.heard.all():
            absent = tuple(self._numbers[~self.meter.heard].tolist())
        certificate, reached = self.rule.conclude(self, stopped_by)
        return Result(
            x=to_host(self.state.x),
            rounds=len(self.trace),
            converged=reached and not absent,
            stopped_by=stopped_by,
            state=self.state,
            trace=self.trace,
            certificate=certificate,
            absent=absent,
            notes=getattr(self.state, "notes", ()),
            removed=self._removed,
            incidents=tuple(self.clients.incidents[self._earlier_incidents :]),
        )
