"""A million clients on one GPU: `make bench-gpu` prints the tables of docs/scale.md.

Everything is measured side by side in one run, and times are medians. A round is the wall time of
`fs.solve` over its number of rounds, with its trace.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

import fedsplit as fs

STEP = 0.1
"""s of plain FedSplit: with ten inner steps of 0.1, the local solvers are stable."""

SOLVERS: dict[str, Any] = {
    "GradientProx(10, step=0.1)": fs.GradientProx(10, step=0.1),
    "GradientProx(10)": fs.GradientProx(10),
    "ExactProx()": fs.ExactProx(),
}


def wait() -> None:
    """Until the GPU has done all it was asked."""
    cp.cuda.Device().synchronize()


def seconds(act: Callable[[], object], repeats: int = 5) -> float:
    """The median time of an act, after one that does not count."""
    act()
    wait()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        act()
        wait()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def logistic(m: int, n: int = 10, d: int = 100, ridge: float = 0.0) -> fs.Problem:
    """Logistic clients, drawn on the GPU."""
    rows = fs.ensembles.logistic(m, d, n, 1 / d, device="cuda", dtype="float32").rows
    return fs.Problem(fs.Logistic(), rows, ridge=ridge)


def least_squares(m: int, n: int = 10, d: int = 100) -> fs.Problem:
    """Least squares clients, drawn on the GPU."""
    rows = fs.ensembles.isotropic(m, d, n, device="cuda", dtype="float32").rows
    return fs.Problem(fs.LeastSquares(), rows)


def per_round(problem: fs.Problem, method: Any, rounds: int = 200, repeats: int = 5) -> float:
    """Milliseconds a round of ``fs.solve``."""
    spent = seconds(lambda: fs.solve(problem, method, rounds=rounds, tol=0), repeats)
    return 1e3 * spent / rounds


def read_once(m: int, n: int = 10, d: int = 100) -> float:
    """Milliseconds that the GPU takes to read A, as half of a copy."""
    A = cp.ones((m, n, d), dtype=cp.float32)
    B = cp.empty_like(A)
    return 1e3 * seconds(lambda: cp.copyto(B, A), 20) / 2


def release() -> None:
    """Give memory back to the GPU."""
    gc.collect()
    cp.get_default_memory_pool().free_all_blocks()


def without_kernels(problem: fs.Problem) -> fs.Problem:
    """The same problem by the plain path over the array API."""
    clients: Any = problem.clients
    clients.local.__dict__["kernels"] = None
    return problem


def proved(m: int) -> dict[str, float]:
    """Seconds from data on the device to a gap of 1e-6·F that is proved, and pooled Newton's."""
    rows = fs.ensembles.logistic(m, 100, 10, 0.01, device="cuda", dtype="float32").rows
    ridge = 1e-3 * m * 10
    found: dict[str, float] = {}

    def run(method: Any = None) -> None:
        result = fs.solve(fs.Problem(fs.Logistic(), rows, ridge=ridge), method, tol=1e-6)
        assert result.certificate.gap is not None
        assert result.converged
        found["gap"] = result.certificate.gap / result.certificate.objective
        found["rounds"] = result.rounds

    found["fs.solve, seconds"] = seconds(run, 3)
    found["fs.Newton(), seconds"] = seconds(lambda: run(fs.Newton()), 3)
    found["FedSplit, plain, seconds"] = seconds(lambda: run(fs.FedSplit(STEP)), 3)
    return found


def table(m: int) -> dict[str, float]:
    """The rows of the table for m clients of ten rows and a hundred columns."""
    found = {"one read of A, ms": read_once(m)}
    release()
    problem = logistic(m)
    for name, solver in SOLVERS.items():
        found[f"{name}, ms"] = per_round(problem, fs.FedSplit(STEP, solver))
    found["FedGD(0.01, 10), ms"] = per_round(problem, fs.FedGD(0.01, 10))
    plain = without_kernels(problem)
    solver = SOLVERS["GradientProx(10, step=0.1)"]
    found["the same by the plain path, ms"] = per_round(plain, fs.FedSplit(STEP, solver), 20)
    del problem, plain
    release()
    squares = least_squares(m)
    found["least squares, ExactProx(), ms"] = per_round(squares, fs.FedSplit(STEP))
    del squares
    release()
    return found


