"""What a fitted model can do."""

import gc
import json
import math
import os
import pickle
import re
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

import fedsplit as fs
from fedsplit.clients.oracle import Incident
from fedsplit.regression.result.io import plain, value_of
from hospitals import FORMULA, RANDHIE, people


def test_a_model_comes_back_from_its_files_as_it_was(tmp_path: Path) -> None:
    frames = people()
    for family, target in (
        ("logistic", "ill"),
        ("gaussian", "score"),
        ("multinomial", "ward"),
        ("huber", "score"),
    ):
        model = fs.fit(frames, f"{target} ~ age + hours", family=family)
        model.save(tmp_path / family)
        loaded = fs.load(tmp_path / family)
        assert loaded.summary() == model.summary()
        assert loaded.to_dict() == model.to_dict()
        frame = frames["hospital0"]
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        assert np.array_equal(loaded.trace.objective, model.trace.objective, equal_nan=True)
        with pytest.raises(fs.InputError, match="no clients at hand"):
            loaded.bias_of("fedgd")


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("{"),
        lambda file: file.write_bytes(b"\xff\xfe"),
        lambda file: file.write_text('{"format": 3}'),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text("[" * 10**5),
        lambda file: file.unlink(),
        lambda file: file.write_text(file.read_text()[:-3]),
        lambda file: file.write_text(file.read_text().replace("1", "2", 1)),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    fs.fit(people(), "score ~ age").save(tmp_path)
    damage(tmp_path / "model.json")
    with pytest.raises(fs.InputError) as caught:
        fs.load(tmp_path)
    assert re.fullmatch(
        r"\S+model.json: is no saved model, or was damaged: fit the model again"
        r"|\S+model.json: was damaged, or changed after it was saved: fit the model again"
        r"|\S+: there is no model.json: is it a saved model\?",
        str(caught.value),
    )
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("path", [3, None, b"fit", people()])
def test_a_saved_model_is_named_by_its_folder(path: Any) -> None:
    with pytest.raises(
        fs.InputError, match=r"named by its folder, not by (int|NoneType|bytes|dict)"
    ):
        fs.load(path)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, float("nan"), "0.05", None, True])
def test_a_level_of_no_interval_is_refused_in_the_same_words(alpha: Any) -> None:
    with pytest.raises(fs.InputError, match=f"alpha must be between 0 and 1, not {alpha!r}"):
        fs.fit(people(), "score ~ age").conf_int(alpha=alpha)


@pytest.mark.parametrize("found", [1, 2, 99])
def test_a_model_in_another_format_has_to_be_fitted_again(tmp_path: Path, found: int) -> None:
    (tmp_path / "model.json").write_text(f'{{"format": {found}}}')
    with pytest.raises(fs.InputError, match=f"saved in format {found}, .*: fit the model again"):
        fs.load(tmp_path)


@pytest.mark.parametrize("part", ["estimates", "settings", "coef", "fit"])
def test_a_model_of_which_a_part_was_changed_is_refused(tmp_path: Path, part: str) -> None:
    saved(tmp_path / "one", "score ~ age")
    saved(tmp_path / "other", "score ~ hours", people(1))
    files = [tmp_path / name / "model.json" for name in ("one", "other")]
    found, other = (json.loads(file.read_text()) for file in files)
    files[0].write_text(json.dumps(found, sort_keys=True))  # laid out otherwise
    assert fs.load(tmp_path / "one").formula == "score ~ age"
    found[part] = other[part] if part != "settings" else {**other[part], "tol": 0.5}
    files[0].write_text(json.dumps(found))
    with pytest.raises(fs.InputError, match="was damaged, or changed after it was saved"):
        fs.load(tmp_path / "one")


def saved(folder: Path, formula: str, frames: dict[str, pd.DataFrame] | None = None) -> Path:
    fs.fit(frames or people(), formula).save(folder)
    return folder


