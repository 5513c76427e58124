"""The one loop, and ``solve``, which records it and knows when to stop."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import is_dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.checks import count, instance, number
from fedsplit.clients.metered import MeteredClients
from fedsplit.clients.oracle import Clients, Oracle, Removed, clients_of
from fedsplit.clients.sampled import SampledClients
from fedsplit.clients.stacked import QUIET
from fedsplit.errors import InputError
from fedsplit.methods import with_penalty
from fedsplit.methods.method import Method, S, State
from fedsplit.methods.variants import FedSplit
from fedsplit.penalties.penalty import Penalty, check_dimension
from fedsplit.problem import Problem
from fedsplit.rounds.certificate import MOVED, NOT_ASKED, certify
from fedsplit.rounds.result import Diverged, Result, StoppedBy
from fedsplit.rounds.trace import Kind, Row, Trace
from fedsplit.threads import one_blas_thread

GROWTH = 1e9
"""A residual this many times the first one is divergence."""

GROWTH_UPHILL, UPHILL_ROUNDS = 1e3, 10
"""So is one this many times the smallest, at an objective above that of the start, for so many rounds on end."""

ROUGHEST = 1e-6
"""A residual says nothing where local solvers err by more than this share of z, or the tolerance if that is larger."""

STANDSTILL = 1e-12
"""A residual below this share of z, where the gap is proved to be larger than asked, is the end of the run."""

RESERVE = 20
"""From a budget of so many rounds on, the last two are kept for a certificate."""

LONG, LARGE = 30, 1e6
"""After LONG rounds, when the gap may be within the tolerance of an F of LARGE, one round asks how large F is."""

PRICE = 0.1
"""The share of a run's rounds that certificates may cost, once two are spent."""

Callback: TypeAlias = Callable[[Row, State], object]


@runtime_checkable
class Keeper(Protocol):
    """A callback that keeps every answer, such as a ``Checkpoint``."""

    def keeping(
        self, clients: Clients, about: Mapping[str, object]
    ) -> AbstractContextManager[Clients]:
        """The clients, with their answers kept; ``about`` identifies the run."""


def updates(method: Method[S], clients: Clients, state: S) -> Iterator[S]:
    """The states after ``state``, until the method has done all it promised. This is the only loop of a run."""
    current: S | None = state
    while current is not None and (current := method.update(clients, current)) is not None:
        yield current


def solve(
    problem: Problem | Oracle,
    method: Method[Any] | None = None,
    *,
    rounds: int = 200,
    tol: float = 1e-9,
    x0: Array | None = None,
    state: State | None = None,
    penalty: Penalty | None = None,
    participation: float = 1.0,
    seed: int = 0,
    callbacks: Sequence[Callback | Keeper] = (),
) -> Result:
    """Run a method on a federated problem.

    Parameters
    ----------
    problem : Problem or Clients
        What to minimise.
    method : Method, optional
        ``FedSplit()`` where None.
    rounds : int
        The budget: questions asked of every client, set-up and certificate included.
    tol : float
        Stop when the proved bound on F(x) - F* is at most tol · max(1, |F|); where none can be proved, when
        ‖z⁺ - z‖ ≤ tol · max(1, ‖z‖), z being the variable whose fixed point the method seeks. A proof costs two rounds;
        all of them together at most two, or a tenth of the run, and more only where clients are absent and have to be
        asked again. Two rounds of a budget of 20 or more are kept for it. 0 spends the whole budget and proves nothing.
    x0 : (d,) array, optional
        The start; zeros where None.
    state : State, optional
        A result's state, to go on from there with its step: no set-up is repeated, and the run is the one that would
        have been, but for the draw of clients with ``participation`` below 1, which starts anew. Under another penalty
        pass ``FedSplit(penalty=...).resume(state)``: what a run has come to trust at its end is too little elsewhere.
    penalty : Penalty, optional
        A convex g(x) added to F at the server: ``L1``, ``Box``, …, or your own object with ``value`` and ``prox``.
    participation : float
        The share of the clients that answer each question, drawn anew each time. The optimum stays that of all.
    seed : int
        Of that draw.
    callbacks : sequence of callables
        Each is called as ``callback(row, state)`` after every round; one that returns something true stops the run.
        A ``Checkpoint`` among them keeps the run on disk, and lets it go on from there.

    Returns
    -------
    Result

    Raises
    ------
    Diverged
        When the iterates grow without bound or stop being numbers. The exception's ``result`` has all rounds before.
    """
    oracle = problem.clients if isinstance(problem, Problem) else problem
    method = FedSplit() if method is None else method
    instance("problem", oracle, "a Problem or Clients", "ask")
    clients = clients_of(oracle)
    instance("method", method, "a Method", "update")
    count("rounds", rounds)
    number("tol", tol, strict=False)
    if not 0 < number("participation", participation) <= 1:
        raise InputError(
            f"participation must be a share of the clients, above 0 and at most 1, not {participation!r}"
        )
    count("seed", seed, least=0)
    penalty = getattr(method, "penalty", None) if penalty is None else penalty
    if penalty is not None:
        check_dimension(penalty, clients.d)
        method = with_penalty(method, penalty)
    start = _check_start(clients, method, x0, state)
    kept = [each for each in callbacks if isinstance(each, Keeper)]
    called = [each for each in callbacks if not isinstance(each, Keeper)]
    about = {
        "method": _described(method), "clients": clients.m, "coordinates": clients.d, "rounds": rounds, "tol": tol,
        "participation": participation, "seed": seed,
    }  # fmt: skip
    with ExitStack() as journals, one_blas_thread(), np.errstate(**QUIET):
        for checkpoint in kept:
            clients = journals.enter_context(checkpoint.keeping(clients, about))
        return _Run(clients, participation, seed, method, penalty, rounds, tol, called).go(
            start, state
        )


