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
    "multinomial": (rows, f"health ~ {SHORT}", "multinomial", {}),
    "multinomial, weights": (rows, f"health ~ {SHORT}", "multinomial", {"weights": "weight"}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_that_of_r(name: str) -> None:
    frame, formula, family, options = CASES[name]
    model = fs.fit(frame(), formula, family=family, group="site", **options)
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


def test_the_likelihood_of_a_gamma_model_grows_with_its_columns() -> None:
    fewer, more = (fs.fit(cars(), f"mpg ~ {terms}", family="gamma", group="site")
                   for terms in ("wt", "wt + hp"))  # fmt: skip
    assert fewer.log_likelihood is not None
    assert more.log_likelihood is not None
    assert more.log_likelihood > fewer.log_likelihood


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


def test_robust_intervals_have_the_distribution_of_the_others() -> None:
    model = fs.fit(cars(), "mpg ~ wt", group="site")
    interval = model.conf_int(robust=True)
    robust = model.robust_se
    assert robust is not None
    width = (interval["upper"] - interval["lower"]) / robust
    np.testing.assert_allclose(width, 2 * 2.042272456301238)  # qt(0.975, 30)
