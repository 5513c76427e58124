"""A round on every engine, side by side in this run: ``make bench-engines``, a few minutes.

A round is the method's ``update``: the server's arithmetic and the clients' answers, without the
measurement of the objective. Times are medians over interleaved repetitions, BLAS on one thread,
Ray on this machine with two workers. Prints Markdown.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedsplit as fs
from fedsplit import ensembles
from fedsplit.dialogue import converse
from fedsplit.loop.conversation import Conversation
from fedsplit.threads import one_blas_thread
from measuring import head, row, seconds, side_by_side

WORKERS = 2
BEFORE = 12
"""Rounds of a run before the one that is measured, so that the server has some in its memory."""

ROUNDS = 30
"""Of a run with a checkpoint, and of one without."""

ENGINES: dict[str, Callable[[fs.Problem], AbstractContextManager[fs.Clients]]] = {
    "in process": lambda problem: nullcontext(problem.clients),
    f"Ray, {WORKERS} workers": lambda problem: fs.RayClients(problem, cohorts=WORKERS),
}
"""The columns of the tables; the first is what the others are compared with."""

METHODS: dict[str, Callable[[], fs.Method[Any]]] = {
    "plain": lambda: fs.FedSplit(step=0.01),
    "with defaults": fs.QuasiNewton,
}


def least_squares(m: int, d: int, n: int) -> fs.Problem:
    """Return the paper's random least squares."""
    return fs.Problem(fs.LeastSquares(), ensembles.isotropic(m, d, n).rows)


def logistic(m: int, d: int, n: int) -> fs.Problem:
    """Return its logistic regression, with margins of order 1."""
    return fs.Problem(fs.Logistic(), ensembles.logistic(m, d, n, scale=1 / d).rows)


def timed(works: Sequence[Callable[[], object]]) -> list[float]:
    """Return median times of pieces of work, repeated for about a second and a half."""
    once = sum(seconds(work) for work in works)
    return side_by_side(works, repetitions=int(min(200, max(7, 1.5 / once))))


@contextmanager
def everywhere(problem: fs.Problem) -> Iterator[Mapping[str, fs.Clients]]:
    """Yield the problem's clients on every engine."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(engine(problem)) for name, engine in ENGINES.items()}


def rounds_of(method: fs.Method[Any], clients: Mapping[str, fs.Clients]) -> tuple[list[float], Any]:
    """Return the time of a round on each engine in the middle of a run, and the state before it."""
    conversations = [Conversation(asked) for asked in clients.values()]
    first = conversations[0]
    state = converse(method.start(np.zeros(first.clients.d), first.m), first)
    for _ in range(BEFORE):
        state = converse(method.update(state), first)

    def update(conversation: Conversation) -> object:
        return converse(method.update(state), conversation)

    return timed([partial(update, conversation) for conversation in conversations]), state


def megabytes(value: Any) -> float:
    """Return the size of the arrays of a state."""
    match value:
        case np.ndarray():
            return value.nbytes / 1e6
        case tuple():
            return sum(map(megabytes, value))
    return 0.0


def milliseconds(times: Sequence[float]) -> list[str]:
    """Return times as cells."""
    return [f"{1e3 * each:.2f} ms" for each in times]


def overhead() -> None:
    """Print a round at 100 clients, d = 100: what an engine adds."""
    head("least squares, m = 100, d = 100, n = 200", *ENGINES, "ratio")
    began = time.perf_counter()
    with everywhere(least_squares(100, 100, 200)) as clients:
        ready = time.perf_counter() - began
        for name, make in METHODS.items():
            times, _ = rounds_of(make(), clients)
            here, *others = times
            ratios = [f"{other / here:.1f}" for other in others]
            row(f"FedSplit, {name}", *milliseconds(times), *ratios)
    print(f"\nTo start the engines and their workers, once per process: {ready:.1f} s.", flush=True)


def growth(
    title: str, make: Callable[[int, int, int], fs.Problem], sizes: Sequence[tuple[int, int, int]]
) -> None:
    """Print how a round grows with a size, and how many rounds a run takes."""
    head(
        title,
        *(f"{name}, {engine}" for name in METHODS for engine in ENGINES),
        "bytes per round, both directions",
        "with defaults, the server keeps",
        "rounds to 1e-9",
    )
    for m, d, n in sizes:
        problem = make(m, d, n)
        cells: list[str] = []
        with everywhere(problem) as clients:
            for method in METHODS.values():
                times, state = rounds_of(method(), clients)
                cells += milliseconds(times)
        result = fs.solve(problem)
        last = [each for each in result.trace.rows if each.kind == "round"][-1]
        row(
            f"m = {m}, d = {d}, n = {n}",
            *cells,
            f"{8 * (last.floats_up + last.floats_down):,}",
            f"{megabytes(state):.2f} MB",
            str(result.rounds),
        )


def checkpoints() -> None:
    """Print what it costs to keep a run on disk."""
    head(
        f"{ROUNDS} rounds, m = 100, d = 100, with defaults",
        "without",
        "fs.Checkpoint",
        "every=10",
        "on disk, per round",
    )
    sizes: list[int] = []

    def run(asked: fs.Clients, every: int | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            kept = [] if every is None else [fs.Checkpoint(Path(folder) / "run", every=every)]
            fs.solve(asked, rounds=ROUNDS, tol=0, callbacks=kept)
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            sizes.append(sum(path.stat().st_size for path in files))

    with everywhere(least_squares(100, 100, 200)) as clients:
        for name, asked in clients.items():
            times = timed([partial(run, asked, every) for every in (None, 1, 10)])
            each_round = milliseconds([each / ROUNDS for each in times])
            row(name, *each_round, f"{max(sizes) // ROUNDS:,} bytes")


def main() -> None:
    """Measure everything and print the tables."""
    began = time.perf_counter()
    with one_blas_thread():
        overhead()
        growth("least squares, more clients", least_squares, [(10**k, 10, 20) for k in range(1, 6)])
        growth(
            "least squares, more coordinates",
            least_squares,
            [(20, d, 2 * d) for d in (10, 50, 200, 500)],
        )
        growth("logistic, more observations", logistic, [(20, 20, n) for n in (100, 1000, 10_000)])
        checkpoints()
    print(f"\n{time.perf_counter() - began:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()
