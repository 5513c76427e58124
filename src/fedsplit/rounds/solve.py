"""``solve``: run a method on a federated problem."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedsplit.arrays import Array, on_host
from fedsplit.checks import count, instance, number
from fedsplit.clients.delayed import Latency
from fedsplit.clients.oracle import Clients, Oracle, clients_of
from fedsplit.device.backend import numbers
from fedsplit.errors import InputError
from fedsplit.methods import asynchronous_of, with_penalty
from fedsplit.methods.agd import AGD
from fedsplit.methods.cg import CG
from fedsplit.methods.default import default_method
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.gd import GD
from fedsplit.methods.information import FedSplitInformation
from fedsplit.methods.lbfgs import LBFGS
from fedsplit.methods.method import Method, State
from fedsplit.methods.newton import Newton
from fedsplit.methods.variants import FedSplit
from fedsplit.penalties.penalty import Penalty, check_dimension
from fedsplit.problem import Problem
from fedsplit.rounds.loop import Callback, Run, StoppingRule
from fedsplit.rounds.origin import Origin, origin_of, with_origin
from fedsplit.rounds.refinement import UNREFINED, refined
from fedsplit.rounds.result import Result
from fedsplit.rounds.stopping import ProvedGap

OF_EACH = (FedSplit, FedGD, FedProx)
"""Methods whose questions to each client have a device path."""

OF_SUMS = (FedSplitInformation, Newton, GD, AGD, CG, LBFGS)
"""Methods that need nothing of the clients but sums over all of them."""

CHANGED = "the problem has changed since the state was reached: the run started anew from its x"


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
    state: State | None = None,
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
        Hessians, or ``FedSplit()``, which sends vectors only, where Hessians are too large, or no
        client can tell them; ``notes`` says which.
    rounds : int
        The budget: questions asked of every client, set-up and certificate included.
    tol : float
        Stop when the proved bound on F(x) - F* is at most tol · max(1, |F|); if none can be proved,
        when ‖z⁺ - z‖ ≤ tol · max(1, ‖z‖), where z is the variable whose fixed point the method
        seeks. A proof costs two rounds. All proofs together cost at most six rounds or a tenth of
        the run, and more only if absent clients have to be asked again. Two rounds of a budget of
        20 or more are kept for a proof at the end. 0 spends the whole budget and proves nothing.
    x0 : (d,) array, optional
        The start; zeros if None.
    state : State, optional
        A result's state, to continue from there with its step. No set-up is repeated, and the run
        is the one that would have been; with the same seed, what is drawn goes on too. If the data,
        the ridge or the penalty have changed since, the run starts anew from the state's x, and
        says so in ``notes``; of clients elsewhere only the penalty is compared. Under another
        penalty ``FedSplit(penalty=...).resume(state)`` keeps what is known of the costs.
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

    Raises
    ------
    Diverged
        When the iterates grow without bound or stop being numbers. The exception's ``result`` has
        all rounds before.
    """
    oracle = problem.clients if isinstance(problem, Problem) else problem
    instance("problem", oracle, "a Problem, or an oracle with m, d and ask", "ask")
    clients = clients_of(oracle)
    if not 0 < number("participation", participation) <= 1:
        raise InputError(
            "participation must be a share of the clients, above 0 and at most 1, "
            f"not {participation!r}"
        )
    if participation < 1 and getattr(method, "clients", 1.0) != 1.0:
        raise InputError(
            f"{type(method).__name__}(clients=...) draws clients by itself: pass that or "
            "participation, not both"
        )
    notes: tuple[str, ...] = ()
    if method is None:
        method, chosen = default_method(clients.pooled(), state, participation, bool(asynchronous))
        notes = (chosen,)
    instance("method", method, "a Method", "update")
    rounded = ""
    if clients.on_device:
        rounded = clients.rounded
        clients = clients_for(method, clients, penalty, participation, callbacks, asynchronous)
    if asynchronous:
        check_asynchronous(asynchronous, clients, participation, state)
        method = asynchronous_of(method)
    elif hasattr(method, "absorb"):
        raise InputError(
            f"{type(method).__name__} takes answers one by one: pass asynchronous=Latency(...), or "
            "True for real time"
        )
    count("rounds", rounds)
    number("tol", tol, strict=False)
    count("seed", seed, least=0)
    if penalty is None:
        penalty = getattr(method, "penalty", None)
    if penalty is not None:
        check_dimension(penalty, clients.d)
        method = with_penalty(method, penalty)
    if x0 is not None and state is not None:
        raise InputError("pass x0 or state, not both: a state has its own x")
    start = check_start(clients, method, x0, state)
    if state is not None and not _goes_on(state, start, clients, penalty):
        state = None
        notes = (*notes, CHANGED)
    start = clients.vector(start)
    rule = StoppingRule()
    if tol > 0 and method.settles:
        rule = ProvedGap(tol)
    if asynchronous:
        rounds *= clients.m
    about = {
        "method": _described(method),
        "clients": clients.m,
        "coordinates": clients.d,
        "rounds": rounds,
        "tol": tol,
        "participation": participation,
        "seed": seed,
    }
    if asynchronous:
        about["asynchronous"] = repr(asynchronous)
    called: list[Callback] = []
    kept = clients
    with ExitStack() as journals:
        for callback in callbacks:
            if isinstance(callback, Keeper):
                kept = journals.enter_context(callback.keeping(kept, about))
            else:
                called.append(callback)
        run = Run(kept, method, rule, rounds, penalty, participation, seed, called, asynchronous)
        result = run.go(start, state)
    if rounded and isinstance(method, FedSplit):
        result = refined(result, clients, tol, rounds, called)
    if rounded and tol > 0 and not result.converged:
        notes = (*notes, UNREFINED)
    result = replace(result, certificate=result.certificate.about(rounded))
    if result.removed:  # the state is of fewer clients than the next run may have
        return replace(result, notes=(*notes, *result.notes))
    ended = with_origin(result.state, Origin.at(result.x, clients, penalty, run.asked))
    return replace(result, state=ended, notes=(*notes, *result.notes))