def beside_numpy(m: int) -> dict[str, float]:
    """The same round on this machine's cores, by NumPy, and on the GPU."""
    method = fs.FedSplit(STEP, SOLVERS["GradientProx(10, step=0.1)"])
    data = fs.ensembles.logistic(m, 100, 10, 0.01).rows
    host = fs.Problem(fs.Logistic(), data)
    spent = seconds(lambda: fs.solve(host, method, rounds=5, tol=0), 3)
    gpu = per_round(logistic(m), method)
    return {"NumPy, ms": 1e3 * spent / 5, "GPU, ms": gpu, "ratio": 1e3 * spent / 5 / gpu}


def sweep(shapes: list[tuple[int, int, int]]) -> list[dict[str, float]]:
    """Milliseconds a round for problems of m clients, n rows and d columns."""
    method = fs.FedSplit(STEP, SOLVERS["GradientProx(10, step=0.1)"])
    found = []
    for m, n, d in shapes:
        problem = logistic(m, n, d)
        rounds = 200 if n <= 32 and d <= 128 else 20
        spent = per_round(problem, method, rounds, 3)
        found.append({"m": m, "n": n, "d": d, "ms": spent, "GB": 4e-9 * m * n * d})
        del problem
        release()
    return found


def figure(sweeps: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Time a round against m, n and d, beside the time to read A."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    _, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
    speed = 4.0e3  # bytes a nanosecond is GB a ms; H200: about 4.1 GB a ms
    for ax, (name, rows) in zip(axes, sweeps.items(), strict=True):
        at = [row[name] for row in rows]
        ax.loglog(at, [row["ms"] for row in rows], "o-", label="a round of fs.solve")
        reads = [row["GB"] / (speed / 1e3) for row in rows]
        ax.loglog(at, reads, "--", color="grey", label="one read of the rows")
        ax.set_xlabel({"m": "clients", "n": "rows per client", "d": "columns"}[name])
    axes[0].set_ylabel("ms")
    axes[0].legend(frameon=False)
    plt.tight_layout()
    plt.savefig(path, dpi=120)


def main() -> None:
    """Measure and print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10**6)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--quick", action="store_true", help="without ten million clients")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    m = options.clients
    found: dict[str, Any] = {}

    def keep(name: str, what: Callable[[], Any]) -> None:
        found[name] = what()
        release()
        print(name)
        print(json.dumps(found[name], indent=1, default=float), flush=True)
        (options.out / "gpu.json").write_text(json.dumps(found, indent=1))

    name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, CuPy {cp.__version__}, NumPy {np.__version__}")
    keep(f"{m:,} clients", lambda: table(m))
    keep("proved", lambda: proved(m))
    keep("beside NumPy", lambda: beside_numpy(m // 10))
    if not options.quick:
        method = fs.FedSplit(STEP, SOLVERS["GradientProx(10, step=0.1)"])
        keep("ten times as many, ms", lambda: per_round(logistic(10 * m), method, 200, 3))
    top = 7 if options.quick else 8
    shapes = [10**k for k in range(3, top)]
    keep("m", lambda: sweep([(k, 10, 100) for k in shapes]))
    keep("n", lambda: sweep([(m // 4, n, 100) for n in (1, 2, 5, 10, 20, 32, 64)]))
    keep("d", lambda: sweep([(m // 4, 10, d) for d in (4, 10, 25, 50, 99, 100, 128, 200)]))
    figure({name: found[name] for name in ("m", "n", "d")}, options.out / "gpu.png")


if __name__ == "__main__":
    main()
