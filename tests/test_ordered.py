"""A family with a block of thresholds: the ordered logit model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit
from statsmodels.miscmodels.ordinal_model import OrderedModel

import fedsplit as fs
from analyses.negative_binomial import NegativeBinomialFamily
from fedsplit.errors import InputError
from fedsplit.losses.terms import Terms
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.families.numbers import PoissonFamily
from fedsplit.regression.options import Settings
from ordered import CumulativeLogit, OrderedFamily

CLASSES = ["a low", "b mid", "c high", "d top"]


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "ordered", OrderedFamily())


@cache
def ward_frames() -> dict[str, pd.DataFrame]:
    frames = {}
    for j in range(4):
        rng = np.random.default_rng([7, j])
        n = 150 + 30 * j
        x = rng.normal(10.0, 3.0, n)
        ward = rng.choice(["u", "v", "w"], n)
        eta = 0.3 * x + 0.5 * (ward == "v") - 0.4 * (ward == "w") + rng.logistic(size=n)
        answers = np.array(CLASSES)[np.digitize(eta, [2.0, 3.2, 4.5])]
        half = np.log(rng.uniform(1.0, 3.0, n))
        frames[f"s{j}"] = pd.DataFrame({"x": x, "ward": ward, "half": half, "answer": answers})
    return frames


@cache
def reference() -> Any:
    rows = pd.concat(ward_frames().values(), ignore_index=True)
    rows["answer"] = pd.Categorical(rows["answer"], categories=CLASSES, ordered=True)
    model = OrderedModel.from_formula("answer ~ x + ward", rows, distr="logit")
    fit = model.fit(method="bfgs", disp=0, maxiter=500)
    # to its last digits, by Newton's method on the model's own score
    params = fit.params.to_numpy()
    for _ in range(3):
        params = params - np.linalg.solve(model.hessian(params), model.score(params))
    thresholds = model.transform_threshold_params(params)[1:-1]
    # the first threshold, and the logarithms of the gaps
    J = np.eye(len(params))
    p = len(params) - len(thresholds)
    J[p:, p:] = np.tril(np.ones((3, 3)) * np.r_[1.0, np.exp(params[p + 1 :])])
    covariance = J @ np.linalg.inv(-model.hessian(params)) @ J.T
    # statsmodels puts columns of categories first
    order = [2, 0, 1, 3, 4, 5]
    return (
        np.concatenate([params[:p], thresholds])[order],
        np.sqrt(np.diag(covariance))[order],
        model.loglike(params),
    )


@pytest.mark.parametrize("way", [{}, {"secure": True}])
def test_thresholds_and_slopes_are_those_of_the_pooled_rows(way: dict[str, Any]) -> None:
    model = fs.fit(ward_frames(), "answer ~ x + ward", family="ordered", **way)
    params, errors, llf = reference()
    thresholds = ["a low|b mid", "b mid|c high", "c high|d top"]
    assert list(model.params.index) == ["x", "ward[T.v]", "ward[T.w]", *thresholds]
    assert np.max(np.abs(model.params.to_numpy() - params) / errors) < 1e-6
    assert model.bse is not None
    np.testing.assert_allclose(model.bse, errors, rtol=1e-5)
    assert model.llf == pytest.approx(llf, rel=1e-12)
    assert (model.df_model, model.df_resid) == (3, model.nobs - 6)
    assert model.converged
    assert model.certificate.reason == "self-concordance"


def test_a_constant_column_follows_from_thresholds() -> None:
    frames = {name: frame.assign(one=2.5) for name, frame in ward_frames().items()}
    model = fs.fit(frames, "answer ~ x + one", family="ordered")
    assert list(model.aliased) == ["one"]
    without = fs.fit(frames, "answer ~ x", family="ordered")
    np.testing.assert_allclose(model.params.drop("one"), without.params, rtol=1e-9)
    # nor does it matter from where a column is measured
    moved = {name: frame.assign(x=frame["x"] - 1000.0) for name, frame in ward_frames().items()}
    far = fs.fit(moved, "answer ~ x", family="ordered")
    assert far.params["x"] == pytest.approx(without.params["x"], rel=1e-9)
    thresholds = without.params.drop("x") - 1000.0 * without.params["x"]
    np.testing.assert_allclose(far.params.drop("x"), thresholds, rtol=1e-9)


def test_predictions_are_probabilities_of_all_classes() -> None:
    frame = ward_frames()["s0"]
    model = fs.fit(ward_frames(), "answer ~ x + offset(half)", family="ordered")
    predicted = model.predict(frame)
    assert list(predicted.columns) == CLASSES
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, rtol=1e-12)
    eta = model.params["x"] * frame["x"] + frame["half"]
    upto = expit(model.params["b mid|c high"] - eta)
    np.testing.assert_allclose(predicted["a low"] + predicted["b mid"], upto, rtol=1e-12)
    assert set(model.predict(frame, "class")) <= set(CLASSES)


def test_a_class_that_a_column_decides_has_no_finite_slope() -> None:
    frames = {
        name: frame.assign(sign=(frame["answer"] == "d top").astype(float))
        for name, frame in ward_frames().items()
    }
    model = fs.fit(frames, "answer ~ sign + x", family="ordered")
    # the last threshold may follow the sign up
    assert model.not_estimable == {"sign": "+inf", "c high|d top": "+inf"}
    lower = {name: frame[frame["answer"] != "d top"] for name, frame in frames.items()}
    rest = fs.fit(lower, "answer ~ x", family="ordered")
    np.testing.assert_allclose(model.params[rest.params.index], rest.params, rtol=1e-6)
    with pytest.raises(InputError, match="the classes are separable"):
        fs.fit(
            {
                name: frame.assign(place=frame["answer"].map(CLASSES.index).astype(float))
                for name, frame in ward_frames().items()
            },
            "answer ~ place",
            family="ordered",
        )


def test_a_ridge_leaves_thresholds_alone() -> None:
    model = fs.fit(ward_frames(), "answer ~ x", family="ordered", ridge=1e9)
    assert abs(model.params["x"]) < 1e-5
    rows = pd.concat(ward_frames().values())
    shares = (rows["answer"].value_counts() / len(rows)).reindex(CLASSES).cumsum()[:-1]
    np.testing.assert_allclose(expit(model.params.drop("x") - 10 * model.params["x"]), shares, 1e-3)


def test_a_level_that_columns_are_measured_from_cannot_be_constrained() -> None:
    level = "is the level that columns are measured from, and cannot be constrained"
    with pytest.raises(InputError, match=rf"nonnegative: a low\|b mid {level}"):
        fs.fit(ward_frames(), "answer ~ x", family="ordered", nonnegative=["a low|b mid"])
    with pytest.raises(InputError, match=f"nonnegative: Intercept {level}"):
        fs.fit(ward_frames(), "half ~ x", nonnegative=["Intercept"])
    model = fs.fit(ward_frames(), "answer ~ x + half", family="ordered", nonnegative=["x"])
    assert model.params["x"] > 0


def terms() -> Terms:
    rng = np.random.default_rng(3)
    A, b = rng.normal(size=(20, 2)), rng.integers(0, 4, 20).astype(float)
    d, [block] = CumulativeLogit(4, least=0.5).stack([(A, b)], np.zeros(()))
    assert d == 5
    return block.terms


@pytest.mark.parametrize("thresholds", [[-1.0, 0.2, 1.5], [0.0, 0.1, 0.9], [0.3, 0.0, -0.2]])
def test_derivatives_of_the_ordered_loss_are_those_of_its_values(thresholds: list[float]) -> None:
    f = terms()
    x = np.array([0.4, -0.7, *thresholds])
    steps = 1e-5 * np.eye(5)

    def slope(x: Any) -> Any:
        return f.gradient(f.eta(x[None]))[0]

    values = [[f.value(f.eta((x + sign * h)[None]))[0] for sign in (1, -1)] for h in steps]
    np.testing.assert_allclose(slope(x), [(a - b) / 2e-5 for a, b in values], rtol=1e-7, atol=1e-7)
    differences = [(slope(x + h) - slope(x - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(f.hessian(f.eta(x[None]))[0], differences, rtol=1e-6, atol=1e-6)


def test_the_curvature_of_the_ordered_loss_changes_as_slowly_as_it_states() -> None:
    f = terms()
    rng = np.random.default_rng(5)
    bound = f.concordance(None)[0][0]
    closest = np.inf
    for _ in range(200):
        x = np.append(rng.normal(size=2), rng.normal(scale=0.5, size=3))
        h = 1e-3 * rng.normal(size=5)
        before, after = (f.hessian(f.eta(point[None]))[0] for point in (x, x + h))
        least = np.log(np.linalg.eigvals(np.linalg.solve(before, after)).real.min())
        assert least >= -f.spread(h[None])[0]
        assert f.spread(h[None])[0] <= bound * np.linalg.norm(h)
        closest = min(closest, least + f.spread(h[None])[0])
    assert closest < 1e-3 * bound


def test_a_family_is_a_value_with_its_parameters() -> None:
    frames = {name: frame.assign(y=frame["x"] ** 2) for name, frame in ward_frames().items()}
    by_name = fs.fit(frames, "y ~ half", family="huber", delta=2.0)
    for family in (replace(FAMILIES["huber"], delta=2.0), "huber:delta=2"):  # type: ignore[call-arg]
        by_value = fs.fit(frames, "y ~ half", family=family)
        assert by_value.settings == by_name.settings
        np.testing.assert_array_equal(by_value.params, by_name.params)
    assert Settings(family=PoissonFamily()).family == "poisson"
    with pytest.raises(InputError, match="delta is given twice, in family='huber:delta=2' too"):
        Settings(family="huber:delta=2", delta=3.0)
    with pytest.raises(InputError, match=r"family 'huber:delta=b': 'b' is no number"):
        Settings(family="huber:delta=b")
    with pytest.raises(InputError, match="poisson has no parameter theta: it has none"):
        Settings(family="poisson:theta=2")


def test_a_parameter_of_any_family_reaches_the_fit_and_its_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(FAMILIES, "negative binomial", NegativeBinomialFamily())
    frames = {name: frame.assign(n=np.rint(frame["x"])) for name, frame in ward_frames().items()}
    model = fs.fit(frames, "n ~ half", family=NegativeBinomialFamily(2.5))
    rows = pd.concat(frames.values())
    family = sm.families.NegativeBinomial(alpha=1 / 2.5)
    pooled = sm.GLM(rows["n"], sm.add_constant(rows[["half"]]), family=family).fit(tol=1e-12)
    np.testing.assert_allclose(model.params, pooled.params, rtol=1e-6)
    assert model.family == NegativeBinomialFamily(2.5)
    assert "\ntheta 2.5\n" in str(model.summary())
    model.save(tmp_path)
    assert fs.load(tmp_path).summary() == model.summary()


def test_answers_about_costs_that_are_no_sums_over_rows_are_counted_as_unstated() -> None:
    model = fs.fit(ward_frames(), "answer ~ x", family="ordered", levels={"answer": CLASSES})
    table = model.disclosure()
    assert (table["unstated"] >= 3).all()
    assert (table["largest_h"] < 1).all()
    with pytest.raises(fs.InputError, match="its cost is no sum over its rows"):
        fs.fit(
            ward_frames(), "answer ~ x", family="ordered", levels={"answer": CLASSES}, strict=True
        )