@pytest.mark.parametrize("at", range(3))
def test_an_interrupt_leaves_the_old_model_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    saved(tmp_path, "score ~ age")
    new = fs.fit(people(), "score ~ hours")
    steps = iter(range(3))  # the file is written, then renamed, then its name is made durable

    def interrupted(step: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object) -> object:
            if next(steps) == at:
                raise KeyboardInterrupt
            return step(*args)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted(os.fsync))
        patch.setattr(Path, "replace", interrupted(Path.replace))
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path)
    assert fs.load(tmp_path).formula == ("score ~ age" if at < 2 else "score ~ hours")
    new.save(tmp_path)
    assert fs.load(tmp_path).summary() == new.summary()
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (NDArray[np.float64], np.array([[0.1, np.nan], [-np.inf, 1e-320]])),
        (tuple[int, str, bool], (3, "\u2603", True)),
        (tuple[tuple[float, ...], ...], ((1.5, -0.0), (math.pi,))),
        (Sequence[tuple[int, float | None]], [(1, None), (2, math.inf)]),
        (Mapping[str, Sequence[float]], {"knots": [0.1 + 0.2, -math.inf]}),
        (Incident, Incident(3, "a", "late")),
        (fs.Privacy | None, fs.Privacy(1, 1e-6, 2.0, 5, ranges={"x": (0, 1)})),
    ],
)
def test_what_a_model_is_made_of_comes_back_from_json_to_the_bit(kind: Any, value: Any) -> None:
    text = json.dumps(plain(value), allow_nan=False)
    again = value_of(kind, json.loads(text))
    assert type(again) is type(value)
    if isinstance(value, np.ndarray):
        assert again.tobytes() == value.tobytes()
    else:
        assert repr(again) == repr(value).replace("(0, 1)", "[0, 1]")


def test_predictions_are_the_means_and_a_missing_value_has_none() -> None:
    frames = people()
    frame = frames["hospital1"].copy()
    model = fs.fit(frames, "visits ~ age + ward", family="poisson", exposure="hours")
    A = np.column_stack(
        [np.ones(len(frame)), frame.age, frame.ward == "south", frame.ward == "west"]
    )
    np.testing.assert_allclose(
        model.predict(frame), np.exp(A @ model.params) * frame.hours, rtol=1e-12
    )
    frame.loc[2, "ward"] = None
    predicted = model.predict(frame)
    assert np.flatnonzero(predicted.isna()).tolist() == [2]
    frame.loc[3, "ward"] = "attic"
    message = r"^the frame: column ward, row 4: attic is none of its levels north, south, west"
    with pytest.raises(fs.InputError, match=message):
        model.predict(frame)
    allowed = model.predict(frame, unseen="nan")
    assert np.flatnonzero(allowed.isna()).tolist() == [2, 3]
    np.testing.assert_array_equal(allowed.drop(3), predicted.drop(3))
    with pytest.raises(fs.InputError, match="unseen 'skip' is not known: use one of error, nan"):
        model.predict(frame, unseen="skip")  # type: ignore[arg-type]  # a wrong value is the point
    with pytest.raises(fs.InputError, match=r"^the frame: there is no column 'age'"):
        model.predict(frame.drop(columns="age"))


def test_classes_are_predicted_by_name() -> None:
    frames = {
        name: frame.assign(ill=np.where(frame.ill == 1, "yes", "no"))
        for name, frame in people().items()
    }
    model = fs.fit(frames, "ill ~ age + ward", family="logistic")
    frame = frames["hospital0"]
    p = model.predict(frame)
    assert set(model.predict(frame, kind="class")) <= {"yes", "no"}
    assert ((model.predict(frame, kind="class") == "yes") == (p > 0.5)).all()
    many = fs.fit(frames, "ward ~ age", family="multinomial")
    np.testing.assert_allclose(many.predict(frame).sum(axis=1), 1.0)
    assert list(many.predict(frame).columns) == ["north", "south", "west"]
    assert list(many.params.index) == ["south:Intercept", "south:age", "west:Intercept", "west:age"]


