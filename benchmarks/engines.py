"""A round on every engine, side by side in this run: ``make bench-engines``, a few minutes.

A round is the method's ``update``: the server's arithmetic and the clients' answers, without the
measurement of the objective. Times are medians over interleaved repetitions, BLAS on one thread,
Ray on this machine with two workers. Prints Markdown.
"""

from __future__ import annotations

import argparse
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


ECHO = """
import sys, threading
from pathlib import Path
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.endpoint import Endpoint
server, key, ca = sys.argv[1:]
run_client(Endpoint(server, key=Path(key), ca=Path(ca)),
           lambda message: message[: len(message) // 2],
           status=lambda text: None, stop=threading.Event())
"""
"""A client whose answer to two vectors is one vector."""


def between_organisations(nodes: int, d: int = 100) -> float:
    """Return the seconds of messages to clients and their answers, without arithmetic.

    They go over HTTPS, with certificates on both sides.
    """
    from fedsplit.remote.https.server import HttpsServer
    from fedsplit.remote.issuing import make_keys

    names = [f"client{j}" for j in range(nodes)]
    message = bytes(2 * 8 * d)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        keys = folder / "keys"
        make_keys(keys, names, ["127.0.0.1"], 1)
        server = stack.enter_context(HttpsServer("127.0.0.1", 0, keys))
        for name in names:
            arguments = [f"127.0.0.1:{server.port}", keys / "clients" / f"{name}.key"]
            arguments.append(keys / "ca.crt")
            process = subprocess.Popen([sys.executable, "-c", ECHO, *map(str, arguments)])
            stack.callback(process.wait, 10)
            stack.callback(process.terminate)
        end = time.perf_counter() + 60
        while len(server.present()) < nodes and time.perf_counter() < end:
            time.sleep(0.1)
        times = []
        for _ in range(30):
            began = time.perf_counter()
            replies = server.send(dict.fromkeys(names, message), 10)
            times.append(time.perf_counter() - began)
            assert all(reply is not None for reply, _, _ in replies.values())
    return statistics.median(times)


def organisations() -> None:
    """Print how long messages take, by the number of clients on this machine."""
    head("fedsplit server and clients, TLS and keys, d = 100", "messages and answers, per round")
    for nodes in (2, 6):
        row(f"{nodes} clients on this machine", f"{between_organisations(nodes):.3f} s")


HELD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fedsplit.remote.https.server import HttpsServer
from measuring import resident
with HttpsServer("127.0.0.1", 0, Path(sys.argv[2])) as server:
    print(server.port, resident("VmRSS"), flush=True)
    for line in sys.stdin:
        print(len(server.present()), resident("VmRSS"), flush=True)
"""
"""A server that says how many clients are there and how much memory it uses."""

WAITING = """
import asyncio, sys
from pathlib import Path
from fedsplit.remote.https.connection import Connection
from fedsplit.remote.https.endpoint import Endpoint
server, keys = sys.argv[1], Path(sys.argv[2])

async def wait(path):
    endpoint = Endpoint(server, key=path, ca=keys / "ca.crt")
    connection = Connection(endpoint, endpoint.tls())
    while True:
        try:
            await connection.next()
        except OSError:
            await asyncio.sleep(1)

async def wait_all():
    await asyncio.gather(*map(wait, sorted((keys / "clients").glob("*.key"))))

asyncio.run(wait_all())
"""
"""Clients in one process, each with its own key and connection, that wait for a question."""


def idle(clients: int) -> None:
    """Print the memory of a server that holds this many clients."""
    from fedsplit.remote.issuing import make_keys

    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        keys = Path(temporary) / "keys"
        make_keys(keys, [f"client{j}" for j in range(clients)], ["127.0.0.1"], 1)
        server = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", HELD, str(Path(__file__).parent), str(keys)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert server.stdin is not None
        assert server.stdout is not None
        port, alone = server.stdout.readline().split()
        waiting = [sys.executable, "-c", WAITING, f"127.0.0.1:{port}", str(keys)]
        process = subprocess.Popen(waiting, stderr=subprocess.DEVNULL)
        stack.callback(process.wait, 10)
        stack.callback(process.terminate)
        end = time.perf_counter() + 60
        present = 0
        while present < clients and time.perf_counter() < end:
            time.sleep(0.5)
            print("look", file=server.stdin, flush=True)
            present, held = map(int, server.stdout.readline().split())
        server.stdin.close()
    head("fedsplit server", "memory")
    row("alone", f"{int(alone) / 1e6:.0f} MB")
    row(f"with {present} clients that wait", f"{held / 1e6:.0f} MB")


def between_machines() -> None:
    """Print the tables of ``fedsplit server``."""
    organisations()
    idle(200)


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", action="store_true", help="the tables of fedsplit server only")
    began = time.perf_counter()
    if parser.parse_args().network:
        with one_blas_thread():
            between_machines()
        return
    with one_blas_thread():
        overhead()
        between_machines()
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
