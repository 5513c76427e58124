"""Three hospitals that fit one model, and the stored data of six sites."""

from pathlib import Path

import numpy as np
import pandas as pd

import fedsplit as fs

RANDHIE = str(Path(__file__).parent.parent / "examples" / "randhie" / "*.csv")
FORMULA = "mdvis ~ logc + idp + fmde + physlm + C(health)"


def people(seed: int = 0, sizes: tuple[int, ...] = (60, 45, 30)) -> dict[str, pd.DataFrame]:
    """Three hospitals, a little different from each other."""
    rng = np.random.default_rng(seed)
    frames = {}
    for j, n in enumerate(sizes):
        age = rng.normal(50 + 5 * j, 12, n)
        ward = rng.choice(["north", "south", "west"], n)
        eta = 0.03 * (age - 50) + 0.4 * (ward == "south") - 0.2 * j
        frames[f"hospital{j}"] = pd.DataFrame(
            {
                "age": age,
                "ward": ward,
                "stay": rng.gamma(2.0, np.exp(0.3 * eta) / 2.0),
                "visits": rng.poisson(np.exp(0.5 * eta)),
                "ill": (rng.logistic(size=n) < eta).astype(int),
                "hours": rng.uniform(1, 9, n),
                "score": eta + rng.standard_normal(n),
            }
        )
    return frames


def write(frames: dict[str, pd.DataFrame], folder: Path) -> list[str]:
    """Write one CSV file per client; return their paths."""
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return [str(folder / f"{name}.csv") for name in frames]


def proved(model: fs.Model) -> float:
    """Return the proved distance from the pooled fit, in standard errors."""
    bound = model.certificate.standard_errors
    assert bound is not None
    return bound
