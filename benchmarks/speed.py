"""Speed and memory as ratios, each measured side by side in this run: ``make bench``.

A round is the method's ``update``: the server's arithmetic and the clients' answers, without the measurement of the
objective; in brackets on one core. The bare matmul has one core. Times are medians over interleaved repetitions.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import fedsplit as fs
from fedsplit import threads
from fedsplit.arrays import Array
from fedsplit.clients.questions import Answer
from fedsplit.prox.solver import ProxSolver
from fedsplit.threads import one_blas_thread

CORES = threads.WORKERS


def seconds(work: Callable[[], object]) -> float:
    """The time that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def side_by_side(
    one: Callable[[], object], other: Callable[[], object], repetitions: int
) -> tuple[float, float]:
    """Median times of two pieces of work, run in turns after one warm-up each."""
    one(), other()
    pairs = [(seconds(one), seconds(other)) for _ in range(repetitions)]
    first, second = zip(*pairs, strict=True)
    return statistics.median(first), statistics.median(second)


def gaussian(m: int, n: int, d: int, seed: int = 0) -> list[tuple[Array, Array]]:
    """Clients with random data."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((n, d)), rng.standard_normal(n)) for _ in range(m)]


def least_squares_round(m: int, d: int) -> tuple[float, float, float]:
    """Times of an exact least squares round, on all cores and on one, and of one bare batched matmul of its size."""
    clients = fs.Problem(fs.LeastSquares(), gaussian(m, d, d)).clients
    method = fs.FedSplit.plain(step=0.01)
    state = method.start(clients, np.zeros(d))
    H = np.random.default_rng(1).standard_normal((m, d, d))
    v = np.ones((m, d, 1))
    repetitions = 15 if m * d * d < 3e7 else 7

    def on(cores: int) -> Callable[[], object]:
        def update() -> object:
            threads.WORKERS = cores
            return method.update(clients, state)

        return update

    all_cores, bare = side_by_side(on(CORES), lambda: np.matmul(H, v), repetitions)
    one_core, _ = side_by_side(on(1), lambda: np.matmul(H, v), repetitions)
    threads.WORKERS = CORES
    return all_cores, one_core, bare


def logistic_prox() -> tuple[tuple[float, float], tuple[float, float]]:
    """Times, and distances from the prox, of ExactProx and of CvxpyProx with its problems compiled before."""
    data = fs.ensembles.logistic(m=10, d=100, n=1000).clients
    clients = fs.Problem(fs.Logistic(), data).clients
    s = 1.0 / float(clients.curvature().rows[:, 1].max())
    v = 0.1 * np.random.default_rng(0).standard_normal((10, 100))

    def ask(solver: ProxSolver) -> Answer:
        return clients.prox(v, s, np.zeros(100), solver)

    times = side_by_side(lambda: ask(fs.ExactProx()), lambda: ask(fs.CvxpyProx()), 3)
    exact, cvxpy = (float(ask(solver).error.max()) for solver in (fs.ExactProx(), fs.CvxpyProx()))
    return times, (exact, cvxpy)


def peak_memory(loss: str, m: int, n: int, d: int) -> float:
    """Peak memory of building a problem and five rounds, over max(bytes of A, 8md²), beyond the caller's arrays."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak", loss, *map(str, (m, n, d))],
        capture_output=True,
        check=True,
    )
    peak: float = json.loads(done.stdout)
    return peak / max(8 * m * n * d, 8 * m * d * d)


def measure_peak(loss: str, m: int, n: int, d: int) -> int:
    """Bytes of resident memory at its peak, less those before the problem was built (Linux)."""

    def problem(m: int, n: int, seed: int) -> Callable[[], fs.Problem]:
        data = [(A, b > 0 if loss == "Logistic" else b) for A, b in gaussian(m, n, d, seed)]
        return lambda: fs.Problem(getattr(fs, loss)(), data)

    small, large = problem(2, 2 * d, seed=1), problem(m, n, seed=0)
    fs.solve(small(), rounds=2)  # loads what is lazy
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = resident("VmRSS")
    fs.solve(large(), fs.FedSplit.plain(step=0.01), rounds=5, tol=0)
    return resident("VmHWM") - before


def resident(name: str) -> int:
    """Bytes of this process's memory: VmRSS now, VmHWM at its peak."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def main() -> None:
    """Measure everything, then print the table."""
    table = Table(
        "what",
        "ours",
        "beside",
        "ratio",
        "goal",
        title="fedsplit: ratios measured in one run",
        title_justify="left",
    )
    with one_blas_thread():
        for m, d in ((25, 500), (1000, 100), (10000, 50), (100, 50), (50, 200), (5000, 200)):
            ours, alone, bare = least_squares_round(m, d)
            table.add_row(
                f"least squares round, m={m}, d={d}",
                f"{1e3 * ours:.2f} ms",
                f"matmul {1e3 * bare:.2f} ms",
                f"{ours / bare:.2f} ({alone / bare:.2f})",
                "≤ 1.5",
            )
        (ours, cvxpy), (error, cvxpy_error) = logistic_prox()
        table.add_row(
            "logistic prox, m=10, d=100, n=1000",
            f"{1e3 * ours:.0f} ms",
            f"CVXPY {1e3 * cvxpy:.0f} ms",
            f"{cvxpy / ours:.0f}×",
            "≥ 50×",
        )
        table.add_row(
            "its proved distance from the prox",
            f"{error:.0e}",
            f"CVXPY {cvxpy_error:.0e}",
            "",
            "closer",
        )
    for loss, m, n, d in (
        ("LeastSquares", 25, 5000, 500),
        ("LeastSquares", 1000, 100, 100),
        ("LeastSquares", 10000, 50, 50),
        ("LeastSquares", 1000, 50, 100),
        ("Logistic", 25, 5000, 500),
        ("Logistic", 10000, 50, 50),
    ):
        table.add_row(
            f"peak memory, {loss}, m={m}, n={n}, d={d}",
            "",
            "max(A, 8md²)",
            f"{peak_memory(loss, m, n, d):.2f}",
            "≤ 2.5",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    if "--peak" in sys.argv:
        print(measure_peak(sys.argv[2], *map(int, sys.argv[3:])))
    else:
        main()
