"""The one loop, and ``solve``, which records it and knows when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import count, instance, number
from fedsplit.clients.metered import MeteredClients
from fedsplit.clients.protocol import Clients
from fedsplit.clients.stacked import QUIET
from fedsplit.errors import Diverged, InputError
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.method import Method, S, State
from fedsplit.problem import Problem
from fedsplit.threads import one_blas_thread
from fedsplit.trace import Result, Row, Trace

GROWTH = 1e9
"""A residual this many times the first one is divergence."""

GROWTH_UPHILL = 1e3
"""So is one this many times the smallest, at an objective above that of the start."""

Callback: TypeAlias = Callable[[Row, State], object]


def updates(method: Method[S], clients: Clients, state: S) -> Iterator[S]:
    """The states after ``state``, until the method has done all it promised. This is the only loop of a run."""
    current: S | None = state
    while current is not None and (current := method.update(clients, current)) is not None:
        yield current


def solve(
    problem: Problem | Clients,
    method: Method[Any] | None = None,
    *,
    rounds: int = 200,
    tol: float = 1e-9,
    x0: Array | None = None,
    state: State | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a method on a federated problem.

    Parameters
    ----------
    problem : Problem or Clients
        What to minimise.
    method : Method, optional
        ``FedSplit()`` where None.
    rounds : int
        The budget: questions asked of every client, set-up included.
    tol : float
        Stop when ‖z⁺ - z‖ ≤ tol · max(1, ‖z‖), z being the variable whose fixed point the method seeks. 0 spends the
        whole budget.
    x0 : (d,) array, optional
        The start; zeros where None.
    state : State, optional
        A result's state, to go on from there with its step: no set-up is repeated, and the run is the one that would
        have been.
    callbacks : sequence of callables
        Each is called as ``callback(row, state)`` after every round; one that returns something true stops the run.

    Returns
    -------
    Result

    Raises
    ------
    Diverged
        When the iterates grow without bound or stop being numbers. The exception's ``result`` has all rounds before.
    """
    clients = problem.clients if isinstance(problem, Problem) else problem
    method = FedSplit() if method is None else method
    instance("problem", clients, "prox")
    instance("method", method, "update")
    count("rounds", rounds)
    number("tol", tol, strict=False)
    start = _check_start(clients, method, x0, state)
    with one_blas_thread(), np.errstate(**QUIET):
        return _run(clients, method, start, state, rounds, tol, callbacks)


def _run(
    clients: Clients,
    method: Method[Any],
    start: Array,
    state: State | None,
    rounds: int,
    tol: float,
    callbacks: Sequence[Callback],
) -> Result:
    meter = MeteredClients(clients)
    trace = Trace(_objective(clients, start))
    if state is None:
        began = time.perf_counter()
        state = method.start(meter, start)
        _record(trace, meter, "setup", trace.start, np.nan, time.perf_counter() - began)
    steps = updates(method, meter, state)
    first, smallest = np.nan, np.inf
    while len(trace) < rounds:
        began = time.perf_counter()
        after = next(steps, None)
        seconds = time.perf_counter() - began
        if after is None:
            return _result(state, trace, "method")
        residual = float(np.linalg.norm(after.iterate - state.iterate))
        first = first if np.isfinite(first) else max(residual, 1e-9 * max(1.0, float(np.linalg.norm(state.iterate))))
        if not residual <= GROWTH * first:
            what = f"the residual grew to {residual:.1e}" if np.isfinite(residual) else "the iterate is not finite"
            raise Diverged(what, method.hazard, _result(state, trace, "diverged"))
        smallest = min(smallest, max(residual, 1e-9 * first))
        objective = _objective(clients, after.x)
        if np.isnan(objective) or (objective > trace.start and residual > GROWTH_UPHILL * smallest):
            what = "the objective is not a number" if np.isnan(objective) else f"the objective grew to {objective:.1e}"
            raise Diverged(what, method.hazard, _result(state, trace, "diverged"))
        state = after
        _record(trace, meter, "round", objective, residual, seconds)
        stop = [bool(callback(trace.rows[-1], state)) for callback in callbacks]
        exact_enough = np.isfinite(objective) and np.isfinite(trace.rows[-1].error)
        small = residual <= tol * max(1.0, float(np.linalg.norm(state.iterate)))
        if method.settles and tol > 0 and small and exact_enough:
            return _result(state, trace, "residual")
        if any(stop):
            return _result(state, trace, "callback")
    return _result(state, trace, "rounds")


def _objective(clients: Clients, x: Array) -> float:
    return float(clients.value(x).rows.sum())


def _record(
    trace: Trace,
    meter: MeteredClients,
    kind: Literal["setup", "round"],
    objective: float,
    residual: float,
    seconds: float,
) -> None:
    """One row for each question; the last one brings the new objective and the server's own time."""
    exchanges = meter.take()
    before = trace.rows[-1].objective if trace.rows else trace.start
    for i, exchange in enumerate(exchanges):
        last = i == len(exchanges) - 1
        seconds_here = seconds if last else exchange.seconds
        seconds -= exchange.seconds
        trace.rows.append(
            Row(
                objective if last else before,
                residual if last else np.nan,
                exchange.error,
                exchange.floats_up,
                exchange.floats_down,
                exchange.answered,
                seconds_here,
                kind,
            )
        )


def _result(
    state: State, trace: Trace, stopped_by: Literal["residual", "method", "rounds", "callback", "diverged"]
) -> Result:
    return Result(state.x, len(trace), stopped_by in ("residual", "method"), stopped_by, state, trace)


def _check_start(clients: Clients, method: Method[Any], x0: Array | None, state: State | None) -> Array:
    """The point where the run starts, as float64."""
    if state is not None and x0 is not None:
        raise InputError("pass x0 or state, not both: a state has its own x")
    if state is not None:
        if not isinstance(state, method.state_type):
            wanted = method.state_type.__name__
            raise InputError(f"state: {type(method).__name__} goes on from a {wanted}, not {type(state).__name__}")
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
