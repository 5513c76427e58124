"""The analyst's job: the handshake, the guards, the command, and what a model can do."""

import json
import math
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import fedsplit as fs
from fedsplit.cli import run
from fedsplit.regression.coded import CodedRows, Moments
from fedsplit.regression.estimate import Progress
from fedsplit.regression.families import FAMILIES
from fedsplit.silos.formula import Formula

RANDHIE = str(Path(__file__).parent.parent / "examples" / "randhie" / "*.csv")
FORMULA = "mdvis ~ logc + idp + fmde + physlm + C(health)"


def people(seed: int = 0, sizes: tuple[int, ...] = (60, 45, 30)) -> dict[str, pd.DataFrame]:
    """Three hospitals, a little different from each other."""
    rng = np.random.default_rng(seed)
    frames = {}
    for j, n in enumerate(sizes):
        age, ward = rng.normal(50 + 5 * j, 12, n), rng.choice(["north", "south", "west"], n)
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
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return [str(folder / f"{name}.csv") for name in frames]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return write(people(), tmp_path)


def proved(model: fs.Model) -> float:
    bound = model.certificate.standard_errors
    assert bound is not None
    return bound


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which the command refuses these arguments."""
    assert run(["fit", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fedsplit: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


# the handshake


def test_a_level_that_one_client_lacks_is_no_problem() -> None:
    frames = people()
    frames["hospital2"] = frames["hospital2"][frames["hospital2"].ward != "west"]
    model = fs.fit(frames, "score ~ age + ward")
    pooled = fs.fit(pd.concat(frames.values()), "score ~ age + ward")
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-9)
    assert list(model.coef_.index) == ["Intercept", "age", "ward[T.south]", "ward[T.west]"]


def test_the_order_of_columns_rows_and_clients_does_not_matter() -> None:
    frames = people()
    model = fs.fit(frames, "visits ~ age + ward", family="poisson")
    shuffled = {
        name: frame.sample(frac=1, random_state=1)[list(frame.columns[::-1])]
        for name, frame in reversed(frames.items())
    }
    other = fs.fit(shuffled, "visits ~ age + ward", family="poisson")
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-9)
    np.testing.assert_allclose(other.errors, model.errors, rtol=1e-9)


def test_numbers_at_one_client_and_text_at_another_are_one_category_inside_c() -> None:
    frames = people()
    codes = {"north": 1, "south": 2, "west": 3}
    coded = {name: frame.assign(ward=frame.ward.map(codes)) for name, frame in frames.items()}
    coded["hospital1"] = coded["hospital1"].assign(ward=coded["hospital1"].ward.astype(str))
    model = fs.fit(coded, "score ~ C(ward)")
    assert list(model.coef_.index) == ["Intercept", "C(ward)[T.2]", "C(ward)[T.3]"]
    np.testing.assert_allclose(model.coef_, fs.fit(frames, "score ~ ward").coef_, rtol=1e-9)
    with pytest.raises(fs.InputError, match=r"column ward holds numbers at client hospital0 and text at .*hospital1"):
        fs.fit(coded, "score ~ ward")


def test_a_column_that_is_empty_at_one_client_is_what_it_is_elsewhere(tmp_path: Path) -> None:
    frames = people()
    frames["hospital1"]["age"] = np.nan
    model = fs.fit(write(frames, tmp_path), "score ~ age + ward")
    assert model.n_by_client.to_dict() == {"hospital0": 60, "hospital1": 0, "hospital2": 30}
    assert run(["fit", str(tmp_path), "--formula", "score ~ age + ward"]) == 1  # a client is missing
    assert any("hospital1 has no complete row" in text for text in model.warnings)
    rest = fs.fit({name: frames[name] for name in ("hospital0", "hospital2")}, "score ~ age + ward")
    np.testing.assert_allclose(model.coef_, rest.coef_, rtol=1e-9)


def test_rows_with_missing_values_are_dropped_and_counted_by_client() -> None:
    frames = people()
    frames["hospital0"].loc[[3, 5], "age"] = np.nan
    frames["hospital2"].loc[[1], "ward"] = None
    model = fs.fit(frames, "score ~ age + ward")
    assert model.clients.missing.to_dict() == {"hospital0": 2, "hospital1": 0, "hospital2": 1}
    assert model.n == 132
    np.testing.assert_allclose(model.coef_, fs.fit(pd.concat(frames.values()).dropna(), "score ~ age + ward").coef_)


def test_missing_numbers_are_filled_with_the_mean_over_all_clients() -> None:
    frames = people()
    frames["hospital0"].loc[[3, 5], "age"] = np.nan
    mean = pd.concat(frames.values()).age.mean()
    filled = {name: frame.assign(age=frame.age.fillna(mean)) for name, frame in frames.items()}
    model = fs.fit(frames, "score ~ age + ward", missing="mean")
    assert model.n == 135
    np.testing.assert_allclose(model.coef_, fs.fit(filled, "score ~ age + ward").coef_, rtol=1e-9)
    frames["hospital2"]["ward"] = None
    assert fs.fit(frames, "score ~ age + ward", missing="mean").n_by_client["hospital2"] == 0
    with pytest.raises(fs.InputError, match="client hospital0: column age has 2 missing values"):
        fs.fit(frames, "score ~ age + ward", missing="fail")


@given(st.integers(0, 10**6), st.integers(2, 6))
@settings(max_examples=25)
def test_the_answer_does_not_depend_on_who_has_which_row(seed: int, m: int) -> None:
    pool = pd.concat(people(seed).values(), ignore_index=True)
    rng = np.random.default_rng(seed)
    split = pool.assign(owner=rng.integers(0, m, len(pool)))
    model = fs.fit(split, "ill ~ age + ward", family="logistic", group="owner")
    whole = fs.fit(pool, "ill ~ age + ward", family="logistic")
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.errors, whole.errors, rtol=1e-8)
    assert model.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-10)


def test_a_target_alone_is_a_model_on_all_other_columns(files: list[str]) -> None:
    model = fs.fit(files, target="score")
    terms = ["Intercept", "age", "ward[T.south]", "ward[T.west]", "stay", "visits", "ill", "hours"]
    assert set(model.coef_.index) == set(terms)


# what a fit refuses


BAD: list[tuple[dict[str, Any], str]] = [
    ({"formula": "score ~ aeg"}, "client hospital0: there is no column aeg, did you mean age?"),
    ({"formula": "score ~ age", "family": "gauss"}, "family 'gauss' is not known"),
    ({"formula": "score ~ age", "family": "poisson"}, "score is -"),
    ({"formula": "score ~ age", "family": "gamma"}, "for gamma it must be above zero"),
    ({"formula": "visits ~ age", "family": "logistic"}, "logistic needs two"),
    ({"formula": "ward ~ age"}, "column ward holds text"),
    ({"formula": "{score > 100} ~ age", "family": "logistic"}, "of the same class"),
    ({"formula": "{age + 1} ~ score", "family": "multinomial"}, "multinomial needs a column"),
    ({"formula": "score ~ age + I(2 * age)"}, "column I(2 * age) is a combination of age over all clients"),
    ({"formula": "score ~ age + I(0 * age)"}, "column I(0 * age) is 0 in every row of every client"),
    ({"formula": "score ~ age + hours + {age - hours}"}, "a combination of age, hours"),
    ({"formula": "score ~ np.log(age - 50)"}, "row 2: np.log(age - 50) is nan"),
    ({"formula": "score ~ age", "weights": "score"}, "the formula and is a weight"),
    ({"formula": "score ~ age", "weights": "ward"}, "column ward must hold numbers"),
    ({"formula": "visits ~ age", "family": "poisson", "exposure": "score"}, "an exposure is above zero"),
    ({"formula": "score ~ age", "exposure": "hours"}, "exposure needs a log link"),
    ({"formula": "score ~ age", "ridge": -1.0}, "ridge must be"),
    ({"formula": "score ~ age", "tol": 0.0}, "tol must be"),
    ({"formula": "score ~ age", "missing": "zero"}, "missing 'zero' is not known"),
    ({"formula": "score ~ age", "nonnegative": ["sex"]}, "there is no coefficient sex"),
    ({"formula": "score ~ age", "method": "magic"}, "method 'magic' is not known"),
    ({"formula": "score ~ age", "l1": 1.0, "method": "gd"}, "takes none"),
    ({"formula": "score ~ age", "target": "score"}, "give a formula such as"),
    ({}, "give a formula such as"),
    ({"target": "scor"}, "did you mean score?"),
    ({"formula": "score ~ 0"}, "there is no term"),
    ({"formula": "score ~ age", "elastic_net": (1.0, 2.0), "ridge": 1.0}, "brings its own"),
    ({"formula": "score ~ age", "elastic_net": 3}, "elastic_net is two numbers"),
    ({"formula": "score ~ age", "elastic_net": (1.0, -1.0)}, "ridge must be"),
    ({"formula": "score ~ age", "nonnegative": "age"}, "nonnegative must be a list"),
    ({"formula": "score ~ age", "weights": 3}, "weights must be the name of a column"),
    ({"formula": "ward ~ age", "family": "multinomial", "offset": "hours"}, "takes no offset"),
    ({"formula": "score ~ age", "rounds": 3}, "rounds must be"),
    ({"formula": "score ~ age", "group": "ward"}, "group"),
]


@pytest.mark.parametrize(("options", "why"), BAD)
def test_what_cannot_be_fitted_is_refused_with_the_reason(files: list[str], options: dict[str, Any], why: str) -> None:
    with pytest.raises(fs.InputError) as caught:
        fs.fit(files, **options)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_small_clients_and_rare_categories_are_warned_of_and_refused_when_strict() -> None:
    frames = people()
    frames["tiny"] = people(1)["hospital0"].head(4)
    frames["hospital1"].loc[0, "ward"] = "attic"
    frames["narrow"] = people(2)["hospital0"].head(11)
    model = fs.fit(frames, "score ~ age + ward")
    assert any("tiny has 4 rows, fewer than 10" in text for text in model.warnings)
    assert any("hospital1 has fewer than 3 rows of a kind: ward = attic in 1" in text for text in model.warnings)
    assert any("narrow has 11 rows for 5 parameters, more than a third" in text for text in model.warnings)
    with pytest.raises(fs.InputError, match="do not be strict"):
        fs.fit(frames, "score ~ age + ward", strict=True)
    assert fs.fit(people(), "score ~ age", strict=True).warnings == []


@pytest.mark.parametrize(
    ("formula", "options", "what"),
    [
        ("score ~ age + {hours == 7}", {}, "hours == 7 in 1"),
        ("score ~ age + {exp(-1000000 * (hours - 7) ** 2)}", {}, "exp"),
        ("score ~ age + rare", {}, "rare in 1"),
        ("score ~ age + C(rare)", {}, "rare = 1 in 1"),
        ("score ~ ward * rare2", {}, "ward[T.south]:rare2"),
        ("{hours == 7} ~ age", {"family": "logistic"}, "hours == 7 = 1 in 1"),
        ("score ~ age + some", {"missing": "mean"}, "a value of some in 2"),
        ("score ~ age", {"weights": "heavy"}, "leave the say to 1.0 rows"),
        ("score ~ age + ward", {"weights": "one_west"}, "ward[T.west] in 1"),
    ],
)
def test_what_would_tell_of_single_rows_is_refused_at_the_client_before_it_is_told(
    formula: str, options: dict[str, Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = people()
    for name, frame in frames.items():
        own = name == "hospital1"
        row = np.arange(len(frame))
        frame.loc[7, "hours"] = 7.0 if own else 7.5
        frame["rare"] = ((row == 7) & own).astype(float) if own else (row % 2).astype(float)
        south = np.flatnonzero(frame.ward == "south")
        frame["rare2"] = (row % 2).astype(float)
        frame.loc[south[1:], "rare2"] = 0.0 if own else frame.loc[south[1:], "rare2"]
        frame.loc[south[:1], "rare2"] = 1.0
        frame["some"] = np.where((row < 2) | ~np.array([own] * len(row)), row.astype(float), np.nan)
        west = np.flatnonzero(frame.ward == "west")
        frame["one_west"] = np.where(np.isin(row, west[1:]) & own, 0.0, 1.5)
        frame["heavy"] = np.where((row == 7) | (not own), 1.0, 1e-12)
    told: list[str] = []
    original = CodedRows.moments

    def moments(rows: CodedRows) -> Moments:
        told.append(rows.name)
        return original(rows)

    monkeypatch.setattr(CodedRows, "moments", moments)
    if options.get("family") == "logistic":
        frames["hospital0"].loc[::2, "hours"] = frames["hospital2"].loc[::2, "hours"] = 7.0
    with pytest.raises(fs.InputError, match=re.escape(what)):
        fs.fit(frames, formula, strict=True, **options)
    assert told == []
    assert any(what in text for text in fs.fit(frames, formula, **options).warnings)


def test_numbers_with_a_mistake_are_no_category() -> None:
    frames = people()
    frames["hospital1"]["hours"] = [*frames["hospital1"].hours.astype(str)[:-1], "5%"]
    with pytest.raises(fs.InputError, match="client hospital1: column hours holds numbers, but '5%' is none"):
        fs.fit(frames, "score ~ hours")


def test_a_column_of_names_is_no_category() -> None:
    frames = {name: frame.assign(id=[f"p{i}" for i in range(len(frame))]) for name, frame in people().items()}
    with pytest.raises(fs.InputError, match="column id has 60 values in fewer than 3 rows each: that is no category"):
        fs.fit(frames, "score ~ age + id")


def separable(kind: str) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 240
    x, z, g = rng.standard_normal(n), rng.standard_normal(n), rng.choice(list("abc"), n)
    y = (x + rng.logistic(size=n) > 0).astype(float)
    if kind == "separable":
        y = (x > 0.1).astype(float)
    elif kind == "level":
        y[g == "b"] = 1.0
    elif kind == "reference level":
        y[g == "a"] = 0.0
    elif kind == "ties":
        x = np.round(2 * x) / 2
        y = np.where(x > 0, 1.0, np.where(x < 0, 0.0, y))
    return pd.DataFrame({"x": x, "z": z, "g": g, "y": y, "c": np.repeat([0, 1, 2], n // 3)})


@pytest.mark.parametrize(
    ("kind", "column"),
    [("separable", "x"), ("level", r"C\(g\)\[T.b\]"), ("reference level", r"C\(g\)"), ("ties", "x")],
)
def test_classes_that_are_separable_or_nearly_are_refused_and_a_ridge_helps(kind: str, column: str) -> None:
    frame = separable(kind)
    with pytest.raises(fs.InputError, match=rf"separable: the coefficients? of {column}.*add a ridge"):
        fs.fit(frame, "y ~ x + z + C(g)", family="logistic", group="c")
    assert fs.fit(frame, "y ~ x + z + C(g)", family="logistic", group="c", ridge=1.0).converged


def test_an_offset_that_tells_the_classes_apart_separates_nothing() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120).astype(float)
    frame = pd.DataFrame({"y": y, "o": y - 0.5, "x": rng.standard_normal(120), "c": np.arange(120) % 3})
    model = fs.fit(frame, "y ~ x", family="logistic", offset="o", group="c")
    A = np.column_stack([np.ones(120), frame.x])
    pooled = sm.GLM(y, A, family=sm.families.Binomial(), offset=frame.o).fit(tol=1e-14)
    np.testing.assert_allclose(model.coef_, pooled.params, rtol=1e-7)


def test_classes_that_overlap_a_little_are_fitted() -> None:
    frame = separable("separable")
    order = np.argsort(frame.x.to_numpy())
    middle = int(np.searchsorted(frame.x.to_numpy()[order], 0.1))
    for away in (2, 5, 10):
        flipped = frame.copy()
        rows = order[[middle - away, middle + away]]
        flipped.loc[rows, "y"] = 1 - flipped.loc[rows, "y"]
        model = fs.fit(flipped, "y ~ x + z", family="logistic", group="c")
        A = np.column_stack([np.ones(len(frame)), frame.x, frame.z])
        pooled = sm.Logit(flipped.y, A).fit(disp=False, tol=1e-12, maxiter=200)
        np.testing.assert_allclose(model.coef_, pooled.params, rtol=1e-7)


def test_a_coefficient_without_end_of_another_family_is_named_in_a_run_that_has_not_converged() -> None:
    frames = {name: frame.assign(visits=frame.visits * (frame.ward != "west")) for name, frame in people().items()}
    model = fs.fit(frames, "visits ~ age + ward", family="poisson", rounds=60)
    assert not model.converged
    assert "the data hardly determine the coefficient of ward[T.west]: add a ridge, or leave it out" in model.warnings
    assert fs.fit(frames, "visits ~ age + ward", family="poisson", ridge=0.1).converged


def test_separable_classes_of_a_multinomial_are_refused() -> None:
    frame = separable("separable")
    frame["k"] = np.where(frame.x > 0, "a", np.where(frame.x > -1, "b", "c"))
    with pytest.raises(fs.InputError, match="separable"):
        fs.fit(frame, "k ~ x + z", family="multinomial", group="c")


# the proof


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-9])
def test_no_coefficient_is_farther_from_the_pooled_one_than_proved(family: str, tol: float) -> None:
    target = {"logistic": "ill", "poisson": "visits", "gamma": "stay", "multinomial": "ward"}.get(family, "score")
    terms = "age + hours" if family == "multinomial" else "age + ward"
    for seed in range(4):
        frames = people(seed)
        model = fs.fit(frames, f"{target} ~ {terms}", family=family, tol=tol)
        best = fs.fit(pd.concat(frames.values()), f"{target} ~ {terms}", family=family, tol=1e-11)
        assert model.converged
        away = np.abs(model.coef - best.coef) / model.errors
        assert proved(model) <= tol
        assert away.max() <= proved(model) + 1e-10


def test_too_few_rounds_are_said_and_the_bound_still_holds() -> None:
    model = fs.fit(RANDHIE, FORMULA, family="poisson", rounds=10)
    best = fs.fit(RANDHIE, FORMULA, family="poisson")
    assert not model.converged
    away = float(np.max(np.abs(model.coef - best.coef) / best.errors))
    assert 1e-9 < away <= proved(model)
    assert "converged NO" in model.summary()


def test_units_do_not_change_the_answer_but_their_own() -> None:
    frames = people()
    model = fs.fit(frames, "stay ~ age + ward")
    scaled = {name: frame.assign(age=1e6 * frame.age, stay=1e-8 * frame.stay) for name, frame in frames.items()}
    other = fs.fit(scaled, "stay ~ age + ward")
    expected = model.coef_ * 1e-8 * np.where(model.coef_.index == "age", 1e-6, 1.0)
    np.testing.assert_allclose(other.coef_, expected, rtol=1e-8)
    assert other.converged
    shifted = {name: frame.assign(age=1e6 + frame.age) for name, frame in frames.items()}
    np.testing.assert_allclose(fs.fit(shifted, "stay ~ age + ward").coef_["age"], model.coef_["age"], rtol=1e-7)


def test_columns_that_nearly_depend_on_each_other_cost_no_rounds() -> None:
    rng = np.random.default_rng(0)
    year = rng.integers(1990, 2021, 2000).astype(float)
    y = 0.1 * (year - 2000) + 0.01 * (year - 2000) ** 2 + rng.standard_normal(2000)
    frame = pd.DataFrame(
        {"year": year, "y": y, "n": rng.poisson(np.exp(0.02 * (year - 2000))), "c": np.arange(2000) % 5}
    )
    model = fs.fit(frame, "y ~ year + I(year**2)", group="c")
    assert model.converged
    assert model.rounds < 20
    centred = sm.OLS(y, np.column_stack([np.ones(2000), year - 2005, (year - 2005) ** 2])).fit()
    assert model.coef_["I(year ** 2)"] == pytest.approx(centred.params[2], rel=1e-7)
    counts = fs.fit(frame, "n ~ year + I(year**2)", family="poisson", group="c")
    assert counts.converged
    assert counts.rounds < 40


def test_a_heavy_tail_is_no_separation() -> None:
    for seed in (5, 33, 41):
        rng = np.random.default_rng(seed)
        x = rng.standard_t(1.5, 200)
        y = (rng.random(200) < expit(2 * x)).astype(float)
        model = fs.fit(pd.DataFrame({"x": x, "y": y, "c": np.arange(200) % 2}), "y ~ x", family="logistic", group="c")
        with np.errstate(over="ignore"):
            pooled = sm.GLM(y, sm.add_constant(x), family=sm.families.Binomial()).fit(tol=1e-14, maxiter=200)
        assert model.converged
        np.testing.assert_allclose(model.coef_, pooled.params, rtol=1e-6)


def test_robust_standard_errors_keep_their_digits_where_a_mean_is_large() -> None:
    rng = np.random.default_rng(0)
    c = np.arange(400) % 8
    t = rng.standard_normal(400) + 0.5 * c
    y = t + c * rng.standard_normal(8)[c] + rng.standard_normal(400)
    near, far = (
        fs.fit(pd.DataFrame({"t": mean + t, "y": y, "c": c}), "y ~ t", group="c").covariance(robust=True).loc["t", "t"]
        for mean in (0.0, 1e8)
    )
    assert far == pytest.approx(near, rel=1e-6)


def test_a_fit_without_residuals_converges_and_large_offsets_are_no_trouble() -> None:
    frames = people()
    for frame in frames.values():
        frame["exact"] = 1.0 + 2.0 * frame.age
        frame["far"] = 800.0
    assert fs.fit(frames, "exact ~ age + hours").converged
    plain = fs.fit(frames, "visits ~ age", family="poisson")
    shifted = fs.fit(frames, "visits ~ age", family="poisson", offset="far")
    assert shifted.coef_["Intercept"] == pytest.approx(plain.coef_["Intercept"] - 800.0, rel=1e-9)


# the model


def test_a_model_comes_back_from_its_files_as_it_was(tmp_path: Path) -> None:
    frames = people()
    for family, target in (("logistic", "ill"), ("gaussian", "score"), ("multinomial", "ward"), ("huber", "score")):
        model = fs.fit(frames, f"{target} ~ age + hours", family=family)
        model.save(tmp_path / family)
        loaded = fs.load(tmp_path / family)
        assert loaded.summary() == model.summary()
        assert loaded.to_dict() == model.to_dict()
        frame = frames["hospital0"]
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        assert np.array_equal(loaded.trace.objective, model.trace.objective)
        with pytest.raises(fs.InputError, match="no clients to run on"):
            loaded.bias_of("fedavg")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.npz").write_bytes(b"no"),
        lambda folder: (folder / "model.npz").unlink(),
        lambda folder: (folder / "model.json").write_text("{"),
        lambda folder: (folder / "model.json").write_text('{"format": 1}'),
        lambda folder: (folder / "model.json").write_text('{"format": 99}'),
        lambda folder: (folder / "model.json").write_text("[]"),
        lambda folder: (folder / "model.json").unlink(),
        lambda folder: np.savez(folder / "model.npz", coef=np.array([{}], dtype=object)),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    fs.fit(people(), "score ~ age").save(tmp_path)
    damage(tmp_path)
    with pytest.raises(fs.InputError) as caught:
        fs.load(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_predictions_are_the_means_and_a_missing_value_has_none() -> None:
    frames = people()
    frame = frames["hospital1"].copy()
    model = fs.fit(frames, "visits ~ age + ward", family="poisson", exposure="hours")
    A = np.column_stack([np.ones(len(frame)), frame.age, frame.ward == "south", frame.ward == "west"])
    np.testing.assert_allclose(model.predict(frame), np.exp(A @ model.coef) * frame.hours, rtol=1e-12)
    frame.loc[2, "ward"] = None
    predicted = model.predict(frame)
    assert np.flatnonzero(predicted.isna()).tolist() == [2]
    frame.loc[3, "ward"] = "attic"
    with pytest.raises(fs.InputError, match="attic is none of its levels"):
        model.predict(frame)


def test_classes_are_predicted_by_name() -> None:
    frames = {name: frame.assign(ill=np.where(frame.ill == 1, "yes", "no")) for name, frame in people().items()}
    model = fs.fit(frames, "ill ~ age + ward", family="logistic")
    frame = frames["hospital0"]
    p = model.predict(frame)
    assert set(model.predict(frame, kind="class")) <= {"yes", "no"}
    assert ((model.predict(frame, kind="class") == "yes") == (p > 0.5)).all()
    many = fs.fit(frames, "ward ~ age", family="multinomial")
    np.testing.assert_allclose(many.predict(frame).sum(axis=1), 1.0)
    assert list(many.predict(frame).columns) == ["north", "south", "west"]
    assert list(many.coef_.index) == ["south:Intercept", "south:age", "west:Intercept", "west:age"]


def test_a_penalty_leaves_no_standard_error_and_says_why() -> None:
    for options in ({"ridge": 1.0}, {"l1": 1.0}, {"nonnegative": ["age"]}, {"elastic_net": (1.0, 1.0)}):
        model = fs.fit(people(), "score ~ age + ward", **options)
        assert model.se is None
        assert "biased" in str(model.se_reason)
        assert model.to_dict()["se"] is None
        with pytest.raises(fs.InputError, match="biased"):
            model.conf_int()


def test_a_coefficient_that_must_not_be_negative_is_zero() -> None:
    frames = people()
    for frame in frames.values():
        frame["against"] = -frame.age + np.sin(np.arange(len(frame)))
    model = fs.fit(frames, "score ~ against + ward", nonnegative=["against"])
    assert model.coef_["against"] == 0
    assert model.converged
    np.testing.assert_allclose(model.coef_.drop("against"), fs.fit(frames, "score ~ ward").coef_, rtol=1e-7)


def test_what_one_client_brings_is_close_to_what_leaving_it_out_shows() -> None:
    frames = people(3, (200, 150, 100, 80))
    model = fs.fit(frames, "score ~ age + ward")
    for name in frames:
        rest = fs.fit({other: frame for other, frame in frames.items() if other != name}, "score ~ age + ward")
        row = model.clients.loc[name]
        moved = (rest.coef_ - model.coef_)[row.coefficient] / model.errors[list(model.names).index(row.coefficient)]
        assert row["shift"] == pytest.approx(moved, rel=1e-6)  # exact for a quadratic
    assert model.clients.leverage.sum() == pytest.approx(1.0)


def test_averaging_methods_land_elsewhere_and_the_bias_says_how_far() -> None:
    model = fs.fit(RANDHIE, FORMULA, family="poisson")
    fedavg, fedprox = model.bias_of("fedavg", local_steps=10), model.bias_of("fedprox")
    assert fedavg.worst > 0.1
    assert fedprox.worst > 0.01
    assert model.bias_of("fedavg", local_steps=1).worst < 1e-6
    assert "standard errors away" in str(fedavg)
    with pytest.raises(fs.InputError, match="the bias is known of"):
        model.bias_of("scaffold")
    with pytest.raises(fs.InputError, match="takes step"):
        model.bias_of("fedprox", local_steps=3)


def test_the_bias_of_fedavg_is_where_fedgd_goes_in_the_end() -> None:
    model = fs.fit(people(), "score ~ age + ward")
    assert model.task is not None
    biased = model.bias_of("fedavg", local_steps=5)
    assert model.x is not None
    problem, _, back = model.task.in_scaled_columns(model.x)
    ran = fs.solve(problem, fs.FedGD(local_steps=5), rounds=3000, tol=0)
    np.testing.assert_allclose(back @ ran.x, biased.coef, rtol=1e-6)


def test_every_round_is_reported_and_the_last_gap_is_proved_in_the_files_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Progress] = []
    frames = {name: frame.assign(score=1e3 * frame.score) for name, frame in people().items()}
    model = fs.fit(frames, "score ~ age", progress=seen.append)
    *moves, last = seen
    assert [each.round for each in moves] == list(range(1, len(moves) + 1))
    assert all(each.proved for each in moves)
    excess = model.trace.objective - model.trace.objective.min()
    gaps = [gap for gap, kind in zip(excess[1:], model.trace.kind, strict=True) if kind == "round"]
    assert all(each.gap >= gap * (1 - 1e-9) for each, gap in zip(moves, gaps, strict=True))
    assert last == Progress(model.rounds, model.certificate.gap or 0.0, 3, 3, model.floats, proved=True)
    seen.clear()
    monkeypatch.setattr("fedsplit.regression.estimate.CAUTION", 1e-12)  # so that the first proofs are asked too early
    assert len(fs.fit(RANDHIE, FORMULA, family="poisson", progress=seen.append).proofs) > 1
    assert [each.round for each in seen] == sorted(each.round for each in seen)
    assert [each.floats for each in seen] == sorted(each.floats for each in seen)


def test_rounds_are_not_exceeded_and_rounding_ends_a_run_that_asks_for_too_much() -> None:
    assert fs.fit(RANDHIE, FORMULA, family="poisson", rounds=12).rounds <= 12
    for tol in (1e-11, 1e-15):
        model = fs.fit(RANDHIE, FORMULA, family="poisson", tol=tol)
        assert model.rounds < 60
        assert proved(model) < 1e-10


# the command


def test_the_command_prints_the_table_and_the_proof(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *files, "--formula", "visits ~ age + ward", "--family", "poisson"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in ("Intercept", "ward[T.south]", "std err", "P>|z|", "[0.025", "AIC", "hospital2", "within", "rounds"):
        assert word in out


def test_json_is_one_object_with_the_same_numbers(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *files, "--formula", "visits ~ age + ward", "--family", "poisson", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    model = fs.fit(files, "visits ~ age + ward", family="poisson")
    assert told["coef"] == model.coef_.to_dict()
    assert told["se"] == model.se.to_dict()  # type: ignore[union-attr]  # there are standard errors
    assert told["rounds"] == model.rounds
    assert told["converged"] is True
    assert told["certificate"]["standard_errors"] <= 1e-9


def test_the_tolerance_not_reached_is_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", RANDHIE, "--formula", FORMULA, "--family", "poisson", "--rounds", "10"]) == 1
    assert "converged NO" in capsys.readouterr().out


def test_out_has_the_model_the_trace_and_the_page(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result"
    assert run(["fit", *files, "--formula", "ill ~ age", "--family", "logistic", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["model.json", "model.npz", "report.html", "trace.csv"]
    model = fs.load(out)
    assert len(pd.read_csv(out / "trace.csv")) == model.rounds
    assert str(out / "report.html") in capsys.readouterr().out
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert run(["report", str(out)]) == 0
    assert (out / "report.html").read_bytes() == page


def test_one_file_and_a_group_or_a_folder_or_toml_are_the_same_clients(tmp_path: Path) -> None:
    frames = people()
    write(frames, tmp_path)
    pooled = pd.concat([frame.assign(site=name) for name, frame in frames.items()])
    other = tmp_path / "elsewhere"
    other.mkdir()
    with duckdb.connect() as connection:
        connection.register("pooled", pooled)
        connection.execute(f"copy pooled to '{other / 'all.parquet'}' (format parquet)")
    whole = next(iter(other.iterdir()))
    toml = "".join(f'[clients.{name}]\npath = "{name}.csv"\n' for name in frames)
    (other / "clients.toml").write_text(toml.replace('path = "', 'path = "../'))
    models = [
        fs.fit(tmp_path, "score ~ age + ward"),
        fs.fit(str(tmp_path / "hosp*.csv"), "score ~ age + ward"),
        fs.fit(whole, "score ~ age + ward", group="site"),
        fs.fit(other / "clients.toml", "score ~ age + ward"),
        fs.fit(list(frames.values()), "score ~ age + ward"),
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, rtol=1e-10)
        assert model.n_by_client.to_list() == models[0].n_by_client.to_list()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nosuch.csv", "--formula", "y ~ x"], "nosuch.csv"),
        (["*.nothing", "--formula", "y ~ x"], "nothing"),
        (["{0}", "--formula", "score ~ age +"], "formula"),
        (["{0}", "--formula", "score ~ age", "--family", "cox"], "family 'cox' is not known"),
        (["{0}", "--formula", "score ~ age", "--ridge", "much"], "--ridge"),
        (["{0}", "--formula", "score ~ age", "--elastic-net", "1"], "--elastic-net is two numbers"),
        (["{0}", "--formula", "score ~ age", "--out", "{0}"], "is a file, not a folder"),
        (["{0}"], "give a formula"),
        (["--formula", "y ~ x"], "Missing argument"),
        (["{0}", "--formula", "score ~ age", "--rounds", "-1"], "rounds must be"),
        (["{0}", "--formula", "score ~ age", "--tol", "nan"], "tol must be"),
    ],
)
def test_the_command_refuses_in_one_line(
    files: list[str], arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in refused(capsys, *(argument.format(files[0]) for argument in arguments))


def test_the_live_lines_go_to_a_terminal_only(files: list[str]) -> None:
    command = [sys.executable, "-m", "fedsplit", "fit", *files, "--formula", "score ~ age"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    assert "certificate" in done.stdout
    leader, follower = pty.openpty()
    watched = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, text=True, check=True, timeout=120)
    os.close(follower)
    lines = os.read(leader, 100_000).decode().splitlines()
    os.close(leader)
    assert watched.stdout == done.stdout
    assert lines[0].startswith("round    1   gap at most")
    assert "clients 3/3" in lines[1]
    assert "gap at most" in lines[-1]


def test_the_families_of_the_help_and_the_guide_are_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    guide = (Path(__file__).parent.parent / "docs" / "fit.md").read_text()
    for name in FAMILIES:
        assert re.search(rf"--family .*?\b{name}\b", shown)
        assert f"\n| `{name}` |" in guide


# what the table means


def test_weights_are_precisions_and_offsets_are_known_parts() -> None:
    frames = people()
    pool = pd.concat(frames.values())
    A = np.column_stack([np.ones(len(pool)), pool.age])
    model = fs.fit(frames, "score ~ age", weights="hours")
    wls = sm.WLS(pool.score, A, weights=pool.hours).fit()
    np.testing.assert_allclose(model.coef_, wls.params, rtol=1e-9)
    np.testing.assert_allclose(model.errors, wls.bse, rtol=1e-9)
    both = fs.fit(frames, "visits ~ age", family="poisson", offset="score", exposure="hours")
    glm = sm.GLM(pool.visits, A, family=sm.families.Poisson(), offset=pool.score, exposure=pool.hours).fit(tol=1e-14)
    np.testing.assert_allclose(both.coef_, glm.params, rtol=1e-8)


def test_standardize_says_on_which_scale_a_penalty_acts() -> None:
    frames = people()
    pool = pd.concat(frames.values())
    age = (pool.age - pool.age.mean()) / pool.age.std(ddof=0)
    model = fs.fit(frames, "score ~ age", ridge=30.0, standardize=True)
    y = pool.score - pool.score.mean()
    slope = float(age @ y / (age @ age + 30.0))
    assert model.coef_["age"] == pytest.approx(slope / pool.age.std(ddof=0), rel=1e-9)
    plain = fs.fit(frames, "score ~ age", ridge=30.0)
    a = pool.age - pool.age.mean()
    assert plain.coef_["age"] == pytest.approx(float(a @ y / (a @ a + 30.0)), rel=1e-9)


def test_a_frame_is_not_changed_by_a_fit() -> None:
    frames = people()
    before = {name: frame.copy() for name, frame in frames.items()}
    fs.fit(frames, "visits ~ age + ward", family="poisson", missing="mean", standardize=True, ridge=1.0)
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(frame, before[name])


def test_the_same_fit_twice_gives_the_same_bits() -> None:
    first, second = (fs.fit(RANDHIE, FORMULA, family="poisson") for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert math.isfinite(first.deviance)


def test_a_formula_without_intercept_is_the_same_by_option_and_by_formula() -> None:
    one = fs.fit(people(), "score ~ age + hours", intercept=False)
    other = fs.fit(people(), "score ~ age + hours - 1")
    assert one.to_dict()["coef"] == other.to_dict()["coef"]
    assert not Formula("y ~ x - 1").intercept
