"""Seconds and memory of reading files: ``python benchmarks/reading.py [SRC]``.

SRC is the ``src`` folder of the other version; without it only this one is measured. Every
measurement has a process of its own: it reads the columns of a model from all files once to warm
up, then several times, and says the shortest processor time, that of a whole fit, and the peak of
its memory. The two versions take turns, so that other work on the machine meets both. Prints
Markdown.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from measuring import head, resident, row

HERE = Path(__file__).parent.parent
RANDHIE = HERE / "examples" / "randhie"
MODELS = {
    "RAND, 6 files": (
        "mdvis ~ logc + idp + fmde + linc + xage + female + educdec + physlm + disea + C(health)",
        "poisson",
    ),
    "1000 files of 20 rows": ("y ~ x + g", "gaussian"),
    "flights, 100 000 rows of 11 columns": (
        "late ~ hour + distance + C(origin) + C(month)",
        "logistic",
    ),
    "the same, quoted": ("late ~ hour + distance + C(origin) + C(month)", "logistic"),
    "200 000 rows in 8 files": ("y ~ x + z + g", "gaussian"),
    "500 columns, 5 used": ("c1 ~ c2 + c3 + c5 + c7", "gaussian"),
    "numbers with exponents": ("y ~ x", "gaussian"),
}
"""The formula and the family of the model of each set of files."""


def make_files(folder: Path) -> dict[str, Path]:
    """Write the files of all models but RAND; return the folder of each."""
    import pandas as pd

    rng = np.random.default_rng(0)

    def normal(n: int, digits: int = 17) -> Any:
        return rng.standard_normal(n).round(digits)

    def flights(n: int) -> pd.DataFrame:
        hour = rng.integers(5, 24, n)
        return pd.DataFrame(
            {
                "year": 2013,
                "month": rng.integers(1, 13, n),
                "day": rng.integers(1, 29, n),
                "delay": np.where(rng.random(n) < 0.02, np.nan, (20 * normal(n)).round()),
                "carrier": rng.choice(["UA", "AA", "DL"], n),
                "origin": rng.choice(["EWR", "JFK", "LGA"], n),
                "distance": rng.choice(np.arange(100, 3000, 13), n),
                "hour": hour,
                "minute": rng.integers(0, 60, n),
                "late": (rng.random(n) < 1 / (1 + np.exp(1.5 - hour / 12))).astype(int),
                "seats": rng.integers(20, 400, n),
            }
        )

    def wide(n: int) -> pd.DataFrame:
        columns = (normal(n, 4) if j % 2 else rng.integers(0, 50, n) for j in range(500))
        return pd.DataFrame({f"c{j}": values for j, values in enumerate(columns)})

    def small(n: int) -> pd.DataFrame:
        return pd.DataFrame({"y": normal(n, 3), "x": normal(n, 2), "g": rng.choice(["u", "v"], n)})

    def rows(n: int) -> pd.DataFrame:
        return pd.DataFrame(
            {"y": normal(n), "x": normal(n), "z": normal(n, 2), "g": rng.choice(["a", "b"], n)}
        )

    exponents = pd.DataFrame({"y": normal(150_000, 6), "x": normal(150_000, 6)})
    exponents.loc[5, "x"] = 3e-05
    flown = [flights(25_000) for _ in range(4)]
    frames = {
        "1000 files of 20 rows": [small(20) for _ in range(1000)],
        "flights, 100 000 rows of 11 columns": flown,
        "the same, quoted": flown,
        "200 000 rows in 8 files": [rows(25_000) for _ in range(8)],
        "500 columns, 5 used": [wide(2_000) for _ in range(2)],
        "numbers with exponents": [exponents],
    }
    folders = {"RAND, 6 files": RANDHIE}
    for number, (name, tables) in enumerate(frames.items()):
        folders[name] = folder / str(number)
        folders[name].mkdir()
        quoting = 2 if name == "the same, quoted" else 0  # all that is no number, or what must be
        for i, table in enumerate(tables):
            table.to_csv(folders[name] / f"s{i}.csv", index=False, quoting=quoting)
    return folders


def measure(folder: str, formula: str, family: str, repetitions: int = 3) -> dict[str, float]:
    """Return the processor seconds of reading and of a fit, and the peak of memory in MB."""
    import fedsplit as fs
    from fedsplit.data.formula.formula import Formula
    from fedsplit.data.sources import sources

    wanted = list(Formula(formula).columns)

    def read() -> None:
        for source in sources(folder):
            try:
                found = source.columns(wanted)
            except TypeError:  # an older version looks at all columns
                found = source.columns()
            source.take({name: found[name].type for name in wanted})  # type: ignore[union-attr]  # all can be read

    def spent(work: Any) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    def fit() -> None:
        fs.fit(folder, formula, family=family)

    fit()
    return {
        "read": min(spent(read) for _ in range(repetitions)),
        "fit": min(spent(fit) for _ in range(repetitions)),
        "peak": resident("VmHWM") / 2**20,
    }


def in_a_process(source: Path, *arguments: str) -> dict[str, float]:
    """Return what a process with these sources prints."""
    paths = os.pathsep.join([str(source), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(others: list[Path], turns: int = 3) -> None:
    """Print a row for each set of files."""
    versions = [*others, HERE / "src"]
    head("files", "read (s)", "times faster", "fit (s)", "times faster", "peak (MB)")
    with tempfile.TemporaryDirectory() as folder:
        folders = make_files(Path(folder))
        for name, (formula, family) in MODELS.items():
            taken: list[list[dict[str, float]]] = [[] for _ in versions]
            for _ in range(turns):
                for source, found in zip(versions, taken, strict=True):
                    found.append(in_a_process(source, str(folders[name]), formula, family))
            best = [
                {key: statistics.median(each[key] for each in found) for key in found[0]}
                for found in taken
            ]
            cells = []
            for key in ("read", "fit"):
                cells.append(" → ".join(f"{each[key]:.3f}" for each in best))
                cells.append(f"{best[0][key] / best[-1][key]:.1f}" if others else "–")
            row(name, *cells, " → ".join(f"{each['peak']:.0f}" for each in best))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--measure", folder, formula, family]:
            print(json.dumps(measure(folder, formula, family)))
        case others:
            main([Path(other) for other in others])
