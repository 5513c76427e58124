"""Several methods on one random problem: how many rounds to each gap, or the wrong point that they stop at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedsplit import ensembles
from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.logistic import Logistic
from fedsplit.methods.method import Method, State
from fedsplit.problem import Problem
from fedsplit.rounds.result import Diverged
from fedsplit.rounds.solve import solve
from fedsplit.rounds.trace import Row

TARGETS = (1e-3, 1e-6, 1e-9)
"""The gaps F(x) - F* that a comparison reports the rounds to; a run ends at the last."""

Outcome = Literal["reached", "floor", "falling", "diverged"]


@dataclass(frozen=True)
class Run:
    """One method's run: the gap F(x) - F* at the start and after each round, and what it cost."""

    label: str
    step: float | Array
    gaps: Array
    floats_up: int
    floats_down: int
    outcome: Outcome

    def rounds_to(self, gap: float) -> int | None:
        """The first round after which the gap was at most this."""
        below = np.flatnonzero(self.gaps <= gap)
        return int(below[0]) if below.size else None


CONDITIONED = ("spiked", "shared", "rotated")
"""The ensembles that have a condition number."""

ENSEMBLES = ("isotropic", *CONDITIONED, "scaled", "logistic", "sorted")


def generate(ensemble: str, m: int, d: int, n: int, kappa: float, seed: int) -> Problem:
    """A problem of one of the ensembles, by its name on the command line.

    The logistic ones have x_0 ~ N(0, I/d), for margins of order 1; the sorted one a ridge of 1, without which a client
    with one class has no minimiser.
    """
    match ensemble:
        case "isotropic":
            return Problem(LeastSquares(), ensembles.isotropic(m, d, n, seed=seed).clients)
        case "spiked":
            return Problem(LeastSquares(), ensembles.spiked(m, d, n, kappa, seed=seed).clients)
        case "shared" | "rotated":
            drawn = ensembles.log_uniform(m, d, n, kappa, shared=ensemble == "shared", seed=seed)
            return Problem(LeastSquares(), drawn.clients)
        case "scaled":
            return Problem(LeastSquares(), ensembles.badly_scaled(m, d, n, seed=seed).clients)
        case "logistic":
            return Problem(Logistic(), ensembles.logistic(m, d, n, scale=1 / d, seed=seed).clients)
        case "sorted":
            return Problem(
                Logistic(),
                ensembles.label_sorted(m, d, n, scale=1 / d, seed=seed).clients,
                ridge=1.0,
            )
    raise InputError(f"ensemble {ensemble!r} is not known: use one of {', '.join(ENSEMBLES)}")


def compare(
    problem: Problem,
    methods: Sequence[tuple[str, Method[Any]]],
    rounds: int,
    progress: Callable[[str, int, float], None] = lambda label, done, gap: None,
    clients: Clients | None = None,
) -> list[Run]:
    """Run every (label, method) until the smallest target or for ``rounds`` rounds.

    ``progress(label, done, gap)`` is called after every round. ``clients`` are those of the problem where they are not
    asked in this process; they tell their costs for the gap after every round.
    """
    best = problem.objective(problem.solution())
    asked = problem.clients if clients is None else clients
    return [_run(asked, best, label, method, rounds, progress) for label, method in methods]


def _run(
    clients: Clients,
    best: float,
    label: str,
    method: Method[Any],
    rounds: int,
    progress: Callable[[str, int, float], None],
) -> Run:
    done = 0

    def watch(row: Row, state: State) -> bool:
        nonlocal done
        done += 1
        gap = row.objective - best
        progress(label, done, gap)
        return gap <= TARGETS[-1]

    try:
        result = solve(clients, method, rounds=rounds, tol=0, callbacks=[watch])
    except Diverged as error:
        result = error.result
    gaps = result.trace.objective - best
    if result.stopped_by == "diverged":
        outcome: Outcome = "diverged"
    elif gaps[-1] <= TARGETS[-1]:
        outcome = "reached"
    else:
        stalled = _stalled(gaps, result.state, result.trace.rows[-1].residual)
        outcome = "floor" if stalled else "falling"
    up, down = int(result.trace.floats_up.sum()), int(result.trace.floats_down.sum())
    return Run(label, result.step, gaps, up, down, outcome)


def _stalled(gaps: Array, state: State, residual: float) -> bool:
    """Whether a run stands still: its last quarter changed the gap by less than a hundredth, and z no longer moves."""
    quarter = gaps[-1 - max(2, len(gaps) // 4)]
    still = residual <= 1e-4 * max(1.0, float(np.linalg.norm(state.iterate)))
    return still and bool(abs(quarter - gaps[-1]) <= 0.01 * abs(gaps[-1]))
