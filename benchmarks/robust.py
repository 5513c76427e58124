"""Coverage of 95 % intervals where rows of one client are alike, with few clients and with many.

A column differs between clients (part of it is the same for all rows of one), and the clients have
effects of their own, random intercepts, or none. Intervals are model-based, by the plain sandwich
with m/(m - 1) and normal quantiles, and by CR2 with Satterthwaite's degrees of freedom.

Usage: python benchmarks/robust.py [--sets N]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

import fedsplit as fs
from fedsplit.arrays import Array

ROWS = 30
"""Rows of a client, on average: clients differ by up to three times that."""

EFFECT = 0.7
"""The deviation of the clients' effects; that of a row's noise is 1."""


def simulated(m: int, effect: float, family: str, rng: np.random.Generator) -> pd.DataFrame:
    """Rows of m clients, of unlike numbers, whose coefficients are all 0.3."""
    site = np.repeat(np.arange(m), rng.integers(ROWS // 3, 3 * ROWS, m))
    n = len(site)
    between = rng.standard_normal(m)[site]
    table = pd.DataFrame({"site": site, "x": rng.standard_normal(n), "z": between})
    eta = 0.3 + 0.3 * table.x + 0.3 * table.z + effect * rng.standard_normal(m)[site]
    if family == "gaussian":
        return table.assign(y=eta + rng.standard_normal(n))
    table["y"] = (rng.logistic(size=n) < eta).astype(int)
    if (table.groupby("site")["y"].nunique() < 2).any():
        return simulated(m, effect, family, rng)  # an effect would be without bound
    return table


def covered(table: pd.DataFrame, formula: str, family: str) -> Array:
    """Whether each interval has 0.3 in it, (3, 2): of x and z, in the order of the docstring."""
    model = fs.fit(table, formula, family=family, group="site")
    robust = model.robust_bse
    assert robust is not None
    terms = ["x", "z"] if "z" in formula else ["x"]
    intervals = [model.conf_int(), plain_sandwich(table, model), model.conf_int(robust=True)]
    found = np.full((3, 2), np.nan)
    for row, each in zip(found, intervals, strict=True):
        inside = (each["lower"] <= 0.3) & (each["upper"] >= 0.3)
        row[: len(terms)] = inside[terms]
    return found


def plain_sandwich(table: pd.DataFrame, model: fs.Model) -> pd.DataFrame:
    """Intervals by m/(m - 1) Σ g_j g_jᵀ and the normal quantile."""
    site = table["site"].to_numpy()
    names = list(model.params.index)
    columns = [site == int(name[10:-1]) if "site" in name else table[name] for name in names[1:]]
    A = np.column_stack([np.ones(len(table)), *columns]).astype(float)
    mean, y = model.predict(table).to_numpy(), table["y"].to_numpy()
    weights = np.ones_like(mean) if model.family.name == "gaussian" else mean * (1 - mean)
    V = np.linalg.inv(A.T @ (weights[:, None] * A))
    scores = np.stack([A[site == j].T @ (y - mean)[site == j] for j in np.unique(site)])
    m = len(scores)
    errors = np.sqrt(m / (m - 1) * np.diag(V @ scores.T @ scores @ V))
    return pd.DataFrame(
        {"lower": model.params - 1.96 * errors, "upper": model.params + 1.96 * errors}
    )


def main() -> None:
    """Print one row of a table for each design."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=400)
    sets = parser.parse_args().sets
    print("| family | clients | effects of clients | terms | model | plain sandwich | CR2 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    designs = [
        ("none", 0.0, "y ~ x + z"),
        ("random", EFFECT, "y ~ x + z"),
        ("in the model", EFFECT, "y ~ C(site) + x"),
    ]
    for family in ("gaussian", "logistic"):
        for m in (4, 6, 10, 30):
            for title, effect, formula in designs:
                rng = np.random.default_rng(1)
                found = [
                    covered(simulated(m, effect, family, rng), formula, family) for _ in range(sets)
                ]
                # z is the same in all rows of a client, and left out beside effects of clients
                shares = 100 * np.mean(found, axis=0)
                known = np.isfinite(shares[0])
                cells = [" and ".join(f"{value:.0f} %" for value in row[known]) for row in shares]
                terms = " and ".join(np.array(["x", "z"])[known])
                print(f"| {family} | {m} | {title} | {terms} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
