"""A round on every engine, side by side in this run: ``make bench-engines``, a few minutes.

A round is the method's ``update``: the server's arithmetic and the clients' answers, without the measurement of the
objective. Times are medians over interleaved repetitions, BLAS on one thread, Ray on this machine with two workers.
Prints Markdown.
"""

from __future__ import annotations

import statistics
import subprocess
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
from fedsplit.methods.method import State
from fedsplit.threads import one_blas_thread

WORKERS = 2
RATIO, BESIDE = 10.0, 5e-3
"""The goal: a round on Ray takes at most RATIO times that of this process, and BESIDE seconds."""

SECONDS, FEWEST, MOST = 1.5, 7, 200
"""How long a measurement takes, about, and its repetitions."""

BEFORE = 12
"""The rounds of a run before the one that is measured, so that the server remembers some."""

ROUNDS = 30
"""Of a run with a checkpoint, and of one without."""

Engine = Callable[[fs.Problem], AbstractContextManager[fs.Clients]]

ENGINES: dict[str, Engine] = {
    "in process": lambda problem: nullcontext(problem.clients),
    f"Ray, {WORKERS} workers": lambda problem: fs.RayClients(problem, cohorts=WORKERS),
}
"""The columns of the tables. The first is what the others are compared with; one more engine is one more line."""

METHODS: dict[str, Callable[[], fs.FedSplit]] = {
    "plain": lambda: fs.FedSplit.plain(step=0.01),
    "as it comes": fs.FedSplit,
}


def least_squares(m: int, d: int, n: int) -> fs.Problem:
    """The paper's random least squares."""
    return fs.Problem(fs.LeastSquares(), ensembles.isotropic(m, d, n).clients)


def logistic(m: int, d: int, n: int) -> fs.Problem:
    """Its logistic regression, with margins of order 1."""
    return fs.Problem(fs.Logistic(), ensembles.logistic(m, d, n, scale=1 / d).clients)


def seconds(work: Callable[[], object]) -> float:
    """The time that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def side_by_side(works: Sequence[Callable[[], object]]) -> list[float]:
    """Median times of pieces of work, run in turns after one warm-up each."""
    once = sum(seconds(work) for work in works)
    repetitions = int(min(MOST, max(FEWEST, SECONDS / once)))
    times = [[seconds(work) for work in works] for _ in range(repetitions)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


@contextmanager
def everywhere(problem: fs.Problem) -> Iterator[Mapping[str, fs.Clients]]:
    """The problem's clients on every engine."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(engine(problem)) for name, engine in ENGINES.items()}


def rounds_of(method: fs.FedSplit, clients: Mapping[str, fs.Clients]) -> tuple[list[float], State]:
    """A round's time on each engine, in the midst of a run, and the state before it."""
    first = next(iter(clients.values()))
    state = method.start(first, np.zeros(first.d))
    for _ in range(BEFORE):
        state = method.update(first, state)

    def update(asked: fs.Clients) -> Callable[[], object]:
        return lambda: method.update(asked, state)

    return side_by_side([update(asked) for asked in clients.values()]), state


def megabytes(value: Any) -> float:
    """What the arrays of a state take."""
    if isinstance(value, np.ndarray):
        return value.nbytes / 1e6
    return sum(map(megabytes, value)) if isinstance(value, tuple) else 0.0


def row(*cells: str) -> None:
    """Print one line of a table."""
    print("| " + " | ".join(cells) + " |", flush=True)


def head(*cells: str) -> None:
    """Print the first two lines of a table."""
    print()
    row(*cells)
    row(*["---"] * len(cells))


def milliseconds(times: Sequence[float]) -> list[str]:
    """Times as cells."""
    return [f"{1e3 * each:.2f} ms" for each in times]


def against_the_goal() -> None:
    """A round at 100 clients, d = 100: what an engine adds."""
    goal_named = f"goal: ≤ {RATIO:.0f} × + {1e3 * BESIDE:.0f} ms"
    head("least squares, m = 100, d = 100, n = 200", *ENGINES, "ratio", goal_named)
    began = time.perf_counter()
    with everywhere(least_squares(100, 100, 200)) as clients:
        ready = time.perf_counter() - began
        for name, make in METHODS.items():
            times, _ = rounds_of(make(), clients)
            here, *others = times
            goal = RATIO * here + BESIDE
            said = [
                f"≤ {1e3 * goal:.1f} ms, {'met' if other <= goal else 'NOT met'}"
                for other in others
            ]
            row(
                f"FedSplit, {name}",
                *milliseconds(times),
                *[f"{other / here:.1f}" for other in others],
                *said,
            )
    print(f"\nTo start the engines and their workers, once a process: {ready:.1f} s.", flush=True)