class _Run:
    """One run: the loop's states recorded, watched for divergence, and stopped."""

    def __init__(
        self,
        clients: Clients,
        participation: float,
        seed: int,
        method: Method[Any],
        penalty: Penalty | None,
        rounds: int,
        tol: float,
        callbacks: Sequence[Callback],
    ) -> None:
        self.participation, self.seed, self.method, self.penalty = (
            participation,
            seed,
            method,
            penalty,
        )
        self.rounds, self.tol, self.callbacks = rounds, tol, callbacks
        self.trace, self.spent, self.measured = Trace(np.nan), 0, True
        self.removed: tuple[str, ...] = ()
        self.numbers = np.arange(clients.m)  # of those who take part
        self.known = len(clients.incidents)  # from earlier runs
        self.doing: Kind = "setup"
        self.state: State | None = None
        self._begin(clients)

    def _begin(self, clients: Clients) -> None:
        """With these clients, of whose problem nothing is known yet."""
        asked = clients.insistent() if getattr(self.method, "unanimous", False) else clients
        self.clients = clients
        self.meter = MeteredClients(SampledClients(asked, self.participation, self.seed))
        self.first, self.smallest, self.uphill = np.nan, np.inf, 0
        self.certificate, self.doubt, self.level = NOT_ASKED, 100.0, np.nan
        self.proved: State | None = None
        self.quiet: Mask = np.zeros(clients.m, dtype=bool)

    def go(self, start: Array, state: State | None) -> Result:
        """The run; when clients are given up it goes on from where it is with the others."""
        self.state = state
        while True:
            try:
                return self._go(start, self.state)
            except Removed as gone:
                start = start if self.state is None else self.state.x
                self._go_on_without(gone.names)

    def _go_on_without(self, names: Sequence[str]) -> None:
        kept = np.array([name not in names for name in self.clients.names or ()])
        remaining = getattr(self.method, "remaining", None)
        self._record(
            self.doing, self.trace.objective[-1], np.nan, 0.0
        )  # what was answered before it was interrupted
        self._begin(self.clients.without(names))
        self.removed, self.numbers = (*self.removed, *names), self.numbers[kept]
        self.state = (
            None if self.state is None or remaining is None else remaining(self.state, kept)
        )

    def _go(self, start: Array, state: State | None) -> Result:
        if not len(self.trace):
            self.trace.start = self._objective(start)
        if state is None:
            self.doing, began = "setup", time.perf_counter()
            state = self.method.start(self.meter, start)
            self._record("setup", self._objective(state.x), np.nan, time.perf_counter() - began)
        steps = updates(self.method, self.meter, state)
        reserve = 2 if self.method.settles and self.tol > 0 and self.rounds >= RESERVE else 0
        while len(self.trace) < self.rounds - reserve:
            self.doing, began = "round", time.perf_counter()
            try:
                after = next(steps, None)
            except (np.linalg.LinAlgError, ArithmeticError) as error:
                left = f"the arithmetic left float64 ({error})"
                raise Diverged(left, self.method.hazard, self._result(state, "diverged")) from None
            seconds = time.perf_counter() - began
            if after is None:
                return self._result(state, "method")
            residual = float(np.linalg.norm(after.iterate - state.iterate))
            objective = self._objective(after.x)
            if what := self._diverges(state, residual, objective):
                raise Diverged(what, self.method.hazard, self._result(state, "diverged"))
            before, state = state, after
            self.state = state
            self._record("round", objective, residual, seconds)
            stop = [bool(callback(self.trace.rows[-1], state)) for callback in self.callbacks]
            if (
                self.method.settles
                and self.tol > 0
                and (reason := self._settled(before, state, residual))
            ):
                return self._result(state, reason)
            if any(stop):
                return self._result(state, "callback")
        if reserve and self._provable and self._affordable and self.meter.heard.all():
            self._certify(state)
        return self._result(state, "rounds")

    def _objective(self, x: Array) -> float:
        """F(x) with the penalty; not a number where a client did not tell, which is no sign of divergence.

        Clients elsewhere are not asked for a measurement alone.
        """
        if not self.clients.free:
            self.measured = False
            return np.nan
        answer = self.clients.value(x)
        self.measured = bool(answer.present.all())
        value = float(answer.rows.sum()) if self.measured else np.nan
        return value if self.penalty is None else value + self.penalty.value(x)

    def _diverges(self, state: State, residual: float, objective: float) -> str | None:
        """What shows that the run diverges."""
        if not self.meter.present.any():
            return None
        if not np.isfinite(self.first):
            self.first = max(residual, 1e-9 * max(1.0, float(np.linalg.norm(state.iterate))))
        if not residual <= GROWTH * self.first:
            return (
                f"the residual grew to {residual:.1e}"
                if np.isfinite(residual)
                else "the iterate is not finite"
            )
        self.smallest = min(self.smallest, max(residual, 1e-9 * self.first))
        if np.isnan(objective) and self.measured:
            return "the objective is not a number"
        above = objective > self.trace.start and residual > GROWTH_UPHILL * self.smallest
        self.uphill = self.uphill + 1 if above else 0
        return f"the objective grew to {objective:.1e}" if self.uphill == UPHILL_ROUNDS else None

    def _settled(
        self, before: State, state: State, residual: float
    ) -> Literal["certificate", "residual"] | None:
        """Whether the run has reached the tolerance: by proof, or, where there is none, because z no longer moves.

        A proof is asked for when the move, as an estimate of the gap, promises one, and the price is within limits;
        with absent clients, when every one of them has had its say since the moves became so small.
        """
        if residual == 0.0 and not np.array_equal(
            before.s, state.s
        ):  # a step was refused, a shorter one is to come
            return None
        row, last, size = (
            self.trace.rows[-1],
            self.certificate,
            float(np.linalg.norm(state.iterate)),
        )
        present = self.meter.present
        move = (state.iterate - before.iterate) / np.sqrt(state.s)
        estimate = float(np.sum(move * move))
        if np.isfinite(last.objective):
            self.level = abs(last.objective)
        elif self._may_ask_level(estimate, present):
            self._ask_level(state)
        scale = float(np.fmax(1.0, self.level))
        exact = row.error <= max(self.tol, ROUGHEST) * max(1.0, size)
        sound = exact and (np.isfinite(row.objective) or not self.measured)
        still = bool(
            sound and residual <= self.tol * max(1.0, size) and estimate <= self.tol * scale
        )
        promising = still or (self._provable and self.doubt * estimate <= self.tol * scale)
        self.quiet = self.quiet | present if promising else np.zeros(self.meter.m, dtype=bool)
        if not self.quiet.all():  # those who were absent may still move
            return None
        if not self._provable:
            return "residual" if still else None
        if not self._affordable:
            return None
        self._certify(state)
        if self._certified:
            return "certificate"
        if self.certificate.gap is not None:
            self.doubt = 10.0 * self.certificate.gap / max(estimate, 1e-300)
        if (
            self._provable
        ):  # not yet, or at a point where the method stands still and that is not the optimum
            still = still and residual <= STANDSTILL * size
        return "residual" if still else None

    def _may_ask_level(self, estimate: float, present: Mask) -> bool:
        unknown = bool(np.isnan(self.level)) and self.doubt * estimate <= LARGE * self.tol
        return unknown and len(self.trace) >= LONG and bool(present.all())

    def _ask_level(self, state: State) -> None:
        """Ask for F(x), to know what the tolerance is relative to: one round, which a long run can afford."""
        self.doing, began = "certificate", time.perf_counter()
        answer = self.meter.value(state.x)
        value = float(answer.rows.sum()) + (
            0.0 if self.penalty is None else self.penalty.value(state.x)
        )
        self.level = abs(value) if answer.present.all() else 1.0
        self._record(
            "certificate", self.trace.rows[-1].objective, np.nan, time.perf_counter() - began
        )
        self.spent += 1

    @property
    def _provable(self) -> bool:
        last = self.certificate
        return last is NOT_ASKED or last.gap is not None or last.hopeful

    @property
    def _affordable(self) -> bool:
        done = len(self.trace) + 2
        return self.spent + 2 <= max(2.0, PRICE * done) and done <= self.rounds

    @property
    def _certified(self) -> bool:
        gap = self.certificate.gap
        return gap is not None and gap <= self.tol * max(1.0, abs(self.certificate.objective))

    def _certify(self, state: State) -> None:
        self.doing, began, before = "certificate", time.perf_counter(), len(self.trace)
        subgradient = getattr(state, "subgradient", None) if self.penalty is not None else None

        def allowed() -> bool:
            return before + self.meter.waiting < self.rounds

        self.certificate, self.proved = (
            certify(self.meter, state.x, self.penalty, subgradient, allowed),
            state,
        )
        self._record(
            "certificate", self.trace.rows[-1].objective, np.nan, time.perf_counter() - began
        )
        self.spent += min(2, len(self.trace) - before)

    def _record(self, kind: Kind, objective: float, residual: float, seconds: float) -> None:
        """One row for each round; the last one brings the new objective and the server's own time."""
        exchanges = [
            part
            for exchange in self.meter.take()
            for part in exchange.rounds(self.meter.m, self.meter.d)
        ]
        before = self.trace.rows[-1].objective if self.trace.rows else self.trace.start
        for i, exchange in enumerate(exchanges):
            last = i == len(exchanges) - 1
            seconds_here = seconds if last else exchange.seconds
            seconds -= exchange.seconds
            self.trace.rows.append(
                Row(
                    objective if last else before,
                    residual if last else np.nan,
                    exchange.error,
                    exchange.floats_up,
                    exchange.floats_down,
                    exchange.answered,
                    seconds_here,
                    kind,
                    exchange.margin,
                    exchange.latency,
                    exchange.questions,
                    *exchange.work,
                )
            )

    def _result(self, state: State, stopped_by: StoppedBy) -> Result:
        absent = tuple(int(j) for j in self.numbers[~self.meter.heard]) if len(self.trace) else ()
        certificate = self.certificate
        if certificate.gap is not None and state is not self.proved:
            certificate = MOVED
        without_proof = stopped_by == "residual" and not self._provable
        reached = (
            stopped_by == "method" or (self._certified and state is self.proved) or without_proof
        )
        return Result(
            state.x,
            len(self.trace),
            reached and not absent,
            stopped_by,
            state,
            self.trace,
            certificate,
            absent,
            getattr(state, "notes", ()),
            self.removed,
            tuple(self.clients.incidents[self.known :]),
        )


