"""Coverage of the intervals of logistic fits with noise, and their errors beside those of others.

Every data set is also fitted without noise to all rows together, by noisy gradient descent with
the same (ε, δ) and bounds, and by objective perturbation, for which one party has all rows.

Usage: python benchmarks/privacy.py [--sets N] [--least]
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.regression.client.privacy import noise_multiplier

TRUTH = np.array([-0.4, 0.8, 0.5, -0.3])
FORMULA = "y ~ x + z + old"
CLIP = 2.0
DELTA = 1e-6
ROWS = 2000
CLIENTS = 3
DESCENTS = (10, 30, 100)
"""Numbers of gradients, of which the best in hindsight is shown: nobody could choose it so well."""


class Outcome(NamedTuple):
    """Fits of one data set.

    Attributes
    ----------
    covered : (d,) array
        Whether the interval of each coefficient has the truth in it.
    se, noise_se, pooled_se : (d,) arrays
        Standard errors with noise, the part of the noise, and those without any.
    errors : (k, d) array
        Coefficients less the truth: with noise, pooled, by descents, by objective perturbation.
    """

    covered: Array
    se: Array
    noise_se: Array
    pooled_se: Array
    errors: Array


def simulated(rng: np.random.Generator, rows: int = ROWS) -> dict[str, pd.DataFrame]:
    """Rows of some clients, none of which is longer than CLIP."""
    found = {}
    for j in range(CLIENTS):
        x, z = rng.uniform(-1, 1, (2, rows))
        old = rng.integers(0, 2, rows)
        eta = np.column_stack([np.ones(rows), x, z, old]) @ TRUTH
        y = (rng.uniform(size=rows) < expit(eta)).astype(int)
        found[f"site{j}"] = pd.DataFrame({"y": y, "x": x, "z": z, "old": old})
    return found


def minimiser(A: Array, b: Array, linear: Array, ridge: float) -> tuple[Array, Array]:
    """The x of least Σφ_i(x) + linear'x + ridge‖x‖²/2 by Newton's method, and the Hessian there."""
    x = np.zeros(A.shape[1])
    for _ in range(8):  # from zero, more than enough
        mu = expit(A @ x)
        H = (A * (mu * (1 - mu))[:, None]).T @ A + ridge * np.eye(len(x))
        x = x - np.linalg.solve(H, A.T @ (mu - b) + linear + ridge * x)
    return x, H


def descended(A: Array, b: Array, rounds: int, noise: float, rng: np.random.Generator) -> Array:
    """Noisy gradient descent: every gradient has √T times the noise of a single one.

    Its step needs the number of rows, which it gets for nothing.
    """
    x = np.zeros(A.shape[1])
    step = 4.0 / (len(A) * CLIP**2)
    for _ in range(rounds):
        drawn = math.sqrt(rounds) * CLIP * noise * rng.standard_normal(len(x))
        x = x - step * (A.T @ (expit(A @ x) - b) + drawn)
    return x


def perturbed(A: Array, b: Array, epsilon: float, rng: np.random.Generator) -> Array:
    """Objective perturbation (Kifer, Smith and Thakurta 2012, Algorithm 1 with Gaussian noise)."""
    smoothness = CLIP**2 / 4.0
    scale = CLIP * math.sqrt(8.0 * math.log(2.0 / DELTA) + 4.0 * epsilon) / epsilon
    linear = scale * rng.standard_normal(len(TRUTH))
    return minimiser(A, b, linear, 2.0 * smoothness / epsilon)[0]


def fitted(seed: int, epsilon: float, secure: bool) -> Outcome:
    """One data set, fitted in all ways."""
    rng = np.random.default_rng(seed)
    data = simulated(rng)
    model = fs.fit(
        data,
        FORMULA,
        family="logistic",
        types=dict.fromkeys(["y", "x", "z", "old"], "number"),
        levels={"y": ["0", "1"]},
        secure=secure,
        dp=fs.Privacy(epsilon, DELTA, CLIP, 5, seed=seed),
    )
    assert isinstance(model, fs.NoisyModel)
    rows = pd.concat(data.values())
    A = np.column_stack([np.ones(len(rows)), rows[["x", "z", "old"]].to_numpy()])
    b = rows["y"].to_numpy(dtype=float)
    pooled, H = minimiser(A, b, np.zeros(len(TRUTH)), 0.0)
    noise = noise_multiplier(epsilon, DELTA) * math.sqrt(1 if secure else CLIENTS)
    descents = [descended(A, b, rounds, noise, rng) for rounds in DESCENTS]
    found = np.array([model.params, pooled, *descents, perturbed(A, b, epsilon, rng)])
    interval = model.conf_int().to_numpy()
    covered = (interval[:, 0] <= TRUTH) & (interval[:, 1] >= TRUTH)
    noise_se = np.array(model.noise.noise_se)
    pooled_se = np.sqrt(np.diag(np.linalg.inv(H)))
    return Outcome(covered, model.estimates.errors, noise_se, pooled_se, found - TRUTH)


def show(epsilon: float, secure: bool, sets: int) -> None:
    """Print what came out for one setting."""
    outcomes = [fitted(seed, epsilon, secure) for seed in range(sets)]
    covered, se, noise_se, pooled_se, errors = map(np.array, zip(*outcomes, strict=True))
    each = " ".join(f"{share:.3f}" for share in covered.mean(axis=0))
    own, pooled, *descents, curator = np.sqrt(np.square(errors).mean(axis=(0, 2)))
    best = int(np.argmin(descents))
    print(
        f"ε = {epsilon:g}, noise {'shared' if secure else 'at each client'}\n"
        f"  coverage {covered.mean():.4f} ({each})\n"
        f"  mean standard error {se.mean():.4f}, of it by noise {noise_se.mean():.4f}; "
        f"pooled {pooled_se.mean():.4f}\n"
        f"  root mean square error {own:.4f}; pooled {pooled:.4f}, noisy gradient descent "
        f"{descents[best]:.4f} (T = {DESCENTS[best]}), objective perturbation {curator:.4f}",
        flush=True,
    )


def show_least(sets: int) -> None:
    """Print the share of fits that have standard errors, by ε and rows of all clients."""
    sizes = [3 * n for n in (50, 100, 200, 500, 1000, 2000, 5000, 10_000)]
    print(f"| ε | {' | '.join(f'n = {n:,}' for n in sizes)} |")
    print("| --- " * (len(sizes) + 1) + "|")
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
        shares = []
        for n in sizes:
            known = 0
            for seed in range(sets):
                frames = simulated(np.random.default_rng(seed), n // CLIENTS)
                model = fs.fit(
                    frames,
                    FORMULA,
                    family="logistic",
                    types=dict.fromkeys(["y", "x", "z", "old"], "number"),
                    levels={"y": ["0", "1"]},
                    dp=fs.Privacy(epsilon, DELTA, CLIP, 5, seed=seed),
                )
                known += model.bse is not None
            shares.append(f"{known / sets:.0%}")
        print(f"| {epsilon:g} | {' | '.join(shares)} |", flush=True)


def main() -> None:
    """Print every setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--least", action="store_true", help="print which fits have errors at all")
    options = parser.parse_args()
    sets = options.sets
    if options.least:
        show_least(min(sets, 50))
        return
    print(
        f"logistic, {CLIENTS} clients of {ROWS:,} rows, d = {len(TRUTH)}, δ = {DELTA:g}, "
        f"R = {CLIP:g}, T = 5, {sets} data sets"
    )
    for epsilon in (1.0, 4.0):
        for secure in (False, True):
            show(epsilon, secure, sets)


if __name__ == "__main__":
    main()
