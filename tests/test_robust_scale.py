"""Huber's δ in units of the residuals: what the clients agree on, and what the table says of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedsplit as fs
from fedsplit.data.pooled.column_statistics import Histogram, Withheld

FORMULA = "y ~ x + z"


def rows(n: int = 900, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.standard_normal(n), "z": rng.uniform(-1, 1, n)})
    frame["y"] = 30 + 2 * frame.x - 3 * frame.z + 1.5 * rng.standard_t(3, n)
    return frame.assign(site=np.arange(n) % 5)


def fitted(frame: pd.DataFrame, **more: Any) -> fs.Model:
    return fs.fit(frame, FORMULA, group="site", family="huber", **more)


def delta_of(model: fs.Model) -> float:
    assert model.delta is not None
    return model.delta


@pytest.mark.parametrize("unit", [1e-5, 100.0, 3e7])
def test_the_unit_of_the_target_does_not_change_a_robust_model(unit: float) -> None:
    frame = rows()
    one, other = fitted(frame), fitted(frame.assign(y=unit * frame.y))
    np.testing.assert_allclose(other.params / unit, one.params, rtol=1e-9)
    assert delta_of(other) == pytest.approx(unit * delta_of(one), rel=1e-12)
    assert one.robust_bse is not None
    assert other.robust_bse is not None
    np.testing.assert_allclose(other.robust_bse / unit, one.robust_bse, rtol=1e-6)


def test_adding_a_model_to_the_target_adds_its_coefficients() -> None:
    frame = rows()
    moved = fitted(frame.assign(y=frame.y + 1000 - 7 * frame.x))
    np.testing.assert_allclose(moved.params - fitted(frame).params, [1000, -7, 0], atol=0.02)


def test_the_deviation_is_that_of_the_residuals_as_statsmodels_has_it() -> None:
    frame = rows(4000)
    model = fitted(frame)
    robust = sm.RLM(frame.y, sm.add_constant(frame[["x", "z"]]), sm.robust.norms.HuberT()).fit()
    assert model.fit.spread == pytest.approx(robust.scale, rel=0.06)
    assert delta_of(model) == 1.345 * (model.fit.spread or 0.0)


@pytest.mark.parametrize("delta", [0.4, 1.345, 6.0])
def test_a_robust_fit_is_that_of_statsmodels_at_the_agreed_scale(delta: float) -> None:
    frame = rows()
    model = fitted(frame, delta=delta)
    X = sm.add_constant(frame[["x", "z"]])
    scale = sm.RLM(frame.y, X, sm.robust.norms.HuberT()).fit(update_scale=False).scale
    norm = sm.robust.norms.HuberT(delta_of(model) / scale)
    pool = sm.RLM(frame.y, X, norm).fit(update_scale=False, tol=1e-12, maxiter=1000)
    np.testing.assert_allclose(model.params, pool.params, rtol=1e-7)


def test_gross_errors_in_a_tenth_of_the_rows_hardly_change_the_deviation() -> None:
    frame = rows()
    wrong = frame.assign(y=frame.y.where(np.arange(len(frame)) % 10 > 0, 1e6))
    clean, dirty = fitted(frame), fitted(wrong)
    assert dirty.fit.spread == pytest.approx(clean.fit.spread, rel=0.35)
    np.testing.assert_allclose(dirty.params[1:], clean.params[1:], atol=0.4)


PHONE_CALLS = (
    *(4.4, 4.7, 4.7, 5.9, 6.6, 7.3, 8.1, 8.8, 10.6, 12.0, 13.5, 14.9, 16.1, 21.2, 119.0, 124.0),
    *(142.0, 159.0, 182.0, 212.0, 43.0, 24.0, 27.0, 29.0),
)
"""Phone calls in Belgium from 1950 on; six years counted minutes (Rousseeuw and Leroy, 1987)."""


def test_gross_errors_in_a_quarter_of_the_rows_leave_the_scale_of_r() -> None:
    frame = pd.DataFrame({"y": PHONE_CALLS, "x": np.arange(50.0, 74.0), "site": np.arange(24) % 4})
    model = fs.fit(frame, "y ~ x", group="site", family="huber")
    # MASS::rlm(calls ~ year, phones): scale 9.009, slope 2.04
    assert model.spread == pytest.approx(9.009, rel=0.05)
    assert model.params["x"] == pytest.approx(2.041, rel=0.05)


def test_secure_sums_and_refusals_agree_on_the_same_deviation() -> None:
    frame = rows()
    open_ = fitted(frame)
    for mode in ("secure", "strict"):
        model = fitted(frame, **{mode: True})
        assert model.fit.spread == pytest.approx(open_.fit.spread, rel=0.03)
        np.testing.assert_allclose(model.params, open_.params, rtol=1e-3)


def in_cells_of_one_row() -> pd.DataFrame:
    """120 rows at each of 6 clients: residuals near 0 fall into cells of one row or none."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"x": rng.standard_normal(720), "z": rng.standard_normal(720)})
    frame["y"] = np.sin(frame.x) + 0.3 * frame.z + rng.standard_normal(720)
    return frame.assign(site=np.arange(720) % 6)