def _goes_on(state: State, x: Array, clients: Clients, penalty: Penalty | None) -> bool:
    """Whether the state, whose x is given on the host, is one of this problem."""
    if on_host(state.x) == clients.on_device:
        return False
    known = origin_of(state)
    return known is None or known.is_that_of(Origin.at(x, clients, penalty))


def clients_for(
    method: Method[Any],
    clients: Clients,
    penalty: Penalty | None,
    participation: float,
    callbacks: Sequence[Callback | Keeper],
    asynchronous: Latency | bool,
) -> Clients:
    """The clients on a device as a method asks them: each for itself, or all of them together.

    Raises InputError if the run has no device path.
    """
    refused = {
        "participation below 1": participation < 1.0,
        "asynchronous": bool(asynchronous),
        "Checkpoint": any(isinstance(callback, Keeper) for callback in callbacks),
    }
    for name, asked in refused.items():
        if asked:
            raise InputError(f"{name} has no device path: leave it out")
    kind = type(method).__name__
    if isinstance(method, OF_SUMS):
        return clients.pooled()
    if not isinstance(method, OF_EACH):
        names = ", ".join(each.__name__ for each in (*OF_EACH, *OF_SUMS))
        raise InputError(f"{kind} has no device path: use one of {names}")
    if penalty is not None or getattr(method, "penalty", None) is not None:
        raise InputError(
            f"{kind} with a penalty has no device path: use FedSplitInformation, GD or AGD"
        )
    return clients


def check_asynchronous(
    asynchronous: Latency | bool, clients: Clients, participation: float, state: State | None
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


def _described(method: Method[Any]) -> str:
    """A method with its settings, in words that identify it in every process."""
    text = type(method).__name__
    if is_dataclass(type(method)):
        text = re.sub(" at 0x[0-9a-fA-F]+", "", repr(method))  # without addresses of objects
    return text


def check_start(
    clients: Clients, method: Method[Any], x0: Array | None, state: State | None
) -> Array:
    """The point where a run starts, (d,): that of the state, or else x0, or else 0.

    Raises InputError if it is not d finite numbers, or if the state is of another method or of
    another problem.
    """
    given = x0
    if state is not None:
        if not isinstance(state, method.state_type):
            raise InputError(
                f"state: {type(method).__name__} continues from {method.state_type.__name__}, "
                f"not {type(state).__name__}"
            )
        if state.iterate.shape not in ((clients.d,), (clients.m, clients.d)):
            raise InputError(
                f"state: it is not of {clients.m} clients and {clients.d} coordinates: "
                f"{state.iterate.shape}"
            )
        given = state.x
    if given is None:
        return np.zeros(clients.d)
    x = numbers(given)
    if x is None:
        raise InputError(
            f"the start must be {clients.d} finite numbers, not of type {type(given).__name__}"
            + " (pass a result's state as state=)" * hasattr(given, "x")
        )
    if x.shape != (clients.d,) or not np.isfinite(x).all():
        raise InputError(f"the start must be {clients.d} finite numbers, its shape is {x.shape}")
    return x
