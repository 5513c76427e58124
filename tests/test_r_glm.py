"""The figures of ``summary(lm)``, ``summary(glm)`` and ``nnet::multinom`` on the pooled rows.

``tests/data/r_glm.R`` made those that are stored.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from real import randhie

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "r_glm.json").read_text(encoding="utf-8"))
FULL = "logc + physlm + female"
SHORT = "logc + physlm"


def rows() -> pd.DataFrame:
    """The first year of the RAND study."""
    sites = [frame.assign(site=j) for j, frame in enumerate(randhie().values(), start=1)]
    table = pd.concat(sites, ignore_index=True)
    table = table[table["year"] == 1]
    return table.assign(
        shift=0.1 * table["logc"] - 0.05 * table["physlm"],
        weight=0.5 + table["plan"] / 19,
        times=1 + table["plan"] % 3,
    )


def users() -> pd.DataFrame:
    table = rows()
    return table[table["mdvis"] > 0]


def grouped() -> pd.DataFrame:
    """How many of each kind of people visited a doctor, in two files of health."""
    table = rows().assign(trials=1)
    kinds = table.groupby(["site", "health", "female"])[["visited", "trials"]].sum().reset_index()
    return kinds.assign(
        failures=kinds["trials"] - kinds["visited"],
        share=kinds["visited"] / kinds["trials"],
        shift=0.1 * kinds["site"],
    )


def cars() -> pd.DataFrame:
    return pd.read_csv(DATA / "mtcars.csv").rename(columns={"cyl": "site"})


CASES: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "gaussian": (rows, f"mdvis ~ {FULL}", "gaussian", {}),
    "gaussian, weights": (rows, f"mdvis ~ {SHORT}", "gaussian", {"weights": "weight"}),
    "gaussian, weights and offset": (
        rows,
        f"mdvis ~ {SHORT}",
        "gaussian",
        {"weights": "weight", "offset": "shift"},
    ),
    "gaussian, no intercept": (rows, f"mdvis ~ {SHORT} - 1", "gaussian", {}),
    "gaussian, no intercept, offset": (
        rows,
        f"mdvis ~ {SHORT} - 1",
        "gaussian",
        {"offset": "shift"},
    ),
    "gaussian, cars": (cars, "mpg ~ wt + hp", "gaussian", {}),
    "gaussian, cars, weights": (cars, "mpg ~ wt + hp", "gaussian", {"weights": "qsec"}),
    "gamma": (users, f"mdvis ~ {FULL}", "gamma", {}),
    "gamma, weights": (users, f"mdvis ~ {SHORT}", "gamma", {"weights": "weight"}),
    "gamma, weights and offset": (
        users,
        f"mdvis ~ {SHORT}",
        "gamma",
        {"weights": "weight", "offset": "shift"},
    ),
    "gamma, no intercept, offset": (users, "mdvis ~ logc - 1", "gamma", {"offset": "shift"}),
    "gamma, cars": (cars, "mpg ~ wt + hp", "gamma", {}),
    "gamma, cars, fewer": (cars, "mpg ~ wt", "gamma", {}),
    "poisson": (rows, f"mdvis ~ {FULL}", "poisson", {}),
    "poisson, weights": (rows, f"mdvis ~ {SHORT}", "poisson", {"weights": "weight"}),
    "poisson, weights and offset": (
        rows,
        f"mdvis ~ {SHORT}",
        "poisson",
        {"weights": "weight", "offset": "shift"},
    ),
    "poisson, no intercept, offset": (
        rows,
        f"mdvis ~ {SHORT} - 1",
        "poisson",
        {"offset": "shift"},
    ),
    "binomial": (rows, f"visited ~ {FULL}", "logistic", {}),
    "binomial, weights": (rows, f"visited ~ {SHORT}", "logistic", {"weights": "times"}),
    "binomial, offset": (rows, f"visited ~ {SHORT}", "logistic", {"offset": "shift"}),
    "binomial, no intercept, offset": (
        rows,
        f"visited ~ {SHORT} - 1",
        "logistic",
        {"offset": "shift"},
    ),
    "binomial, cbind": (grouped, "cbind(visited, failures) ~ female + site", "logistic", {}),
    "binomial, cbind, offset": (
        grouped,
        "cbind(visited, failures) ~ female",
        "logistic",
        {"offset": "shift"},
    ),
    "binomial, cbind, no intercept": (
        grouped,
        "cbind(visited, failures) ~ female + site - 1",
        "logistic",
        {},
    ),
    "binomial, share of trials": (
        grouped,
        "share ~ female + site",
        "logistic",
        {"weights": "trials"},
    ),
    "multinomial": (rows, f"health ~ {SHORT}", "multinomial", {}),
    "multinomial, weights": (rows, f"health ~ {SHORT}", "multinomial", {"weights": "weight"}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_that_of_r(name: str) -> None:
    frame, formula, family, options = CASES[name]
    by = "health" if frame is grouped else "site"
    model = fs.fit(frame(), formula, family=family, group=by, **options)
    assert model.converged
    found = model.to_dict()
    rtol = 1e-6 if family == "multinomial" else 1e-8  # nnet stops early
    for key, expected in EXPECTED[name].items():
        if isinstance(expected, dict):
            assert set(found[key]) == set(expected)
            one, other = ([values[each] for each in expected] for values in (found[key], expected))
        else:
            one, other = found[key], expected
        # a tail far out makes an error in t larger
        tolerance = 1e-5 if key in ("p", "f_test") else rtol
        atol = 0.0
        if key in ("lower", "upper"):  # an end may lie near 0
            atol = 1e-8 * np.max(np.abs(other))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=atol, err_msg=key)


def test_grouped_rows_have_the_coefficients_of_single_trials() -> None:
    single = fs.fit(rows(), "visited ~ female + site", family="logistic", group="health")
    for target, weights in (
        ("cbind(visited, failures)", None),
        ("share", "trials"),
        ("visited / trials", "trials"),
    ):
        formula = f"{target} ~ female + site"
        model = fs.fit(grouped(), formula, family="logistic", group="health", weights=weights)
        assert model.nobs == len(grouped())
        np.testing.assert_allclose(model.params, single.params, rtol=1e-9)
        assert model.bse is not None
        assert single.bse is not None
        np.testing.assert_allclose(model.bse, single.bse, rtol=1e-9)
        assert model.clients["n"].sum() == len(grouped())
        assert model.grouped
        np.testing.assert_allclose(model.deviance, EXPECTED["binomial, cbind"]["deviance"])


def test_groups_without_trials_are_left_out() -> None:
    frame = grouped()
    empty = frame.iloc[:3].assign(visited=0, failures=0)
    formula = "cbind(visited, failures) ~ female + site"
    model, other = (
        fs.fit(each, formula, family="logistic", group="health")
        for each in (frame, pd.concat([empty, frame]))
    )
    assert other.nobs == model.nobs
    np.testing.assert_allclose(other.params, model.params, rtol=1e-10)


@pytest.mark.parametrize(
    ("change", "formula", "options", "why"),
    [
        ({}, "cbind(visited, failures) ~ female", {"family": "gaussian"}, "a target of logistic"),
        ({}, "share ~ female", {}, "numbers that are not whole: logistic needs 0 and 1, or shares"),
        ({"failures": -1}, "cbind(visited, failures) ~ female", {}, "a whole number from 0 on"),
        ({"failures": 1.5}, "cbind(visited, failures) ~ female", {}, "a whole number from 0 on"),
        ({"share": 1.5}, "share ~ female", {"weights": "trials"}, "a share is between 0 and 1"),
        ({"share": 0.123456}, "share ~ female", {"weights": "trials"}, "times the trials in"),
    ],
)
def test_groups_that_cannot_be_are_refused(
    change: dict[str, float], formula: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(fs.InputError, match=why) as caught:
        fs.fit(grouped().assign(**change), formula, **{"family": "logistic", **options})
    assert "\n" not in str(caught.value)


def test_a_path_holds_out_clients_of_grouped_rows() -> None:
    single, several = (
        fs.path(frame, f"{target} ~ female + site", family="logistic", group="health",
                lambdas=[20.0, 5.0], folds="clients")
        for frame, target in ((rows(), "visited"), (grouped(), "cbind(visited, failures)"))
    )  # fmt: skip
    assert several.cv is not None
    assert single.cv is not None
    # the deviance of grouped rows is lower by a constant: that of the saturated model
    lower = single.cv["mean"] - several.cv["mean"]
    assert lower.iloc[0] > 0.1
    assert lower.iloc[1] == pytest.approx(lower.iloc[0], rel=1e-6)


def test_the_likelihood_of_a_gamma_model_grows_with_its_columns() -> None:
    fewer, more = (fs.fit(cars(), f"mpg ~ {terms}", family="gamma", group="site")
                   for terms in ("wt", "wt + hp"))  # fmt: skip
    assert fewer.llf is not None
    assert more.llf is not None
    assert more.llf > fewer.llf


def test_the_table_says_t_where_the_dispersion_is_estimated_and_z_elsewhere() -> None:
    for family, heading in (("gaussian", "P>|t|"), ("gamma", "P>|t|"), ("poisson", "P>|z|")):
        assert heading in fs.fit(cars(), "mpg ~ wt", family=family, group="site").summary()


def test_the_summary_prints_how_well_the_model_fits() -> None:
    text = fs.fit(cars(), "mpg ~ wt + hp", group="site").summary()
    expected = EXPECTED["gaussian, cars"]
    assert "residual degrees of freedom 29\n" in text
    assert f"null deviance {expected['null_deviance']:,.6g}" in text
    assert f"R² {expected['r_squared']:.6g}" in text
    assert "F 69.21 on 2 and 29 degrees of freedom, p < 0.001" in text
    assert f"dispersion {expected['dispersion']:.6g}" in text


def test_a_penalty_or_huber_leaves_no_share_that_is_explained() -> None:
    for options in ({"ridge": 1.0}, {"l1": 0.1}, {"family": "huber"}):
        model = fs.fit(cars(), "mpg ~ wt", group="site", **options)
        assert model.r_squared is None
        assert model.f_test is None
        assert "R²" not in model.summary()


def test_as_many_coefficients_as_rows_have_no_standard_errors() -> None:
    model = fs.fit(cars().head(3), "mpg ~ wt + hp")
    assert model.df_resid == 0
    assert model.bse is None
    assert model.f_test is None
    assert "as many coefficients as rows" in model.summary()


def test_a_gamma_model_of_equal_amounts_is_refused_and_one_that_fits_them_all_is_not() -> None:
    # the deviance is 0, and so was the dispersion by which the log-likelihood is divided
    frame = pd.DataFrame({"y": 5.0, "x": np.arange(40) % 7, "site": np.arange(40) % 2})
    with pytest.raises(fs.InputError, match="the target is 5 in every row of every client"):
        fs.fit(frame, "y ~ x", family="gamma", group="site")
    doubled = frame.assign(y=2.0 ** (1 + frame.x % 2), half=frame.x % 2)
    model = fs.fit(doubled, "y ~ half", family="gamma", group="site")
    np.testing.assert_allclose(model.params, np.log(2), rtol=1e-12)
    assert model.llf is not None
    assert np.isfinite(model.llf)
