"""Columns that others determine, nearly or exactly, against R.

R's figures are those of ``glm(..., control = list(epsilon = 1e-12, maxit = 50))``, and of ``lm``
for the target with a large mean, on ``rows()`` written as CSV with 17 digits; R 4.2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import faulty
import fedsplit as fs
from fedsplit.commands.app import app
from fedsplit.regression.client.statistics import CombinedProducts
from hospitals import people


def rows() -> pd.DataFrame:
    i = np.arange(240)
    x = (37 * i % 101) / 50.0 - 1.0
    u = (53 * i % 97) / 48.0 - 1.0
    year = 2000.0 + 11 * i % 20
    noise = (71 * i % 89) / 44.0 - 1.0
    return pd.DataFrame(
        {
            "x": x,
            "u": u,
            "near": x + 1e-7 * u,
            "sum": x + u,
            "year": year,
            "a": np.array(list("pqr"))[i % 3],
            "b": np.where(i % 3 == 2, "s", np.where(i % 4 < 2, "s", "t")),
            "y": 1.0 + 2.0 * x - u + 0.1 * (year - 2010) + noise,
            "count": np.floor(3.0 + 2.0 * x + 2.0 * noise + 2.0 * (i % 3)).clip(0),
            "amount": np.exp(0.3 * x + 0.2 * noise + 1.0),
            "kind": np.array(list("klm"))[(7 * i % 5 + (x > 0)) % 3],
            "event": ((x + 2 * noise) > 0).astype(float),
            "site": i % 4,
        }
    )


def fit(formula: str, family: str = "gaussian", **options: Any) -> fs.Model:
    return fs.fit(rows(), formula, family=family, group="site", **options)


def agrees(model: fs.Model, coef: list[float], errors: list[float], rtol: float = 1e-9) -> None:
    assert model.converged
    known = np.isfinite(model.params)
    np.testing.assert_array_equal(known, np.isfinite(coef))
    np.testing.assert_allclose(model.params.to_numpy()[known], np.array(coef)[known], rtol=rtol)
    # R's standard errors have the weights of the last step but one
    np.testing.assert_allclose(model.estimates.errors[known], errors, rtol=max(rtol, 1e-6))
    assert np.isnan(model.estimates.errors[~known]).all()
    assert model.estimates.rank == known.sum()


NA = np.nan


@pytest.mark.parametrize(
    ("formula", "family", "coef", "errors", "deviance"),
    [
        (
            "y ~ x + u + sum + near",
            "gaussian",
            [0.965151753471947, 2.090464507646464, -1.101215887044148, NA, NA],
            [0.0518458931058421, 0.0892080555560648, 0.0890502568628789],
            152.842977636839,
        ),
        (  # the level t of b is empty where a is r
            "count ~ x + a * b",
            "poisson",
            [
                *(0.818669240701103, 0.444256020122038, 0.666920894469598, 1.028436955035142),
                *(0.127753096987536, -0.125908480474182, NA),
            ],
            [
                *(0.1039244732810872, 0.0529235027118542, 0.1272428272042161),
                *(0.1125252459619566, 0.1414860351126499, 0.1761546054890545),
            ],
            124.206395737847,
        ),
        (
            "event ~ x + u + sum",
            "logistic",
            [0.0406873412684868, 1.1710782868743685, 0.0881494180805969, NA],
            [0.136416211315069, 0.245338051263256, 0.234145570382521],
            306.912761592235,
        ),
        (
            "amount ~ x + u + sum",
            "gamma",
            [1.01005994418260170, 0.30262522081444970, 0.00268532809951031, NA],
            [0.00758086407859251, 0.01304392890880400, 0.01302085571296996],
            3.27593079480471,
        ),
    ],
)
def test_the_later_of_dependent_columns_is_aliased_and_the_others_are_as_in_r(
    formula: str, family: str, coef: list[float], errors: list[float], deviance: float
) -> None:
    model = fit(formula, family)
    agrees(model, coef, errors, 1e-8)
    assert list(model.aliased) == [
        name for name, value in zip(model.estimates.names, coef, strict=True) if np.isnan(value)
    ]
    assert model.deviance == pytest.approx(deviance, rel=1e-10)


def test_a_collinearity_of_1e_minus_7_is_fitted_as_in_r() -> None:
    model = fit("y ~ x + near")
    coef = [9.65151751612482e-01, 1.10121609518047e07, -1.10121588613402e07]
    agrees(model, coef, [5.18458931076749e-02, 8.90502576227378e05, 8.90502568351343e05], 1e-7)


def test_a_year_with_its_square_and_its_cube_is_fitted_as_in_r() -> None:
    model = fit("y ~ year + I(year**2) + I(year**3)")
    coef = [2.43642006361003e06, -3.63797946542028e03, 1.81063434139839e00, -3.00374823760697e-04]
    errors = [4.92478097094376e06, 7.35230796948863e03, 3.65878902434850e00, 6.06915113072210e-04]
    agrees(model, coef, errors, 1e-5)


def test_a_target_far_from_zero_is_centred() -> None:
    frame = rows().assign(big=lambda each: each.y + 1e8)
    model = fs.fit(frame, "big ~ x + u", group="site")
    coef = [1.00000000965152e08, 2.09046450414051e00, -1.10121589048003e00]
    errors = [0.0518458928570513, 0.0892080551279856, 0.0890502564355569]
    agrees(model, coef, errors, 1e-8)  # R itself has lost half of its digits
    exact = fs.fit(frame, "y ~ x + u", group="site")
    np.testing.assert_allclose(model.params - exact.params, [1e8, 0, 0], atol=2e-8)
    predicted = model.predict(frame)
    np.testing.assert_allclose(predicted - 1e8, exact.predict(frame), atol=1e-7)


@pytest.mark.parametrize("family", ["gaussian", "huber"])
def test_the_origin_of_a_target_moves_the_intercept_alone(family: str) -> None:
    frame = rows()
    frame["moved"] = frame.y + 4096.0  # sums without rounding, or next to none
    here = fs.fit(frame, "y ~ x + a", family=family, group="site")
    there = fs.fit(frame, "moved ~ x + a", family=family, group="site")
    np.testing.assert_allclose(there.params - here.params, [4096, 0, 0, 0], atol=1e-10)
    np.testing.assert_allclose(there.estimates.errors, here.estimates.errors, rtol=1e-9)
    assert there.deviance == pytest.approx(here.deviance)


def test_every_class_has_the_aliased_columns() -> None:
    model = fit("kind ~ x + sum + u", "multinomial")
    small = fit("kind ~ x + sum", "multinomial")
    assert list(model.aliased) == ["l:u", "m:u"]
    known = np.isfinite(model.params)
    np.testing.assert_allclose(model.params.to_numpy()[known], small.params, rtol=1e-7)
    assert model.aic == pytest.approx(small.aic)


def test_an_aliased_column_counts_for_nothing_in_predictions_and_has_no_covariance() -> None:
    model = fit("y ~ x + u + sum")
    small = fit("y ~ x + u")
    np.testing.assert_allclose(model.predict(rows()), small.predict(rows()), rtol=1e-12)
    covariance = model.cov_params(robust=True)
    assert covariance["sum"].isna().all()
    np.testing.assert_allclose(
        covariance.drop(columns="sum").drop(index="sum"), small.cov_params(robust=True), rtol=1e-9
    )
    assert model.aic == pytest.approx(small.aic)
    assert model.dispersion == pytest.approx(small.dispersion)
    assert model.bias_of("fedgd").worst == pytest.approx(small.bias_of("fedgd").worst, rel=1e-3)


def test_with_a_constraint_alone_columns_are_aliased_and_with_a_penalty_none_is() -> None:
    bounded = fit("y ~ x + u + sum", nonnegative=["u"])
    assert list(bounded.aliased) == ["sum"]
    assert bounded.params["u"] == 0.0
    for penalty in ("ridge", "l1"):
        model = fit("y ~ x + u + sum", "gaussian", **{penalty: 1.0})
        assert list(model.aliased) == []
        assert np.isfinite(model.params).all()


def test_aliased_columns_are_named_in_the_table_and_null_in_the_json(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "rows.csv", index=False)
    command = ["fit", str(tmp_path / "rows.csv"), "--group", "site", "--formula", "y ~ x + u + sum"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0
    assert "aliased with those before: sum" in told.output
    assert "nan" not in told.output
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert found["aliased"] == ["sum"]
    assert found["coef"]["sum"] is None
    assert found["se"]["sum"] is None
    refused = CliRunner().invoke(app, [*command, "--set", "aliased=refuse"])
    assert "sum is a combination of x, u over all clients" in str(refused.exception)


def test_a_saved_model_knows_its_aliased_columns(tmp_path: Path) -> None:
    model = fit("y ~ x + u + sum")
    model.write(tmp_path)
    loaded = fs.load(tmp_path)
    assert list(loaded.aliased) == ["sum"]
    assert loaded.summary() == model.summary()


def test_moments_are_asked_for_again_only_where_they_are_poor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    original = CombinedProducts.sums

    def sums(statistic: CombinedProducts, rows: Any) -> Any:
        if rows.design.name == "0":
            asked.append(1)
        return original(statistic, rows)

    monkeypatch.setattr(CombinedProducts, "sums", sums)
    fit("y ~ x + u + year + I(year**2) + a * b")  # the empty cell is a column of zeros
    assert not asked
    fit("y ~ x + near")
    assert len(asked) == 1
    fit("y ~ x + near + u")
    assert len(asked) == 3


@pytest.mark.parametrize("away", [1e-9, 1e-10])
def test_what_differs_by_more_than_r_tolerates_is_told_from_what_does_not(away: float) -> None:
    frame = rows().assign(
        near=lambda each: each.x + away * each.u, same=lambda each: each.x + 1e-12 * each.u
    )
    assert list(fs.fit(frame, "y ~ x + near", group="site").aliased) == []
    assert list(fs.fit(frame, "y ~ x + same", group="site").aliased) == ["same"]


@pytest.mark.parametrize("target", ["score", "visits", "ill"])
def test_a_level_that_a_client_lacks_is_determined_by_the_others(target: str) -> None:
    frames = people()
    frames["hospital0"] = frames["hospital0"].query("ward != 'north'")
    family = {"score": "gaussian", "visits": "poisson", "ill": "logistic"}[target]
    # without a constant term its column is zero there, also in the coordinates of the rounds
    there = faulty.fit(frames, f"{target} ~ 0 + ward + age", family=family)
    here = fs.fit(frames, f"{target} ~ 0 + ward + age", family=family)
    np.testing.assert_allclose(there.params, here.params, rtol=1e-12)
