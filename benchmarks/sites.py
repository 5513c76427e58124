"""Seconds from many small files to agreed moments: ``make bench-sites``.

The ratio is to the time in which pandas reads the same files, in the same process. The two take
turns, after one warm-up each, and imports are not counted. Prints Markdown.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from fedsplit.data.sources.sources import sources
from fedsplit.regression.engines import ENGINES
from fedsplit.regression.fit import prepare
from fedsplit.regression.options import FitOptions
from fedsplit.remote.members import Members
from measuring import head, row, side_by_side

SITES, ROWS = 1000, 20
REPETITIONS = 5
FORMULA = "y ~ age + bmi + C(ward) + sex"


def make_sites(folder: Path) -> None:
    """Write the files."""
    rng = np.random.default_rng(0)
    for j in range(SITES):
        frame = pd.DataFrame(
            {
                "y": rng.standard_normal(ROWS).round(3),
                "age": rng.integers(20, 90, ROWS),
                "bmi": (25 + 4 * rng.standard_normal(ROWS)).round(2),
                "sex": rng.choice(["f", "m"], ROWS),
                "ward": rng.choice(["a", "b", "c", "d"], ROWS),
            }
        )
        frame.to_csv(folder / f"site{j:04}.csv", index=False)


def agree(folder: Path) -> None:
    """Read the files, and agree on columns, categories and moments."""
    options = FitOptions(str(folder / "*.csv"), FORMULA)
    found = sources(options.data)
    with ENGINES["local"].of_sources(found, None, None) as channel:
        agreement = prepare(Members(channel, None), options)
    assert sum(moments.n for moments in agreement.moments) == SITES * ROWS


def read(folder: Path) -> None:
    """Read the files with pandas."""
    for path in folder.glob("*.csv"):
        pd.read_csv(path)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_sites(folder)
        ours, theirs = side_by_side([lambda: agree(folder), lambda: read(folder)], REPETITIONS)
    head(f"{SITES} files of {ROWS} rows", "seconds", "pandas reads them in", "ratio")
    row("to agreed moments", f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}")


if __name__ == "__main__":
    main()
