"""``solve``: run a method on a federated problem."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedsplit.arrays import Array, on_host, to_host
from fedsplit.checks import count, instance, number
from fedsplit.clients.clock import Latency
from fedsplit.clients.oracle import Clients, Measurement, Oracle, clients_of
from fedsplit.clients.stacked import QUIET
from fedsplit.device.backend import numbers
from fedsplit.dialogue import Removal, converse
from fedsplit.errors import InputError, NoMinimiser, NotConverged, listed
from fedsplit.loop.conversation import Callback, Conversation
from fedsplit.loop.result import Diverged, ProblemOrigin, Result, RunState
from fedsplit.loop.run import Outcome, iterate
from fedsplit.loop.stopping import ProvedGap
from fedsplit.loop.trace import Trace
from fedsplit.methods import asynchronous_of, default_method
from fedsplit.methods.information import FedSplitInformation
from fedsplit.methods.method import Method
from fedsplit.penalties.penalty import Penalty, check_dimension
from fedsplit.problem import Problem
from fedsplit.threads import one_blas_thread


@runtime_checkable
class Keeper(Protocol):
    """A callback that keeps every answer, such as a ``Checkpoint``."""

    def keeping(
        self, clients: Clients, about: Mapping[str, object]
    ) -> AbstractContextManager[Clients]:
        """The clients, with their answers kept; ``about`` identifies the run."""


def solve(
    problem: Problem | Oracle,
    method: Method[Any] | None = None,
    *,
    rounds: int = 200,
    tol: float = 1e-9,
    x0: Array | None = None,
    state: Any = None,
    penalty: Penalty | None = None,
    participation: float = 1.0,
    seed: int = 0,
    callbacks: Sequence[Callback | Keeper] = (),
    asynchronous: Latency | bool = False,
) -> Result:
    """Run a method on a federated problem.

    Parameters
    ----------
    problem : Problem or Clients
        What to minimise.
    method : Method, optional
        None chooses ``FedSplitInformation()``, which needs few rounds but sends the clients'
        Hessians, or ``QuasiNewton()``, which sends vectors only, where Hessians are too large
        or a client has none by a formula. The first of the result's ``notes`` says which.
    rounds : int
        The budget: questions asked of every client, set-up and certificate included. A round that
        asks for more than is left of it is void.
    tol : float
        Stop when the proved bound on F(x) - F* is at most tol · max(|F(x)|, F(0) - F(x)), or is
        rounding; if none can be proved, when ‖z⁺ - z‖ ≤ tol · ‖z‖, where z is the variable whose
        fixed point the method seeks, and ‖∇F(x)‖·‖x‖ is at most a thousandth of F. A proof costs
        two rounds. All proofs together cost at most six
        rounds or a tenth of the run, and more only if absent clients have to be asked again. Two
        rounds of a budget of 20 or more are kept for a proof at the end. 0 spends the whole budget
        and proves nothing.
    x0 : (d,) array, optional
        The start; zeros if None.
    state : RunState, optional
        A result's ``state``, to continue from there with its step. No set-up is repeated, and the
        run is the one that would have been; with the same seed, what is drawn goes on too. If the
        data, the ridge or the penalty have changed since, the run starts anew from the state's x,
        and says so in ``notes``; of clients elsewhere only the penalty is compared. A method's own
        state, such as ``result.state.inner``, is taken as it is.
    penalty : Penalty, optional
        A convex g(x) added to F at the server: ``L1``, ``Box``, …, or your own object with
        ``value`` and ``prox``.
    participation : float
        The share of the clients that are asked each question; the others do nothing. The draw goes
        through a shuffled list of all clients before it shuffles again, so each is asked once in
        1/participation rounds. The optimum stays that of all clients.
    seed : int
        Random seed of the participation, and of what clients draw, such as minibatches.
    callbacks : sequence of callables
        Each is called as ``callback(row, state)`` after every round, and stops the run if it
        returns something true. A ``Checkpoint`` among them keeps the run on disk, and lets it go on
        from there.
    asynchronous : Latency or bool
        With a ``Latency`` the server never waits: it moves x on every answer, and asks that client
        again, in simulated time, which is the trace's column ``clock``. A row of the trace is then
        one arrival, and the budget is ``rounds`` answers per client on average. True does so in
        real time, on Ray and between organisations; there the order of the answers, and with it
        the last digits, differ from run to run, and a ``Checkpoint`` keeps that order. Without a
        method it is ``DAvePG()`` where Hessians are too large, or not known.

    Returns
    -------
    Result

    Warns
    -----
    NotConverged
        When the tolerance is not reached, unless a callback ended the run; the first of the
        result's ``notes`` says so too.

    Raises
    ------
    Diverged
        When the iterates grow without bound or stop being numbers. The exception's ``result`` has
        all rounds before.
    NoMinimiser
        When the answers show that F has no minimiser, as with classes that a plane separates. The
        exception has the ``direction`` along which F falls for ever, and the ``result`` so far.
    """
    oracle = problem.clients if isinstance(problem, Problem) else problem
    instance("problem", oracle, "a Problem, or clients with m and ask", "m", "ask")
    clients = clients_of(oracle)
    rounded = clients.rounded if clients.on_device else ""
    if state is not None and not isinstance(state, RunState):
        instance("state", state, "a result's state", "x")
        state = RunState(state, None, 0)  # a method's own state, of which nothing more is known
    if x0 is not None and state is not None:
        raise InputError("pass x0 or state, not both: a state has its own x")
    count("rounds", rounds)
    number("tol", tol, strict=False)
    count("seed", seed, least=0)
    check_run(method, callbacks, participation)
    given = x0 if state is None else state.x
    d = clients.d or np.size(() if given is None else given)  # which not all clients say
    if not d:
        raise InputError("these clients do not say how many coordinates x has: pass x0")
    notes: list[str] = []
    if method is None:
        before = None if state is None else state.inner
        method, chosen = default_method(
            clients.pooled(), before, participation, bool(asynchronous), clients.on_device
        )
        suited = method.suited(clients.m, d)
        notes.append(chosen.replace(method.described(), suited.described()))
    method = method.suited(clients.m, d)
    # a checkpoint is passed like a callback, but has to see every answer
    keepers = [callback for callback in callbacks if isinstance(callback, Keeper)]
    if clients.on_device:
        if asynchronous or keepers:
            raise InputError("asynchronous and Checkpoint have no device path: leave them out")
        if method.device == "sums":
            clients = clients.pooled()
        elif method.device == "host":
            clients = clients.answering_to_host()
    if asynchronous:
        check_asynchronous(asynchronous, clients, participation, state)
        method = asynchronous_of(method)
        rounds *= clients.m  # a row is one answer
    elif method.arrivals:
        raise InputError(
            f"{type(method).__name__} takes answers one by one: pass asynchronous=Latency(...), or "
            "True for real time"
        )
    if penalty is not None:
        method = method.with_penalty(penalty)
    if method.penalty is not None:
        check_dimension(method.penalty, d)
    x = check_start(d, clients.m, method, given, state)
    notes = notes or [f"method: {method.described()}"]
    with one_blas_thread(), np.errstate(**QUIET), ExitStack() as journals:
        if state is not None and not _goes_on(state, x, clients, method.penalty):
            state = None
            notes.append(
                "the problem has changed since the state was reached: the run started anew from "
                "its x"
            )
        about = {
            "method": _identified(method),
            "clients": clients.m,
            "coordinates": d,
            "rounds": rounds,
            "tol": tol,
            "participation": participation,
            "seed": seed,
        }
        if asynchronous:
            about["asynchronous"] = repr(asynchronous)
        asked = clients
        for keeper in keepers:
            asked = journals.enter_context(keeper.keeping(asked, about))
        conversation = Conversation(
            asked.insistent() if method.unanimous else asked,
            seed=seed,
            participation=participation if participation < 1.0 else method.drawn,
            reshuffled=participation < 1.0,
            asynchronous=asynchronous,
            asked=0 if state is None else state.asked,
            rounds=rounds,
            callbacks=[each for each in callbacks if not isinstance(each, Keeper)],
        )
        rule = ProvedGap(
            method,
            tol if method.settles else 0.0,
            rounds,
            pooled=clients.on_device,
            float32=bool(rounded),
        )
        result = _run(conversation, rule, clients.vector(x), state)
        if rounded and result.stopped_by == "residual" and not result.converged:
            result = _refined(result, clients.pooled(), rounds, tol)
        if rounded and tol > 0 and not result.converged:
            notes.append(
                "local solvers in float32 may not come closer: go on with solve(problem, "
                'x0=result.x), which adds up Newton steps in float64, or pass dtype="float64"'
            )
        # at the last x, where a continued run begins
        origin = ProblemOrigin.at(result.x, clients, method.penalty)
    if tol > 0 and not result.converged and result.stopped_by != "callback":
        # first, as nothing else that the result says holds without it
        notes.insert(0, _not_converged(result))
        warnings.warn(notes[0], NotConverged, stacklevel=2)
    return replace(
        result,
        state=replace(result.state, origin=origin),
        notes=(*notes, *result.notes),
        certificate=result.certificate.about(rounded),
    )


def _run(
    conversation: Conversation, rule: ProvedGap, x: Array, state: RunState | None = None
) -> Result:
    """Run the rule's method from a state, or else from x, whether that ends well or not."""
    method = rule.method
    inner = None if state is None else state.inner
    try:
        value = conversation.ask(Measurement(x))
    except Removal:  # a client left before the first question: the others start anew from x
        value = inner = None
    start = method.penalised(value, x)
    conversation.trace.start = start
    dialogue = iterate(method, x, conversation.m, rule, state=inner, start=start)
    outcome = converse(dialogue, conversation)
    result = _result(conversation, method, outcome)
    if outcome.direction is not None:
        raise NoMinimiser(
            f"{outcome.sign}, so that F has no minimiser: it falls for ever along the exception's "
            "direction; add a ridge, or fit with Firth's penalty",
            outcome.direction,
            result,
        )
    if outcome.stopped_by == "diverged":
        raise Diverged(outcome.sign, method.hazard, result)
    return result