def test_the_table_names_the_class_that_a_model_is_about(tmp_path: Path) -> None:
    frames = {
        name: frame.assign(outcome=np.where(frame.ill == 1, "died", "alive"))
        for name, frame in people().items()
    }
    for target, modelled in (
        ("outcome", "died"),
        ("ill", "ill = 1"),
        ("{hours > 5}", "hours > 5"),
    ):
        model = fs.fit(frames, f"{target} ~ age", family="logistic")
        assert f"\nmodelled: {modelled}\n" in model.summary()
        assert model.to_dict()["modelled"] == modelled
    many = fs.fit(frames, "ward ~ age", family="multinomial")
    assert "\nreference: north\n" in many.summary()
    assert "modelled" not in fs.fit(frames, "score ~ age").summary()


def test_a_penalty_leaves_no_standard_error_and_says_why() -> None:
    for options in (
        {"ridge": 1.0},
        {"l1": 1.0},
        {"nonnegative": ["age"]},
        {"elastic_net": (1.0, 1.0)},
    ):
        model = fs.fit(people(), "score ~ age + ward", **options)
        assert model.bse is None
        assert "biased" in str(model.se_reason)
        assert model.to_dict()["se"] is None
        with pytest.raises(fs.InputError, match="biased"):
            model.conf_int()


def test_a_coefficient_that_must_not_be_negative_is_zero() -> None:
    frames = people()
    for frame in frames.values():
        frame["against"] = -frame.age + np.sin(np.arange(len(frame)))
    model = fs.fit(frames, "score ~ against + ward", nonnegative=["against"])
    assert model.params["against"] == 0
    assert model.converged
    np.testing.assert_allclose(
        model.params.drop("against"), fs.fit(frames, "score ~ ward").params, rtol=1e-7
    )


def test_what_one_client_brings_is_close_to_what_leaving_it_out_shows() -> None:
    frames = people(3, (200, 150, 100, 80))
    model = fs.fit(frames, "score ~ age + ward")
    for name in frames:
        rest = fs.fit(
            {other: frame for other, frame in frames.items() if other != name}, "score ~ age + ward"
        )
        row = model.clients.loc[name]
        moved = (rest.params - model.params)[row.coefficient] / model.estimates.errors[
            list(model.estimates.names).index(row.coefficient)
        ]
        assert row["shift"] == pytest.approx(moved, rel=1e-6)  # exact for a quadratic
    assert model.clients.leverage.sum() == pytest.approx(1.0)


def test_averaging_methods_land_elsewhere_and_the_bias_says_how_far() -> None:
    model = fs.fit(RANDHIE, FORMULA, family="poisson")
    fedgd, fedprox = model.bias_of("fedgd", local_steps=10), model.bias_of("fedprox")
    assert fedgd.worst > 0.1
    assert fedprox.worst > 0.01
    assert model.bias_of("fedgd", local_steps=1).worst < 1e-6
    assert f"fedgd, local_steps=10, step={fedgd.step:.3g} would stop up to" in str(fedgd)
    smaller = model.bias_of("fedgd", local_steps=10, step=fedgd.step / 10)
    assert smaller.step == fedgd.step / 10
    assert smaller.worst < 0.5 * fedgd.worst
    with pytest.raises(fs.InputError, match="the bias is known of"):
        model.bias_of("scaffold")
    with pytest.raises(fs.InputError, match="takes step"):
        model.bias_of("fedprox", local_steps=3)


def test_the_bias_is_where_fedgd_goes_in_the_end() -> None:
    model = fs.fit(people(), "score ~ age + ward")
    assert model.at_hand is not None
    biased = model.bias_of("fedgd", local_steps=5)
    assert model.x is not None
    problem, x, back = model.at_hand.in_scaled_columns(model.x)
    ran = fs.solve(problem, fs.FedGD(local_steps=5), rounds=3000, tol=0)
    np.testing.assert_allclose(model.params + back @ (ran.x - x), biased.params, rtol=1e-6)


