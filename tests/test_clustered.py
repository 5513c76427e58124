"""Standard errors clustered by client, beside R's clubSandwich (``tests/data/clustered.R``)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedsplit as fs
from hospitals import people
from real import randhie

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "clustered.json").read_text(encoding="utf-8"))


def rows() -> pd.DataFrame:
    """Every eighth row of the first year of the RAND study."""
    sites = [frame.assign(site=j) for j, frame in enumerate(randhie().values(), start=1)]
    table = pd.concat(sites, ignore_index=True)
    table = table[table["year"] == 1].iloc[::8]
    return table.assign(place=table["site"], visited=(table["mdvis"] > 0).astype(int))


def grouped() -> pd.DataFrame:
    table = rows().assign(trials=1)
    kinds = table.groupby(["site", "health", "female"])[["visited", "trials"]].sum().reset_index()
    return kinds.assign(failures=kinds["trials"] - kinds["visited"])


def cars() -> pd.DataFrame:
    return pd.read_csv(DATA / "mtcars.csv").assign(site=lambda table: table["cyl"])


CASES: dict[str, tuple[Any, str, str]] = {
    "gaussian": (rows, "mdvis ~ logc + physlm + female", "gaussian"),
    "gaussian with site effects": (rows, "mdvis ~ C(place) + logc + physlm", "gaussian"),
    "gaussian without intercept": (rows, "mdvis ~ logc + physlm + health - 1", "gaussian"),
    "small gaussian": (cars, "mpg ~ wt + hp", "gaussian"),
    "small gaussian, one slope": (cars, "mpg ~ wt", "gaussian"),
    "logistic": (rows, "visited ~ logc + physlm + health", "logistic"),
    "poisson": (rows, "mdvis ~ logc + physlm + female", "poisson"),
    "poisson with site effects": (rows, "mdvis ~ C(place) + logc + physlm", "poisson"),
    "grouped": (grouped, "cbind(visited, failures) ~ female + health", "logistic"),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_and_degrees_of_freedom_are_those_of_clubsandwich(name: str) -> None:
    table, formula, family = CASES[name]
    model = fs.fit(table(), formula, family=family, group="site")
    assert model.robust_bse is not None
    assert model.robust_df is not None
    expected = EXPECTED[name]
    determined_alone = [each for each in model.params.index if "C(place)" in each]
    if determined_alone:
        determined_alone.append("Intercept")
    assert list(model.robust_bse.index[model.robust_bse.isna()]) == sorted(
        determined_alone, key=list(model.params.index).index
    )
    for ours, theirs in zip(model.params.index, expected["se"], strict=True):
        if ours in determined_alone:
            continue
        own, near = expected["whitened"], expected
        assert model.robust_bse[ours] == pytest.approx(own["se"][theirs], rel=1e-7)
        assert model.robust_df[ours] == pytest.approx(own["df"][theirs], rel=1e-6)
        # the other square root that clubSandwich takes of a glm
        assert model.robust_bse[ours] == pytest.approx(near["se"][theirs], rel=0.05)
        assert model.robust_df[ours] == pytest.approx(near["df"][theirs], rel=0.1)


def test_intervals_have_students_t_of_each_coefficient() -> None:
    model = fs.fit(cars(), "mpg ~ wt", group="site")
    assert model.robust_bse is not None
    expected = EXPECTED["small gaussian, one slope"]
    interval = model.conf_int(alpha=0.1, robust=True)
    width = (interval["upper"] - interval["lower"]) / (2 * model.robust_bse)
    df = np.array(list(expected["df"].values()))
    np.testing.assert_allclose(width, stats.t.ppf(0.95, df), rtol=1e-6)


def test_what_one_client_determines_has_no_error_and_the_table_says_so(tmp_path: Path) -> None:
    frame = pd.concat([each.assign(site=name) for name, each in people().items()])
    model = fs.fit(frame, "score ~ C(site) + age", group="site")
    assert model.robust_bse is not None
    assert model.robust_bse.isna().tolist() == [True, True, True, False]
    assert 0.001 < model.robust_bse["age"] < 0.1
    line = (
        "no robust standard error: Intercept, C(site)[T.hospital1], C(site)[T.hospital2] "
        "(one client alone determines it)"
    )
    assert line in model.summary()
    model.write(tmp_path)
    assert line[1:] in (tmp_path / "report.html").read_text(encoding="utf-8")
    told = fs.load(tmp_path).to_dict()
    assert told["robust_se"]["Intercept"] is None
    assert told["robust_df"]["age"] == model.to_dict()["robust_df"]["age"]
    assert "robust" not in fs.fit(people(), "score ~ age").summary()


def test_a_column_of_one_client_has_no_robust_error() -> None:
    frames = people()
    for name, frame in frames.items():
        frame["drug"] = (np.arange(len(frame)) % 2) * (name == "hospital1")
    model = fs.fit(frames, "visits ~ age + drug", family="poisson")
    assert model.robust_bse is not None
    assert model.robust_bse.index[model.robust_bse.isna()].tolist() == ["drug"]


def test_secure_sums_have_the_plain_sandwich_of_ten_clients_with_one_less_degree() -> None:
    frame = pd.concat(people(0, (200, 150, 150)).values(), ignore_index=True)
    frame["site"] = np.arange(len(frame)) % 12
    model = fs.fit(frame, "score ~ age", group="site", secure=True)
    assert model.robust_df is not None
    assert model.robust_df.tolist() == [11.0, 11.0]
    openly = fs.fit(frame, "score ~ age", group="site")
    assert openly.robust_bse is not None
    assert model.robust_bse is not None
    np.testing.assert_allclose(model.robust_bse, openly.robust_bse, rtol=0.05)