def _result(conversation: Conversation, method: Method[Any], outcome: Outcome) -> Result:
    state = outcome.state
    rows = conversation.trace.rows
    absent = tuple(conversation.places[~conversation.heard].tolist()) if rows else ()
    if rows and conversation.clients.measured_every > 1:  # the last value is always there
        value = conversation.ask(Measurement(state.x))
        rows[-1] = rows[-1]._replace(objective=method.penalised(value, state.x))
    return Result(
        x=to_host(state.x),
        rounds=len(conversation.trace),
        converged=outcome.reached and not absent,
        stopped_by=outcome.stopped_by,
        state=RunState(state, None, conversation.number),
        trace=conversation.trace,
        method=method.described(),
        step=method.step_of(state),
        certificate=outcome.certificate,
        absent=absent,
        notes=method.notes(state),
        removed=conversation.removed,
        incidents=conversation.incidents,
    )


def _refined(result: Result, clients: Clients, rounds: int, tol: float) -> Result:
    """Go on where float32 ends: Newton steps of all clients together, added up in float64."""
    before = result.rounds
    rule = ProvedGap(FedSplitInformation(), tol, rounds - before)
    after = _run(Conversation(clients, rounds=rounds - before), rule, result.x)
    note = (
        f"float32 ended after {before} rounds: the {after.rounds} that follow are Newton steps, "
        "added up in float64"
    )
    trace = Trace(result.trace.start, [*result.trace.rows, *after.trace.rows])
    notes = (*result.notes, note, *after.notes)
    return replace(after, trace=trace, rounds=len(trace), notes=notes)


