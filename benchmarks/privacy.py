"""Coverage of the intervals of logistic fits with noise, and what the noise costs.

Usage: python benchmarks/privacy.py [--sets N]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

import fedsplit as fs
from fedsplit.arrays import Array

TRUTH = np.array([-0.4, 0.8, 0.5, -0.3])
FORMULA = "y ~ x + z + old"
CLIP = 2.0


def simulated(n: int, m: int, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Rows of m clients, none of which is longer than CLIP."""
    found = {}
    for j in range(m):
        x, z = rng.uniform(-1, 1, (2, n))
        old = rng.integers(0, 2, n)
        eta = np.column_stack([np.ones(n), x, z, old]) @ TRUTH
        y = (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(int)
        found[f"site{j}"] = pd.DataFrame({"y": y, "x": x, "z": z, "old": old})
    return found


def measure(epsilon: float, secure: bool, sets: int, n: int, m: int) -> tuple[Array, float, float]:
    """The coverage of each coefficient, and the mean and noise parts of the standard errors."""
    hits = np.zeros(len(TRUTH))
    errors, noises = [], []
    for seed in range(sets):
        data = simulated(n, m, np.random.default_rng(seed))
        model = fs.fit(
            data,
            FORMULA,
            family="logistic",
            types=dict.fromkeys(["y", "x", "z", "old"], "number"),
            levels={"y": ["0", "1"]},
            secure=secure,
            dp=fs.Privacy(epsilon, 1e-6, CLIP, 5, seed=seed),
        )
        assert model.noised is not None
        interval = model.conf_int().to_numpy()
        hits += (interval[:, 0] <= TRUTH) & (interval[:, 1] >= TRUTH)
        errors.append(model.errors.mean())
        noises.append(np.mean(model.noised.noise_se))
    return hits / sets, float(np.mean(errors)), float(np.mean(noises))


def main() -> None:
    """Print one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    sets = parser.parse_args().sets
    n, m = 2000, 3
    print(f"logistic, {m} clients of {n:,} rows, d = {len(TRUTH)}, δ = 1e-6, {sets} data sets")
    print("epsilon  noise    coverage by coefficient      mean    SE      of noise")
    for epsilon, secure in ((1.0, False), (1.0, True), (4.0, False), (4.0, True)):
        share, error, noise = measure(epsilon, secure, sets, n, m)
        kind = "shared" if secure else "each"
        each = " ".join(f"{value:.3f}" for value in share)
        print(f"{epsilon:7g}  {kind:7}  {each:27}  {share.mean():.4f}  {error:.4f}  {noise:.4f}")


if __name__ == "__main__":
    main()
