"""Speed and memory as ratios, each measured side by side in this run: ``make bench``.

A round is the method's ``update``: the server's arithmetic and the clients' answers, without the
measurement of the objective; in brackets on one core. The bare matmul has one core. Times are
medians over interleaved repetitions. Prints Markdown.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedsplit as fs
from fedsplit import threads
from fedsplit.arrays import Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Curvature, Prox
from fedsplit.dialogue import converse
from fedsplit.local.solver import ProxSolver
from fedsplit.loop.conversation import Conversation
from fedsplit.threads import one_blas_thread
from measuring import head, resident, row, side_by_side

CORES = threads.WORKERS


def gaussian(m: int, n: int, d: int, seed: int = 0) -> list[tuple[Array, Array]]:
    """Return m clients with random data, (n, d) and (n,)."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((n, d)), rng.standard_normal(n)) for _ in range(m)]


def least_squares_round(m: int, d: int) -> tuple[float, float, float]:
    """Return times of an exact least squares round, and of one batched matmul of its size.

    Returns
    -------
    all_cores, one_core, bare : float
    """
    conversation = Conversation(fs.Problem(fs.LeastSquares(), gaussian(m, d, d)).clients)
    method = fs.FedSplit(step=0.01)
    state = converse(method.start(np.zeros(d), m), conversation)
    H = np.random.default_rng(1).standard_normal((m, d, d))
    v = np.ones((m, d, 1))
    repetitions = 15 if m * d * d < 3e7 else 7

    def on(cores: int) -> Callable[[], object]:
        def update() -> object:
            threads.WORKERS = cores
            return converse(method.update(state), conversation)

        return update

    all_cores, bare = side_by_side([on(CORES), lambda: np.matmul(H, v)], repetitions)
    one_core, _ = side_by_side([on(1), lambda: np.matmul(H, v)], repetitions)
    threads.WORKERS = CORES
    return all_cores, one_core, bare


def logistic_prox() -> tuple[list[float], list[float]]:
    """Return times, and proved distances from the prox, of ExactProx and of CvxpyProx.

    CVXPY's problems are compiled in the warm-up.
    """
    data = fs.ensembles.logistic(m=10, d=100, n=1000).rows
    clients = fs.Problem(fs.Logistic(), data).clients
    s = 1.0 / float(clients.ask(Curvature()).rows[:, 1].max())
    v = 0.1 * np.random.default_rng(0).standard_normal((10, 100))

    def ask(solver: ProxSolver) -> Answer:
        return clients.ask(Prox(v, s, np.zeros(100), solver))

    times = side_by_side([lambda: ask(fs.ExactProx()), lambda: ask(fs.CvxpyProx())], 3)
    errors = [float(ask(solver).error.max()) for solver in (fs.ExactProx(), fs.CvxpyProx())]
    return times, errors


def sparse_rows(m: int, n: int, d: int, seed: int = 0) -> fs.Problem:
    """Return logistic regression on 0/1 features of skewed frequencies, ridge 1e-3 a row."""
    rng = np.random.default_rng(seed)
    A = (rng.random((n, d)) < np.geomspace(0.9, 0.003, d)).astype(float)
    eta = A @ rng.standard_normal(d)
    b = fs.Logistic().sample(eta - np.quantile(eta, 0.75), rng)
    clients = [(A[rows], b[rows]) for rows in np.array_split(rng.permutation(n), m)]
    return fs.Problem(fs.Logistic(), clients, ridge=1e-3 * n)


def dense_rows(m: int, n: int, d: int) -> fs.Problem:
    """Return logistic regression with fewer rows at a client than columns."""
    clients = [(A, b > 0) for A, b in gaussian(m, n // m, d)]
    return fs.Problem(fs.Logistic(), clients, ridge=1.0)


def beside_lbfgs(problem: fs.Problem) -> list[float]:
    """Return times of a whole run of the vector default, and of L-BFGS, to the same proved gap."""
    return side_by_side(
        [lambda: fs.solve(problem, fs.QuasiNewton()), lambda: fs.solve(problem, fs.LBFGS())], 3
    )


def peak_memory(loss: str, m: int, n: int, d: int) -> float:
    """Return the peak of ``measure_peak`` in a fresh process, over max(bytes of A, 8md²)."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak", loss, *map(str, (m, n, d))],
        capture_output=True,
        check=True,
    )
    peak: float = json.loads(done.stdout)
    return peak / max(8 * m * n * d, 8 * m * d * d)


def measure_peak(loss: str, m: int, n: int, d: int) -> int:
    """Return bytes of memory that a problem and five rounds take, beyond the caller's arrays."""

    def problem(m: int, n: int, seed: int) -> Callable[[], fs.Problem]:
        data = [(A, b > 0 if loss == "Logistic" else b) for A, b in gaussian(m, n, d, seed)]
        return lambda: fs.Problem(getattr(fs, loss)(), data)

    small = problem(2, 2 * d, seed=1)
    large = problem(m, n, seed=0)
    fs.solve(small(), rounds=2)  # loads what is imported lazily
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = resident("VmRSS")
    fs.solve(large(), fs.FedSplit(step=0.01), rounds=5, tol=0)
    return resident("VmHWM") - before


def main() -> None:
    """Measure everything and print the table."""
    head("what", "ours", "beside", "ratio")
    with one_blas_thread():
        for m, d in ((25, 500), (1000, 100), (10000, 50), (100, 50), (50, 200), (5000, 200)):
            ours, alone, bare = least_squares_round(m, d)
            row(
                f"least squares round, m={m}, d={d}",
                f"{1e3 * ours:.2f} ms",
                f"matmul {1e3 * bare:.2f} ms",
                f"{ours / bare:.2f} ({alone / bare:.2f})",
            )
        (ours, cvxpy), (error, cvxpy_error) = logistic_prox()
        row(
            "logistic prox, m=10, d=100, n=1000",
            f"{1e3 * ours:.0f} ms",
            f"CVXPY {1e3 * cvxpy:.0f} ms",
            f"{cvxpy / ours:.0f}×",
        )
        row("its proved distance from the prox", f"{error:.0e}", f"CVXPY {cvxpy_error:.0e}", "")
        for make, m, n, d in (
            (sparse_rows, 142, 32561, 123),
            (dense_rows, 10, 3000, 2000),
            (dense_rows, 10, 3000, 5000),
        ):
            ours, other = beside_lbfgs(make(m, n, d))
            row(
                f"QuasiNewton() to a proved gap, logistic, m={m}, n={n}, d={d}",
                f"{ours:.2f} s",
                f"LBFGS() {other:.2f} s",
                f"{ours / other:.2f}",
            )
    for loss, m, n, d in (
        ("LeastSquares", 25, 5000, 500),
        ("LeastSquares", 1000, 100, 100),
        ("LeastSquares", 10000, 50, 50),
        ("LeastSquares", 1000, 50, 100),
        ("Logistic", 25, 5000, 500),
        ("Logistic", 10000, 50, 50),
    ):
        ratio = peak_memory(loss, m, n, d)
        row(f"peak memory, {loss}, m={m}, n={n}, d={d}", "", "max(A, 8md²)", f"{ratio:.2f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--peak", loss, *sizes]:
            print(measure_peak(loss, *map(int, sizes)))
        case _:
            main()