def _not_converged(result: Result) -> str:
    """What a run that did not reach its tolerance has to say first."""
    why = result.certificate.reason
    if result.absent:
        why = f"clients {listed(result.absent)} never answered"
    elif result.certificate.gap is not None:
        why = f"F(x) - F* ≤ {result.certificate.gap:.1g} is proved"
    return f"not converged after {result.rounds} rounds ({why})"


def check_run(method: object, callbacks: object, participation: float) -> None:
    """Raise InputError unless these are a method, if any, a list of callbacks, and a share."""
    if method is not None:
        instance("method", method, "a Method")  # no class in the place of an object
        if not isinstance(method, Method):
            raise InputError(
                f"method must be a Method, not {type(method).__name__}: derive a method of your "
                "own from fs.Method"
            )
    if not isinstance(callbacks, Sequence) or not all(
        callable(each) or isinstance(each, Keeper) for each in callbacks
    ):
        raise InputError(
            f"callbacks must be a list of functions of a row and a state, not {callbacks!r}"
        )
    if not 0 < number("participation", participation) <= 1:
        raise InputError(
            "participation must be a share of the clients, above 0 and at most 1, "
            f"not {participation!r}"
        )
    if participation < 1 and isinstance(method, Method) and method.drawn != 1.0:
        raise InputError(
            f"{type(method).__name__}(clients=...) draws clients by itself: pass that or "
            "participation, not both"
        )