def _described(method: Method[Any]) -> str:
    """A method with its settings, in words that are the same tomorrow: without the addresses of objects."""
    return (
        re.sub(" at 0x[0-9a-fA-F]+", "", repr(method))
        if is_dataclass(method)
        else type(method).__name__
    )


def _check_start(
    clients: Clients, method: Method[Any], x0: Array | None, state: State | None
) -> Array:
    """The point where the run starts, as float64."""
    if state is not None and x0 is not None:
        raise InputError("pass x0 or state, not both: a state has its own x")
    if state is not None:
        if not isinstance(state, method.state_type):
            wanted = method.state_type.__name__
            raise InputError(
                f"state: {type(method).__name__} goes on from a {wanted}, not {type(state).__name__}"
            )
        if state.iterate.shape not in ((clients.d,), (clients.m, clients.d)):
            raise InputError(
                f"state: it is not of {clients.m} clients and {clients.d} coordinates: {state.iterate.shape}"
            )
    given = x0 if state is None else state.x
    try:
        x = np.zeros(clients.d) if given is None else np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the start must be {clients.d} finite numbers, not {given!r}") from None
    if x.shape != (clients.d,) or not np.isfinite(x).all():
        raise InputError(f"the start must be {clients.d} finite numbers, its shape is {x.shape}")
    return x
