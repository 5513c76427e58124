"""Before round one: what clients agree on, and what cannot be fitted or should not be answered."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsplit as fs
from fedsplit.channels.channel import LocalChannel
from fedsplit.channels.members import Members
from fedsplit.commands.app import run
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import ROWS_AT_A_TIME, SMALLEST_CELL
from fedsplit.regression.client.guards import rules
from fedsplit.regression.client.plan import DerivedColumn, Plan
from fedsplit.regression.client.statistics import DesignMoments, FitRows
from fedsplit.regression.fit import prepare
from fedsplit.regression.options import FitOptions
from fedsplit.regression.server.coordinates import Pool
from fedsplit.statistic import StatisticPart
from hospitals import people, write


def test_a_level_that_one_client_lacks_is_no_problem() -> None:
    frames = people()
    frames["hospital2"] = frames["hospital2"][frames["hospital2"].ward != "west"]
    model = fs.fit(frames, "score ~ age + ward")
    pooled = fs.fit(pd.concat(frames.values()), "score ~ age + ward")
    np.testing.assert_allclose(model.params, pooled.params, rtol=1e-9)
    assert list(model.params.index) == ["Intercept", "age", "ward[T.south]", "ward[T.west]"]


def test_the_order_of_columns_rows_and_clients_does_not_matter() -> None:
    frames = people()
    model = fs.fit(frames, "visits ~ age + ward", family="poisson")
    shuffled = {
        name: frame.sample(frac=1, random_state=1)[list(frame.columns[::-1])]
        for name, frame in reversed(frames.items())
    }
    other = fs.fit(shuffled, "visits ~ age + ward", family="poisson")
    np.testing.assert_allclose(other.params, model.params, rtol=1e-9)
    np.testing.assert_allclose(other.estimates.errors, model.estimates.errors, rtol=1e-9)


def test_numbers_at_one_client_and_text_at_another_are_one_category_inside_c() -> None:
    frames = people()
    codes = {"north": 1, "south": 2, "west": 3}
    numbered = {name: frame.assign(ward=frame.ward.map(codes)) for name, frame in frames.items()}
    numbered["hospital1"] = numbered["hospital1"].assign(
        ward=numbered["hospital1"].ward.astype(str)
    )
    model = fs.fit(numbered, "score ~ C(ward)")
    assert list(model.params.index) == ["Intercept", "C(ward)[T.2]", "C(ward)[T.3]"]
    np.testing.assert_allclose(model.params, fs.fit(frames, "score ~ ward").params, rtol=1e-9)
    with pytest.raises(
        fs.InputError,
        match=r"column ward holds numbers at client hospital0 and text at .*hospital1",
    ):
        fs.fit(numbered, "score ~ ward")


def test_a_column_that_is_empty_at_one_client_is_what_it_is_elsewhere(tmp_path: Path) -> None:
    frames = people()
    frames["hospital1"]["age"] = np.nan
    model = fs.fit(write(frames, tmp_path), "score ~ age + ward")
    assert model.clients["n"].to_dict() == {"hospital0": 60, "hospital1": 0, "hospital2": 30}
    assert (
        run(["fit", str(tmp_path), "--formula", "score ~ age + ward"]) == 1
    )  # a client is missing
    assert any("hospital1 has no complete row" in text for text in model.warnings)
    rest = fs.fit({name: frames[name] for name in ("hospital0", "hospital2")}, "score ~ age + ward")
    np.testing.assert_allclose(model.params, rest.params, rtol=1e-9)


def test_rows_with_missing_values_are_dropped_and_counted_by_client() -> None:
    frames = people()
    frames["hospital0"].loc[[3, 5], "age"] = np.nan
    frames["hospital2"].loc[[1], "ward"] = None
    model = fs.fit(frames, "score ~ age + ward")
    assert model.clients.missing.to_dict() == {"hospital0": 2, "hospital1": 0, "hospital2": 1}
    assert model.nobs == 132
    np.testing.assert_allclose(
        model.params, fs.fit(pd.concat(frames.values()).dropna(), "score ~ age + ward").params
    )


def test_missing_values_are_refused_if_that_is_wanted() -> None:
    frames = people()
    frames["hospital0"].loc[[3, 5], "age"] = np.nan
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
    np.testing.assert_allclose(model.params, whole.params, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.estimates.errors, whole.estimates.errors, rtol=1e-8)
    assert model.llf == pytest.approx(whole.llf, rel=1e-10)


def test_a_target_alone_is_a_model_on_all_other_columns(files: list[str]) -> None:
    model = fs.fit(files, target="score")
    terms = ["Intercept", "age", "ward[T.south]", "ward[T.west]", "stay", "visits", "ill", "hours"]
    assert set(model.params.index) == set(terms)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"formula": "score ~ aeg"}, "client hospital0: there is no column aeg, did you mean age?"),
    ({"formula": "score ~ age", "family": "gauss"}, "family 'gauss' is not known"),
    ({"formula": "score ~ age", "family": "poisson"}, "score is -"),
    ({"formula": "score ~ age", "family": "gamma"}, "for gamma it must be above zero"),
    ({"formula": "visits ~ age", "family": "logistic"}, "logistic needs two"),
    ({"formula": "ward ~ age"}, "column ward holds text"),
    ({"formula": "{score > 100} ~ age", "family": "logistic"}, "of the same class"),
    ({"formula": "{age + 1} ~ score", "family": "multinomial"}, "multinomial needs a column"),
    (
        {"formula": "score ~ age + I(2 * age)", "aliased": "refuse"},
        "column I(2 * age) is a combination of age over all clients",
    ),
    (
        {"formula": "score ~ age + I(0 * age)", "aliased": "refuse"},
        "column I(0 * age) is 0 in every row of every client",
    ),
    (
        {"formula": "score ~ age + hours + {age - hours}", "aliased": "refuse"},
        "a combination of age, hours",
    ),
    ({"formula": "score ~ age", "aliased": "drop"}, "aliased 'drop' is not known"),
    (
        {"formula": "score ~ age", "method": "irls"},
        "'irls' is not known: use one of auto, fedsplit",
    ),
    ({"formula": "score ~ np.log(age - 50)"}, "row 2: np.log(age - 50) is nan"),
    ({"formula": "score ~ age", "weights": "score"}, "a weight is finite and not below zero"),
    ({"formula": "score ~ age", "weights": "ward"}, "column ward must hold numbers"),
    (
        {"formula": "visits ~ age", "family": "poisson", "exposure": "score"},
        "an exposure is above zero",
    ),
    ({"formula": "score ~ age", "exposure": "hours"}, "exposure needs a log link"),
    ({"formula": "score ~ age", "ridge": -1.0}, "ridge must be"),
    ({"formula": "score ~ age", "tol": 0.0}, "tol must be"),
    ({"formula": "score ~ age", "missing": "zero"}, "missing 'zero' is not known"),
    ({"formula": "score ~ age", "nonnegative": ["sex"]}, "there is no coefficient sex"),
    ({"formula": "score ~ age", "method": "magic"}, "method 'magic' is not known"),
    ({"formula": "score ~ age", "l1": 1.0, "method": "cg"}, "takes none"),
    ({"formula": "score ~ age", "target": "score"}, "give a formula such as"),
    ({}, "give a formula such as"),
    ({"target": "scor"}, "did you mean score?"),
    ({"formula": "score ~ 0"}, "there is no term"),
    ({"formula": "score ~ age", "elastic_net": (1.0, 2.0), "ridge": 1.0}, "sets both l1 and ridge"),
    ({"formula": "score ~ age", "elastic_net": 3}, "elastic_net must be two numbers"),
    ({"formula": "score ~ age", "elastic_net": (1.0, -1.0)}, "ridge must be"),
    ({"formula": "score ~ age", "nonnegative": "age"}, "nonnegative must be a list"),
    ({"formula": "score ~ age", "weights": 3}, "weights must be text"),
    ({"formula": "ward ~ age", "family": "multinomial", "offset": "hours"}, "takes no offset"),
    ({"formula": "score ~ age", "rounds": 3}, "rounds must be"),
    ({"formula": "score ~ age", "group": "ward"}, "group"),
]


@pytest.mark.parametrize(("options", "why"), BAD)
def test_what_cannot_be_fitted_is_refused_with_the_reason(
    files: list[str], options: dict[str, Any], why: str
) -> None:
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
    assert any(
        "clients have fewer than 3 rows of a kind: hospital1 (ward = attic in 1)" in text
        for text in model.warnings
    )
    assert any(
        "narrow has 11 rows for 5 parameters, more than a third" in text for text in model.warnings
    )
    with pytest.raises(fs.InputError, match="relax this rule"):
        fs.fit(frames, "score ~ age + ward", strict=True)
    [warning] = fs.fit(people(), "score ~ age", strict=True).warnings
    assert warning.startswith(
        "rows whose leverage in all that was disclosed is above 0.9: hospital2"
    )


def test_warnings_of_a_kind_are_one_line_with_a_count_and_the_first_names() -> None:
    whole = pd.concat(people(sizes=(400,)).values())
    many = {f"site{j:03}": whole.iloc[4 * j : 4 * j + 4] for j in range(100)}
    many["site000"] = many["site000"].assign(score=np.nan)
    many["site001"] = many["site001"].assign(score=np.nan)
    model = fs.fit(many, "score ~ age + ward")
    assert "2 clients have no complete row and are left out: site000, site001" in model.warnings
    assert (
        "98 clients have fewer than 10 rows: "
        "site002 has 4, site003 has 4, site004 has 4 and 95 more"
    ) in model.warnings
    assert len(model.warnings) == 3
    assert model.summary().count("warning: ") == 3


@pytest.mark.parametrize(
    ("formula", "options", "what"),
    [
        ("score ~ age + {hours == 7}", {}, "hours == 7 in 1"),
        ("score ~ age + {exp(-1000000 * (hours - 7) ** 2)}", {}, "exp"),
        ("score ~ age + rare", {}, "rare in 1"),
        ("score ~ age + C(rare)", {}, "rare = 1 in 1"),
        ("score ~ ward * rare2", {}, "ward[T.south]:rare2"),
        ("{hours == 7} ~ age", {"family": "logistic"}, "hours == 7 = 1 in 1"),
        ("score ~ age", {"weights": "heavy"}, "concentrate on 1.0 effective rows"),
        ("score ~ age + ward", {"weights": "one_west"}, "ward = west in 1"),
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
    answered: list[str] = []
    original = DesignMoments.sums

    def sums(statistic: DesignMoments, rows: FitRows) -> Mapping[str, StatisticPart]:
        answered.append(rows.design.name)
        return original(statistic, rows)

    monkeypatch.setattr(DesignMoments, "sums", sums)
    if options.get("family") == "logistic":
        frames["hospital0"].loc[::2, "hours"] = frames["hospital2"].loc[::2, "hours"] = 7.0
    with pytest.raises(fs.InputError, match=re.escape(what)):
        fs.fit(frames, formula, strict=True, **options)
    assert answered == []
    assert any(what in text for text in fs.fit(frames, formula, **options).warnings)


def test_a_column_that_one_row_dominates_is_found_among_many_rows() -> None:
    rng = np.random.default_rng(0)
    n = 3 * ROWS_AT_A_TIME
    A = rng.standard_normal((n, 7))
    A[:, 0] = 1.0
    A[:, 1] = 0.0
    A[[5, 9], 1] = 2.0  # in the first rows, too
    A[:, 2] = rng.integers(0, 2, n)
    A[17, 3] = 1e9
    A[:, 4] = np.where(np.arange(n) == n - 1, 1e9, 0.0)
    A[:, 5] = np.repeat([0.0, 1.0], [n - 3, 3])
    exact = rules._counted_unlike(A)
    np.testing.assert_array_equal(exact[[0, 1, 3, 4, 5]], [0, 2, 1, 1, 3])
    smallest = SMALLEST_CELL
    found = rules._unlike_others(A)
    np.testing.assert_array_equal(np.minimum(found, smallest), np.minimum(exact, smallest))


def test_numbers_with_a_mistake_are_no_category() -> None:
    frames = people()
    frames["hospital1"]["hours"] = [*frames["hospital1"].hours.astype(str)[:-1], "5%"]
    with pytest.raises(
        fs.InputError, match="hospital1: column 'hours', row 45: '5%' is no number: correct it"
    ):
        fs.fit(frames, "score ~ hours")


def test_a_column_of_names_is_no_category() -> None:
    frames = {
        name: frame.assign(id=[f"p{i}" for i in range(len(frame))])
        for name, frame in people().items()
    }
    with pytest.raises(
        fs.InputError,
        match="column id has 60 values in fewer than 3 rows each: that is no category",
    ):
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
    [
        ("separable", "x"),
        ("level", r"C\(g\)\[T.b\]"),
        ("reference level", r"C\(g\)"),
        ("ties", "x"),
    ],
)
def test_classes_that_are_separable_or_nearly_are_refused_and_a_ridge_helps(
    kind: str, column: str
) -> None:
    frame = separable(kind)
    with pytest.raises(
        fs.InputError, match=rf"separable: the coefficients? of {column}.*add a ridge"
    ):
        fs.fit(frame, "y ~ x + z + C(g)", family="logistic", group="c", separation="refuse")
    assert fs.fit(frame, "y ~ x + z + C(g)", family="logistic", group="c", ridge=1.0).converged


def test_an_offset_that_tells_the_classes_apart_separates_nothing() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120).astype(float)
    frame = pd.DataFrame(
        {"y": y, "o": y - 0.5, "x": rng.standard_normal(120), "c": np.arange(120) % 3}
    )
    model = fs.fit(frame, "y ~ x", family="logistic", offset="o", group="c")
    A = np.column_stack([np.ones(120), frame.x])
    pooled = sm.GLM(y, A, family=sm.families.Binomial(), offset=frame.o).fit(tol=1e-14)
    np.testing.assert_allclose(model.params, pooled.params, rtol=1e-7)


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
        np.testing.assert_allclose(model.params, pooled.params, rtol=1e-7)


def test_separable_classes_of_a_multinomial_are_refused() -> None:
    frame = separable("separable")
    frame["k"] = np.where(frame.x > 0, "a", np.where(frame.x > -1, "b", "c"))
    with pytest.raises(fs.InputError, match="separable"):
        fs.fit(frame, "k ~ x + z", family="multinomial", group="c")


def test_rows_are_read_again_for_a_plan_that_reads_them_otherwise() -> None:
    [source] = sources({"a": people()["hospital0"]})
    dataset = Dataset(source)
    plan = Plan("score ~ age", "gaussian", types={"score": "number", "age": "number"})
    first = dataset.complete(plan)
    assert dataset.complete(replace(plan, formula="score ~ age + I(age)")) is first
    for other in (
        replace(plan, types={**plan.types, "age": "text"}, categories=("age",)),
        replace(plan, types={**plan.types, "visits": "number"}, others=("visits",)),
        replace(plan, categories=("age",)),
        replace(plan, formula="score ~ age + visits", types={**plan.types, "visits": "number"}),
        replace(plan, derived={"mean": DerivedColumn.of(plan, [1.0, 2.0])}),
    ):
        assert dataset.complete(plan) is not dataset.complete(other)


@pytest.mark.parametrize("n", [1, 2, 9, 10])
def test_rows_are_compared_with_the_median_of_their_column(n: int) -> None:
    rng = np.random.default_rng(n)
    A = np.column_stack([rng.standard_normal((n, 2)), np.arange(n) < n // 2, np.ones(n)])
    np.testing.assert_array_equal(rules._median(A), np.median(A, axis=0))
    unlike = np.count_nonzero(np.median(A, axis=0) != A, axis=0)
    one = rules._counted_unlike(A) == 1  # a single row may dominate a column
    np.testing.assert_array_equal(rules._counted_unlike(A)[~one], unlike[~one])


def test_the_moments_of_a_gaussian_determine_its_fit() -> None:
    frames = people()
    formula = "score ~ age + hours + offset(visits)"
    members = Members(LocalChannel(DatasetCohort([Dataset(each) for each in sources(frames)])))
    agreement = prepare(members, FitOptions(frames, formula))
    pool = Pool(agreement.moments, agreement.rows.intercept)
    slopes = np.linalg.solve(pool.scatter[1:, 1:], pool.cross[1:])
    coef = [pool.net_target - slopes @ pool.mean[1:], *slopes]
    np.testing.assert_allclose(coef, fs.fit(frames, formula).params, rtol=1e-9)


def test_columns_of_a_study_decide_which_rows_a_model_of_some_of_them_has() -> None:
    frames = people()
    for frame in frames.values():
        frame.loc[frame.index[:4], "score"] = np.nan
    complete = {name: frame.dropna(subset=["score"]) for name, frame in frames.items()}
    model = fs.fit(frames, "visits ~ age", family="poisson", columns=["age", "score", "ward"])
    expected = fs.fit(complete, "visits ~ age", family="poisson")
    assert np.array_equal(model.params, expected.params)
    assert model.plan.others == ("score", "ward")
    assert model.plan.levels == {}
    assert model.predict(frames["hospital0"][["age"]]).shape == (len(frames["hospital0"]),)
    target = fs.fit(frames, target="visits", family="poisson", columns=["age", "score"])
    assert target.plan.formula == "visits ~ age + score"


def test_rows_without_a_group_are_left_out_and_said_or_refused() -> None:
    frame = pd.concat([each.assign(site=name) for name, each in people(3).items()])
    frame = frame.reset_index(drop=True)
    gaps = frame.assign(site=frame["site"].where(frame.index % 10 != 4))
    model = fs.fit(gaps, "score ~ age", group="site")
    expected = fs.fit(gaps.dropna(subset="site"), "score ~ age", group="site")
    np.testing.assert_array_equal(model.params, expected.params)
    lost = int(gaps["site"].isna().sum())
    [warning] = [text for text in model.warnings if "'site'" in text]
    assert f"{lost} of {len(frame)} rows have no 'site'" in warning
    assert "missing='fail' refuses them" in warning
    assert not [text for text in expected.warnings if "'site'" in text]
    with pytest.raises(fs.InputError, match=rf"{lost} of {len(frame)} rows .* by missing='drop'"):
        fs.fit(gaps, "score ~ age", group="site", missing="fail")


def test_counts_that_are_not_whole_are_warned_of_as_in_r() -> None:
    frames = people(3)
    assert not fs.fit(frames, "visits ~ age", family="poisson").warnings
    [name, *_] = frames
    frames[name] = frames[name].assign(visits=frames[name]["visits"] / 2)
    model = fs.fit(frames, "visits ~ age", family="poisson")
    [warning] = [text for text in model.warnings if "visits" in text]
    assert warning.startswith(f"client {name} has values of visits that are not whole")
    assert "exposure=" in warning
    assert not [text for text in fs.fit(frames, "visits ~ age").warnings if "whole" in text]


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_one_complete_row_is_said_with_the_columns_that_are_missing_most(family: str) -> None:
    rows = pd.DataFrame({"y": [0.0, 1.0] * 10, "x": np.nan, "z": np.nan})
    rows.loc[:4, "z"] = 1.0
    first = rows.copy()
    first.loc[3, "x"] = 2.0
    with pytest.raises(fs.InputError) as caught:
        fs.fit([first, rows], "y ~ z + x", family=family)
    assert "1 of 40 rows is complete, values are missing of x in 39, z in 30" in str(caught.value)


def test_messages_speak_of_parameters_in_python_and_of_options_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    wards = "".join(f"{i % 7},{ward}\n" for i in range(20) for ward in ("01", "1", "2"))
    for text, formula, python, terminal in (
        ("y,x\n1,2\n2,\n3,5\n", "y ~ x", "by missing='drop'", "by --missing drop"),
        ("y,x\n" + "1,2\n2,3\n" * 9 + "3,k.A.\n", "y ~ x", "na=['k.A.']", "--set na=k.A."),
        ("y,x\n" + "1,2\n2,3\n" * 9 + "3,-\n", "y ~ x", "na=['-']", "--set na=-"),
        ('y,x\n1,"1,5"\n2,"2,5"\n', "y ~ x", "decimal=','", "--set decimal=,"),
        ("y,ward\n" + wards, "y ~ C(ward)", "types={'ward': 'text'}", "--types ward=text"),
    ):
        path.write_text(text)
        try:
            said = " ".join(fs.fit(path, formula, missing="fail").warnings)
        except fs.InputError as error:
            said = str(error)
        assert python in said
        run(["fit", str(path), "--formula", formula, "--missing", "fail"])
        printed = capsys.readouterr()
        assert terminal in printed.out + printed.err
        assert python not in printed.out + printed.err