@pytest.mark.parametrize("formula", [FORMULA, "y ~ bs(x, df=4) + z"])
def test_rows_in_small_counts_do_not_change_the_deviation(formula: str) -> None:
    frame = in_cells_of_one_row()
    open_, strict = (
        fs.fit(frame, formula, group="site", family="huber", strict=each) for each in (False, True)
    )
    assert strict.fit.spread == pytest.approx(open_.fit.spread, rel=0.02)
    np.testing.assert_allclose(strict.predict(frame), open_.predict(frame), atol=0.01)


def test_all_rows_are_counted_and_no_count_is_small() -> None:
    histogram = Histogram(-14.0, 1 / 6, 100)
    sizes = np.log2(np.abs(np.random.default_rng(0).standard_normal(250)))
    sizes[:2] = -30.0, 2.6  # alone in an open cell, and among the largest
    counts = histogram.joined(sizes, Withheld(3, together=True)).value()[0]
    assert counts.sum() == 250
    assert counts[counts > 0].min() >= 3
    exact = histogram.part(sizes, Withheld(1)).value()[0]
    assert np.abs(counts.cumsum() - exact.cumsum()).max() <= 8
    assert 0 < np.median(np.abs(counts.cumsum() - exact.cumsum())) < 5
    alone = histogram.joined(sizes[:2], Withheld(3, together=True)).value()
    assert not alone.any()  # all rows are too few


def test_with_fewer_rows_than_coefficients_the_deviation_is_that_of_the_target() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.standard_normal((24, 30)), columns=[f"x{i}" for i in range(30)])
    frame = frame.assign(y=5 * rng.standard_normal(24), site=np.arange(24) % 2)
    model = fs.fit(frame, target="y", group="site", family="huber", ridge=1.0)
    assert model.fit.spread is not None
    assert 1 < model.fit.spread < 15


def test_a_path_and_a_fit_of_the_same_penalty_have_the_same_deviation() -> None:
    frame = rows()
    path = fs.path(frame, FORMULA, group="site", family="huber", lambdas=[50.0, 5.0])
    again = fitted(frame, l1=5.0, standardize=True)
    assert path.model(5.0).delta == again.delta
    np.testing.assert_allclose(path.params.iloc[1], again.params, rtol=1e-6)


def test_table_json_and_page_report_delta_in_the_unit_of_the_target(tmp_path: Path) -> None:
    model = fitted(rows())
    told = model.to_dict()
    assert told["delta"] == pytest.approx(1.345 * told["residual_deviation"])
    shown = f"delta {model.delta:.4g} (1.345 robust deviations of {model.fit.spread:.4g})"
    assert shown in str(model.summary())
    model.report(tmp_path / "fit.html")
    assert shown[1:] in (tmp_path / "fit.html").read_text()  # a sentence begins with it
    gaussian = fs.fit(rows(), FORMULA, group="site")
    assert (gaussian.delta, gaussian.to_dict()["residual_deviation"]) == (None, None)


def test_a_saved_model_still_says_its_delta(tmp_path: Path) -> None:
    model = fitted(rows())
    model.save(tmp_path / "model")
    assert fs.load(tmp_path / "model").delta == model.delta


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("binomial", "logistic"),
        ("Binomial", "logistic"),
        ("normal", "gaussian"),
        ("Gaussian", "gaussian"),
        ("multinom", "multinomial"),
        ("Gamma", "gamma"),
        ("Poisson", "poisson"),
    ],
)
def test_names_of_r_and_statsmodels_are_understood(written: str, name: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(200), "y": rng.integers(0, 2, 200)})
    if name == "gamma":
        frame["y"] += 1
    model, own = (
        fs.fit(frame.assign(c=frame.index % 2), "y ~ x", group="c", family=family)
        for family in (written, name)
    )
    assert model.family.name == model.to_dict()["family"] == name
    np.testing.assert_array_equal(model.params, own.params)
