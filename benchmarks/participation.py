"""Rounds with a tenth of the clients beside rounds with all of them: ``make bench-open``.

Logistic data of 110 clients with 20 to 400 rows and 68 columns, a ridge of 1. Prints Markdown.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fedsplit as fs
from fedsplit.methods.method import Method
from measuring import head, row

CLIENTS = 110
COLUMNS = 68
SEEDS = 4

METHODS: dict[str, Method[Any] | None] = {
    "default": None,
    "QuasiNewton": fs.QuasiNewton(),
    "FedSplitInformation": fs.FedSplitInformation(),
}


def problem(seed: int) -> fs.Problem:
    """Return random clients of different sizes."""
    rng = np.random.default_rng(seed)
    x = 1.5 * rng.standard_normal(COLUMNS) / np.sqrt(COLUMNS)
    data = []
    for n in rng.integers(20, 400, CLIENTS):
        A = rng.standard_normal((n, COLUMNS))
        A[:, 0] = 1.0
        data.append((A, np.where(rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-A @ x)), 1.0, -1.0)))
    return fs.Problem(fs.Logistic(), data, ridge=1.0)


def main() -> None:
    """Print a row for each method and problem."""
    print("Rounds of a run that ends with a proof, without those of the set-up and of the proof.")
    head("method", "seed", "all clients", "a tenth", "ratio", "answers", "both proved")
    for seed in range(SEEDS):
        p = problem(seed)
        for name, method in METHODS.items():
            runs = [fs.solve(p, method, participation=share, rounds=1000) for share in (1.0, 0.1)]
            rounds = [np.count_nonzero(run.trace.kind == "round") for run in runs]
            answers = [int(run.trace.answered[run.trace.kind == "round"].sum()) for run in runs]
            row(
                name,
                str(seed),
                *(str(each) for each in rounds),
                f"{rounds[1] / rounds[0]:.1f}",
                " and ".join(str(each) for each in answers),
                str(all(run.converged for run in runs)),
            )


if __name__ == "__main__":
    main()
