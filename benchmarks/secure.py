"""Questions and seconds of fits by secure sums beside open ones: ``make bench-secure``.

All clients are in this process: first as `fedsplit fit` has them, then as sites with keys, records
and ledgers, which mask what they add, new ones for each fit. The two sides take turns, after one
warm-up each. Prints Markdown.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

import fedsplit as fs
from fedsplit.data.types import Type
from fedsplit.federation.coordinator import StudyResult
from fedsplit.testing import Federation
from measuring import head, row, spent_side_by_side

EXAMPLES = Path(__file__).parent.parent / "examples"
FLIGHTS = EXAMPLES / "data" / "flights"
REPETITIONS = 3
RAND = "logc + idp + fmde + linc + xage + female + educdec + physlm + disea + C(health)"


def diabetes() -> dict[str, pd.DataFrame]:
    """442 patients over four clients."""
    table = load_diabetes(as_frame=True, scaled=False).frame
    parts = np.split(np.arange(len(table)), [220, 370, 410])
    return {f"client{j}": table.iloc[part] for j, part in enumerate(parts)}


def twenty(columns: int) -> dict[str, pd.DataFrame]:
    """Twenty clients of a thousand rows, with a 0/1 outcome ``y``."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(columns) / np.sqrt(columns)
    found = {}
    for j in range(20):
        A = rng.standard_normal((1000, columns))
        frame = pd.DataFrame(A, columns=[f"x{i}" for i in range(columns)])
        y = rng.uniform(size=1000) < 1 / (1 + np.exp(-A @ x))
        found[f"client{j}"] = frame.assign(y=y.astype(int))
    return found


def compare(name: str, fits: Sequence[Callable[[], fs.Model]]) -> None:
    """Print a row about one model, fitted openly and by secure sums."""
    models = [fit() for fit in fits]
    apart = np.max(np.abs(models[1].params - models[0].params) / models[0].estimates.errors)
    openly, secure = spent_side_by_side(fits, REPETITIONS)
    row(
        name,
        f"{models[0].exchanges}, {openly.elapsed:.2f} s, {openly.processor:.2f} s",
        f"{models[1].exchanges}, {secure.elapsed:.2f} s, {secure.processor:.2f} s",
        f"{secure.elapsed / openly.elapsed:.2f}, {secure.processor / openly.processor:.2f}",
        f"{apart:.0e}",
        f"{models[1].certificate.bound:.0e}",
    )


def in_process(name: str, data: Any, formula: str, family: str) -> None:
    """Print a row about clients as ``fit`` has them."""
    compare(
        name,
        [partial(fs.fit, data, formula, family=family, secure=each) for each in (False, True)],
    )


def by_messages(name: str, data: dict[str, pd.DataFrame], target: str, family: str) -> None:
    """Print a row about sites that answer signed messages, with masks or without."""
    columns = list(next(iter(data.values())))
    formula = f"{target} ~ {' + '.join(column for column in columns if column != target)}"
    types: dict[str, Type] = dict.fromkeys(columns, "number")
    with tempfile.TemporaryDirectory() as folder:
        runs = count()

        def fit(secure: bool) -> fs.Model:
            # a study has one run, and sites with a ledger of their own
            sites = Federation(
                Path(folder) / str(next(runs)), data, secure_sums_only=False, parameters_per_row=1
            )
            study = sites.regression(formula, family=family, types=types, secure=secure)
            ended = sites.run(study)
            assert isinstance(ended, StudyResult)
            model: fs.Model = ended.result
            return model

        compare(name, [partial(fit, each) for each in (False, True)])


def main() -> None:
    """Compare all models and print the table."""
    columns = ("open: questions, seconds, CPU", "secure sums", "ratios: seconds, CPU")
    head("clients in one process", *columns, "apart, SE", "proved, SE")
    in_process("RAND, Poisson, 6 sites", str(EXAMPLES / "randhie"), f"mdvis ~ {RAND}", "poisson")
    in_process("diabetes, Gaussian, 4 clients", diabetes(), "target ~ .", "gaussian")
    for d in (10, 100):
        in_process(f"20 × 1,000 rows × {d}, logistic", twenty(d), "y ~ .", "logistic")
    if FLIGHTS.exists():
        formula = "late ~ hour + distance + C(origin) + C(month)"
        in_process("flights, logistic, 16 carriers", str(FLIGHTS), formula, "logistic")
    head("sites that mask what they add", *columns, "apart, SE", "proved, SE")
    by_messages("diabetes, Gaussian, 4 sites", diabetes(), "target", "gaussian")
    by_messages("20 × 1,000 rows × 10, logistic", twenty(10), "y", "logistic")


if __name__ == "__main__":
    main()
