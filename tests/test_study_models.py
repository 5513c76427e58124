"""Every kind of model, asked for by approved studies, has the bits of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from carried import replayed
from fedsplit.federation.coordinator import StudyResult
from fedsplit.testing import Federation
from hospitals import write

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("g ~ x + flag + day", {"weights": "w"}),
    ("s ~ x + ward", {"family": "logistic"}),  # ward separates
    ("c ~ x + z", {"family": "logistic", "firth": True}),
    ("m ~ x + z", {"family": "multinomial", "ridge": 1.0, "reference": {"m": "v"}}),
    ("g ~ x", {"family": "gamma"}),
    ("y ~ x + poly(z, 2) + ward", {"family": "poisson"}),
    ("g ~ x + z", {"family": "huber", "delta": 0.5}),
    ("y ~ x + z", {"family": "poisson", "l1": 2.0, "standardize": True}),
    ("c ~ bs(x, df=4) + cut(z, 3)", {"family": "logistic"}),
    ("c ~ x + z", {"family": "logistic", "nonnegative": ["x"]}),
    ("d/t ~ x", {"family": "logistic", "weights": "t"}),
    ("{y > 1} ~ x + C(k):x", {"family": "logistic", "intercept": False}),
    ("y ~ .", {"family": "poisson", "columns": ["x", "ward", "flag"]}),
    ("y ~ x", {"family": "poisson", "columns": ["x", "z", "ward"], "exposure": "w"}),
    ("y ~ x + k", {"family": "poisson", "types": {"k": "text"}}),
]


def rows(seed: int, n: int = 80) -> pd.DataFrame:
    """Rows with a column for every kind of model."""
    rng = np.random.default_rng(seed + 9)
    x = rng.standard_normal(n)
    ward = rng.choice(["east", "west", "north"], n)
    found = pd.DataFrame(
        {"y": rng.poisson(np.exp(0.3 * x + 0.2 * (ward == "west"))), "x": x, "ward": ward}
    )
    found["z"] = rng.standard_normal(n)
    found["c"] = (rng.random(n) < 1 / (1 + np.exp(-found.x))).astype(int)
    found["g"] = np.exp(0.3 * rng.standard_normal(n) + 0.2 * found.x)
    found["m"] = rng.choice(["u", "v", "w"], n)
    found["s"] = (found.ward == "east").astype(int) * found.c
    found["t"] = rng.integers(3, 9, n)
    found["d"] = rng.binomial(found.t, 0.4)
    found["flag"] = rng.random(n) < 0.5
    found["k"] = rng.integers(1, 4, n)
    found["w"] = rng.random(n) + 0.5
    found["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    found.loc[3, "z"] = np.nan
    return found


@pytest.mark.parametrize(("formula", "settings"), MODELS, ids=lambda value: str(value)[:40])
def test_an_approved_study_has_the_bits_of_one_process_and_its_record_has_them_again(
    tmp_path: Path, formula: str, settings: dict[str, Any]
) -> None:
    frames = {name: rows(seed) for seed, name in enumerate("abc")}
    federation = Federation(tmp_path, frames, secure_sums_only=False, rules="warn", questions=200)
    here = fs.fit(write(frames, tmp_path), formula, **settings)
    study = federation.regression(formula, secure=False, questions=200, **settings)
    found = federation.run(study)
    assert isinstance(found, StudyResult)
    for there in (found.result, replayed(federation, study).result):
        assert np.array_equal(here.params, there.params, equal_nan=True)
        assert here.rounds == there.rounds
    assert federation.site("a").record.first_wrong_entry() == 0
