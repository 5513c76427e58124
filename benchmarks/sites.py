"""Seconds from many small files to agreed moments, and to a table: ``make bench-sites``.

The first ratio is to the time in which pandas reads the same files; the second to that in which
pandas reads them and statsmodels fits the pooled rows. All take turns in one process, after one
warm-up each, and imports are not counted. Prints Markdown.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import fedsplit as fs
from fedsplit.channels.members import Members
from fedsplit.data.sources import sources
from fedsplit.regression.engines import ENGINES
from fedsplit.regression.fit import prepare
from fedsplit.regression.options import FitOptions
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


def fit(folder: Path) -> None:
    """Read the files, and fit them to a table."""
    model = fs.fit(str(folder / "*.csv"), FORMULA)
    assert str(SITES * ROWS) in str(model.summary()).replace(",", "")


def read(folder: Path) -> pd.DataFrame:
    """Read the files with pandas."""
    return pd.concat([pd.read_csv(path) for path in sorted(folder.glob("*.csv"))])


def pooled_fit(folder: Path) -> None:
    """Read the files with pandas, and fit the pooled rows with statsmodels to a table."""
    str(smf.ols(FORMULA, read(folder)).fit().summary())


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_sites(folder)
        works = [partial(work, folder) for work in (agree, read, fit, pooled_fit)]
        agreed, reading, fitted, pooled = side_by_side(works, REPETITIONS)
    head(f"{SITES} files of {ROWS} rows", "seconds", "beside", "ratio")
    row(
        "to agreed moments",
        f"{agreed:.2f}",
        f"pandas reads: {reading:.2f}",
        f"{agreed / reading:.2f}",
    )
    row(
        "to a table",
        f"{fitted:.2f}",
        f"pandas reads, statsmodels fits: {pooled:.2f}",
        f"{fitted / pooled:.2f}",
    )


if __name__ == "__main__":
    main()