def _goes_on(state: RunState, x: Array, clients: Clients, penalty: Penalty | None) -> bool:
    """Whether the state, whose x is given on the host, is one of this problem."""
    if on_host(state.inner.x) != on_host(clients.vector(x)):
        return False
    return state.origin is None or state.origin.is_that_of(ProblemOrigin.at(x, clients, penalty))


def check_asynchronous(
    asynchronous: Latency | bool,
    clients: Clients,
    participation: float,
    state: RunState | None,
) -> None:
    """Raise InputError if a run cannot be asynchronous."""
    if clients.stands_for > 1:
        raise InputError(
            "asynchronous: in secure sums the server sees the sum of all answers alone, and has to "
            "wait for everybody: leave out one of the two"
        )
    if participation < 1.0:
        raise InputError(
            "asynchronous: a client is asked again when it has answered: leave out participation"
        )
    if state is not None:
        raise InputError(
            "asynchronous: a state does not have the questions under way: start without it"
        )
    if asynchronous is True:
        clients.asynchronously()  # which says why, if they cannot be asked one by one
    elif not isinstance(asynchronous, Latency):
        raise InputError(
            f"asynchronous must be a Latency or a bool, not {type(asynchronous).__name__}"
        )


def _identified(method: Method[Any]) -> str:
    """A method with its settings, in words that identify it in every process."""
    if not is_dataclass(type(method)):
        return type(method).__name__
    return re.sub(" at 0x[0-9a-fA-F]+", "", repr(method))  # without addresses of objects


def check_start(
    d: int, m: int, method: Method[Any], given: Array | None, state: RunState | None
) -> Array:
    """The point where a run starts, (d,): the given one, which is that of the state, or else 0.

    Raises InputError if it is not d finite numbers, or if the state is of another method or of
    another problem.
    """
    if state is not None:
        if not isinstance(state.inner, method.state_type):
            raise InputError(
                f"state: {type(method).__name__} continues from {method.state_type.__name__}, "
                f"not {type(state.inner).__name__}"
            )
        shape = method.iterate(state.inner).shape
        if shape not in ((d,), (m, d)):
            raise InputError(f"state: it is not of {m} clients and {d} coordinates: {shape}")
    if given is None:
        return np.zeros(d)
    x = numbers(given)
    if x is None:
        raise InputError(
            f"the start must be {d} finite numbers, not of type {type(given).__name__}"
            + " (pass a result's state as state=)" * hasattr(given, "x")
        )
    if x.shape != (d,) or not np.isfinite(x).all():
        raise InputError(f"the start must be {d} finite numbers, its shape is {x.shape}")
    return x