def large() -> tuple[pd.DataFrame, int]:
    """Rows of ten clients, and the bytes of their numbers."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((20_000, 12)), columns=[f"x{i}" for i in range(12)])
    frame["y"] = frame.to_numpy() @ np.ones(12) + rng.standard_normal(20_000)
    return frame.assign(site=np.arange(20_000) % 10), 20_000 * 13 * 8


def of_large(frame: pd.DataFrame) -> "fs.Model":
    return fs.fit(frame, "y ~ " + " + ".join(f"x{i}" for i in range(12)), group="site")


@pytest.mark.parametrize("by", ["pickle", "cloudpickle"])
def test_a_pickled_model_holds_results_and_no_row(by: str) -> None:
    frame, _ = large()
    model = of_large(frame)
    data = pytest.importorskip(by).dumps(model)
    assert len(data) < 200_000
    for row in (0, 7, 19_999):
        assert frame["y"].to_numpy()[row].tobytes() not in data
    back = pickle.loads(data)
    assert back.summary() == model.summary()
    np.testing.assert_array_equal(back.predict(frame), model.predict(frame))
    with pytest.raises(fs.InputError, match="no clients at hand"):
        back.bias_of("fedgd")


def test_a_model_that_is_kept_holds_no_copy_of_its_data() -> None:
    frame, size = large()
    of_large(frame)  # what is cached once for all is not counted
    gc.collect()
    tracemalloc.start()
    try:
        model = of_large(frame)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 0.2 * size
    assert model.bias_of("fedgd", local_steps=1).worst < 1e-6


def test_data_that_changed_since_the_fit_have_no_bias() -> None:
    frames = people()
    model = fs.fit(frames, "score ~ age")
    frames["hospital0"].loc[0, "score"] += 1.0
    with pytest.raises(fs.InputError, match="its data changed"):
        model.bias_of("fedgd")


def test_a_pickled_path_holds_results_and_no_row() -> None:
    frames = people()
    path = fs.path(frames, "score ~ age + hours", n_lambdas=3)
    data = pickle.dumps(path)
    assert frames["hospital0"]["score"].to_numpy()[3].tobytes() not in data
    back = pickle.loads(data)
    assert back.summary() == path.summary()
    with pytest.raises(fs.InputError, match="no clients at hand"):
        back.model(1.0)


def test_a_prompt_shows_a_model_and_a_path_in_a_line() -> None:
    frames = people()
    model = fs.fit(frames, "score ~ age + ward")
    assert repr(model) == (
        "<Model gaussian, score ~ age + ward: 4 coefficients, 135 rows of 3 clients, converged>"
    )
    path = fs.path(frames, "score ~ age + ward", lambdas=[2.0, 1.0])
    assert repr(path) == (
        "<RegularisationPath gaussian, score ~ age + ward: 2 values of lambda from 2 to 1, "
        "135 rows of 3 clients>"
    )


def test_a_notebook_shows_tables() -> None:
    frames = {
        name: frame.assign(ward=frame.ward.str.replace("west", "we<st>"))
        for name, frame in people().items()
    }
    model = fs.fit(frames, "score ~ age + ward")
    html = model._repr_html_()
    assert "<table" in html
    assert "ward[T.we&lt;st&gt;]" in html
    assert "P&gt;|t|" in html
    assert "converged yes" in html
    assert model.summary()._repr_html_().startswith("<pre>gaussian regression")
    assert "we&lt;st&gt;" in model.summary()._repr_html_()
    path = fs.path(frames, "score ~ age + ward", lambdas=[2.0, 1.0], folds="clients")
    assert path._repr_html_().count("<tr>") == 3


def test_terms_name_the_columns_of_the_design() -> None:
    model = fs.fit(people(), "score ~ age*ward + poly(hours, 2)")
    assert model.terms == {
        "Intercept": ["Intercept"],
        "age": ["age"],
        "ward": ["ward[T.south]", "ward[T.west]"],
        "poly(hours, 2)": ["poly(hours, 2)1", "poly(hours, 2)2"],
        "age:ward": ["age:ward[T.south]", "age:ward[T.west]"],
    }
    classes = fs.fit(people(), "ward ~ age - 1", family="multinomial")
    assert classes.terms == {"age": ["age"]}


def test_the_fingerprint_is_of_the_rows_and_not_of_the_covariates(tmp_path: Path) -> None:
    frames = people()
    small, large = fs.fit(frames, "score ~ 1"), fs.fit(frames, "score ~ age*ward")
    assert small.fit.fingerprint == large.fit.fingerprint
    assert fs.fit(frames, "hours ~ 1").fit.fingerprint != small.fit.fingerprint
    frames["hospital1"].loc[3, "age"] = np.nan
    assert fs.fit(frames, "score ~ age*ward").fit.fingerprint != small.fit.fingerprint
    assert fs.fit(frames, "score ~ 1").fit.fingerprint == small.fit.fingerprint
    large.save(tmp_path)
    assert fs.load(tmp_path).fit.fingerprint == large.fit.fingerprint


def test_the_pooled_moments_are_those_of_all_rows(tmp_path: Path) -> None:
    frames = people()
    model = fs.fit(frames, "score ~ age + hours")
    model.save(tmp_path)
    pool = pd.concat(frames.values())
    for each in (model, fs.load(tmp_path)):
        moments = each.fit.moments
        assert moments is not None
        assert list(moments.names) == ["Intercept", "age", "hours"]
        np.testing.assert_allclose(moments.mean, [1, pool.age.mean(), pool.hours.mean()])
        covariance = moments.scatter[1:, 1:] / (moments.weight - 1)
        np.testing.assert_allclose(covariance, pool[["age", "hours"]].cov(), rtol=1e-9)
        assert moments.target == pytest.approx(pool.score.mean())


def test_criteria_count_the_dispersion_as_r_does() -> None:
    frames = people()
    model = fs.fit(frames, "score ~ age")
    assert model.llf is not None
    assert model.df_model == 1
    assert model.aic == pytest.approx(-2 * model.llf + 2 * 3)
    assert model.bic == pytest.approx(-2 * model.llf + 3 * np.log(model.nobs))
    counts = fs.fit(frames, "visits ~ age", family="poisson")
    assert counts.llf is not None
    assert counts.bic == pytest.approx(-2 * counts.llf + 2 * np.log(model.nobs))
    classes = fs.fit(frames, "ward ~ age", family="multinomial")
    assert classes.df_model == 2


def test_the_table_and_json_say_what_was_fitted(tmp_path: Path) -> None:
    frames = people()
    frames["hospital0"].loc[:4, "age"] = np.nan
    frames["hospital2"].loc[4:5, "hours"] = np.nan
    model = fs.fit(
        frames,
        "visits ~ age + ward",
        family="poisson",
        exposure="hours",
        reference={"ward": "south"},
        ridge=2.0,
    )
    model.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for line in (
        "exposure hours",
        "penalty: ridge 2",
        "reference levels: ward south",
        "missing values: age 5, hours 2; 7 rows left out",
    ):
        assert f"\n{line}\n" in model.summary()
        assert line[1:] in page
    told = model.to_dict()
    assert (told["weights"], told["offset"], told["exposure"]) == (None, None, "hours")
    assert told["penalty"]["ridge"] == 2.0
    assert told["reference"] == {"ward": "south"}
    assert (told["missing_values"], told["rows_left_out"]) == ({"age": 5, "hours": 2}, 7)
    assert told["delta"] is None
    model.save(tmp_path)
    assert fs.load(tmp_path).to_dict() == told


def test_a_plain_fit_has_no_line_about_options() -> None:
    lines = str(fs.fit(people(), "score ~ age").summary()).splitlines()
    assert lines[1] == "score ~ age"
    assert lines[2].startswith("n 135   parameters 2   residual degrees of freedom 133")


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("score ~ ward", {"ward": "north"}),
        ("score ~ C(ward, Treatment('west'))", {"C(ward, Treatment('west'))": "west"}),
        ("score ~ C(ward, contr.sum)", {}),
        ("score ~ ward - 1", {}),
        ("score ~ age*ward", {"ward": "north"}),
    ],
)
def test_reference_levels_are_those_without_a_column(
    formula: str, expected: dict[str, str]
) -> None:
    assert fs.fit(people(), formula).to_dict()["reference"] == expected


def test_weights_penalties_and_constraints_are_said() -> None:
    frames = people()
    model = fs.fit(frames, "score ~ age + ward", weights="hours", l1=0.5, nonnegative=["age"])
    assert "\nweights hours\n" in model.summary()
    assert "\npenalty: l1 0.5, age not negative\n" in model.summary()
    scaled = fs.fit(frames, "score ~ age", offset="hours", ridge=1.5, standardize=True)
    assert "\noffset hours\npenalty: ridge 1.5, on standardized columns\n" in scaled.summary()


def test_a_penalised_fit_has_no_criterion_dispersion_or_degrees_of_freedom() -> None:
    free, shrunk = (fs.fit(people(), "score ~ age + hours", ridge=ridge) for ridge in (0.0, 5.0))
    assert free.aic is not None
    assert free.dispersion is not None
    assert "residual degrees of freedom 132" in free.summary()
    assert (shrunk.aic, shrunk.bic, shrunk.dispersion) == (None, None, None)
    for word in ("AIC", "dispersion", "degrees of freedom"):
        assert word not in shrunk.summary()


def test_a_saturated_gaussian_model_has_no_likelihood() -> None:
    frame = pd.DataFrame({"y": [1.0, 2.5, 0.3, 7.0], "k": list("abcd"), "site": [1, 1, 2, 2]})
    model = fs.fit(frame, "y ~ k", group="site")
    assert (model.llf, model.aic, model.bse) == (None, None, None)
    assert "as many coefficients as rows" in model.summary()
    assert fs.fit(frame.assign(x=[0, 1, 0, 2]), "y ~ x", group="site").llf is not None


def test_counts_that_vary_more_than_poisson_are_warned_of() -> None:
    frames = {
        name: frame.assign(many=3 * frame.visits**2, steady=np.arange(len(frame)) % 2 + 2)
        for name, frame in people().items()
    }
    pool = pd.concat(frames.values())
    design = np.column_stack([np.ones(len(pool)), pool.age])
    expected = sm.GLM(pool.many, design, family=sm.families.Poisson()).fit()
    model = fs.fit(frames, "many ~ age", family="poisson")
    ratio = expected.pearson_chi2 / expected.df_resid
    assert model.overdispersion == pytest.approx(ratio, rel=1e-8)
    assert f"Pearson X²/df {ratio:.6g}" in model.summary()
    [warning] = model.warnings
    assert f"the rows vary {ratio:.2g} times as much as poisson regression allows" in warning
    assert f"are {ratio**0.5:.2g} times as large" in warning
    assert model.to_dict()["warnings"] == [warning]
    steady = fs.fit(frames, "steady ~ age", family="poisson")
    assert steady.overdispersion is not None
    assert steady.overdispersion < 0.5
    assert not steady.warnings


@pytest.mark.parametrize("secure", [False, True])
def test_groups_of_trials_have_pearsons_x2_by_group(secure: bool) -> None:
    rng = np.random.default_rng(5)
    x, trials = rng.normal(size=90), rng.integers(1, 20, 90)
    chance = 1 / (1 + np.exp(-0.5 * x - rng.normal(size=90)))
    frame = pd.DataFrame({"x": x, "s": rng.binomial(trials, chance), "site": np.arange(90) % 3})
    frame["f"] = trials - frame.s
    expected = sm.GLM(frame[["s", "f"]], sm.add_constant(x), family=sm.families.Binomial()).fit()
    model = fs.fit(frame, "cbind(s, f) ~ x", family="logistic", group="site", secure=secure)
    ratio = expected.pearson_chi2 / expected.df_resid
    assert model.overdispersion == pytest.approx(ratio, rel=1e-8)
    assert any("vary" in text for text in model.warnings)
    single = fs.fit(people(), "ill ~ age", family="logistic")
    assert single.overdispersion is None  # X² of single trials is about their number


def test_files_that_fedsplit_did_not_write_are_left_alone(tmp_path: Path) -> None:
    model = fs.fit(people(), "score ~ age")
    model.write(tmp_path)
    model.write(tmp_path)  # over its own files
    for name in ("report.html", "trace.csv", "model.json"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"mine")
        with pytest.raises(fs.InputError, match=f"{name}: was not written by fedsplit"):
            model.write(tmp_path)
        assert (tmp_path / name).read_bytes() == b"mine"
        (tmp_path / name).write_bytes(content)
    (tmp_path / "notes.txt").write_text("mine")
    model.write(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
