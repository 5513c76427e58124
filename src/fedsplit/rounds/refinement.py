"""The last rounds of a run whose local solvers compute in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedsplit.clients.oracle import Clients
from fedsplit.methods.information import FedSplitInformation
from fedsplit.rounds.loop import Callback, Run
from fedsplit.rounds.result import Result
from fedsplit.rounds.stopping import ProvedGap

UNREFINED = (
    "local solvers in float32 may not come closer: go on with solve(problem, x0=result.x), which "
    'adds up Newton steps in float64, or pass dtype="float64"'
)


def refined(
    result: Result, clients: Clients, tol: float, rounds: int, callbacks: Sequence[Callback]
) -> Result:
    """Go on where float32 ends: Newton steps of all clients together, added up in float64.

    Parameters
    ----------
    result : Result
        Of FedSplit on these clients; returned as it is unless float32 has ended it.
    clients : Clients
        On a device, with rows in float32.
    tol : float
    rounds : int
        The budget of the whole run.
    callbacks : sequence of callables
    """
    if result.converged or result.stopped_by != "residual" or result.rounds >= rounds:
        return result
    run = Run(clients.pooled(), FedSplitInformation(), ProvedGap(tol), rounds, callbacks=callbacks)
    run.trace = result.trace
    before = result.rounds
    after = run.go(result.x)
    note = (
        f"float32 ended after {before} rounds: the {after.rounds - before} that follow are Newton "
        "steps, added up in float64"
    )
    return replace(after, notes=(*result.notes, note, *after.notes))