def growth(
    title: str, make: Callable[[int, int, int], fs.Problem], sizes: Sequence[tuple[int, int, int]]
) -> None:
    """How a round grows with a size, plain and as it comes, and how many rounds a run takes."""
    columns = [f"{name}, {engine}" for name in METHODS for engine in ENGINES]
    head(
        title,
        *columns,
        "bytes a round, both ways",
        "as it comes, the server keeps",
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
        sent = 8 * (last.floats_up + last.floats_down)
        row(
            f"m = {m}, d = {d}, n = {n}",
            *cells,
            f"{sent:,}",
            f"{megabytes(state):.2f} MB",
            str(result.rounds),
        )


def checkpoints() -> None:
    """What it costs to keep a run on disk."""
    head(
        f"{ROUNDS} rounds, m = 100, d = 100, as it comes",
        "without",
        "fs.Checkpoint",
        "every=10",
        "on disk, a round",
    )
    with (
        everywhere(least_squares(100, 100, 200)) as clients,
        tempfile.TemporaryDirectory() as folder,
    ):
        sizes: list[int] = []

        def run(asked: fs.Clients, every: int | None) -> None:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                kept = [] if every is None else [fs.Checkpoint(Path(place) / "run", every=every)]
                fs.solve(asked, rounds=ROUNDS, tol=0, callbacks=kept)
                sizes.append(
                    sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())
                )

        for name, asked in clients.items():
            times = side_by_side([partial(run, asked, every) for every in (None, 1, 10)])
            row(
                name,
                *milliseconds([each / ROUNDS for each in times]),
                f"{max(sizes) // ROUNDS:,} bytes",
            )


ECHO = """
import sys, threading
from pathlib import Path
from fedsplit.remote.flower.node import run_node
server, key, ca, folder = sys.argv[1:]
run_node(server, lambda letter: letter[: len(letter) // 2], key=Path(key), ca=Path(ca), folder=Path(folder),
         status=lambda text: None, stop=threading.Event())
"""
"""A client whose answer to two vectors is one vector."""


def between_organisations(nodes: int, d: int = 100) -> float:
    """Seconds for letters to clients over Flower's protocol, with TLS and keys, and their answers; no arithmetic."""
    from fedsplit.remote.flower.server import Hub
    from fedsplit.remote.keys import make_keys, read_public_keys

    names, letter = [f"client{j}" for j in range(nodes)], bytes(2 * 8 * d)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        keys = Path(place) / "keys"
        make_keys(keys, names, ["127.0.0.1"], 1)
        hub = stack.enter_context(
            Hub("127.0.0.1", 0, keys / "server.crt", keys / "server.key", read_public_keys(keys))
        )
        for name in names:
            told = [
                f"127.0.0.1:{hub.port}",
                keys / "clients" / f"{name}.key",
                keys / "ca.crt",
                Path(place) / name,
            ]
            process = subprocess.Popen([sys.executable, "-c", ECHO, *map(str, told)])
            stack.callback(process.wait, 10)
            stack.callback(process.terminate)
        end = time.perf_counter() + 60
        while len(hub.present()) < nodes and time.perf_counter() < end:
            time.sleep(0.1)
        seconds = []
        for _ in range(30):
            began = time.perf_counter()
            replies = hub.send(dict.fromkeys(names, letter), 10)
            assert all(reply is not None for reply, _, _ in replies.values())
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def organisations() -> None:
    """How long letters take, by the number of clients on this machine."""
    print(
        "\n| fedsplit server and clients, TLS and keys, d = 100 | letters and answers, a round |\n| --- | --- |"
    )
    for nodes in (2, 6):
        print(
            f"| {nodes} clients on this machine | {between_organisations(nodes):.3f} s |",
            flush=True,
        )


def main() -> None:
    """Measure everything and print the tables."""
    began = time.perf_counter()
    with one_blas_thread():
        against_the_goal()
        organisations()
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
