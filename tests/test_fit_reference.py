"""``fs.fit`` on real data against statsmodels on the pool: all numbers, each to 1e-8 of itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from formulaic import Formula

import fedsplit as fs
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.families.family import Family
from real import FLIGHTS, diabetes, flights, randhie, split
from statsmodels_family import aic, is_glm, log_likelihood, statsmodels_family

Frames = dict[str, pd.DataFrame]

RAND = "np.log(coins + 1) + idp + lpi + fmde + physlm + disea + C(health) + xage + female + educdec"
DIABETES = "age + sex + bmi + bp + s1 + s2 + s3 + s4 + s5 + s6"


def users() -> Frames:
    """Person-years with a visit: the gamma family wants positive numbers."""
    return {
        name: site[site["mdvis"] > 0].reset_index(drop=True) for name, site in randhie().items()
    }


def nobody_poor_at_the_last_site() -> Frames:
    sites = randhie()
    return {**sites, "site6": sites["site6"].query("health != 'poor'")}


def one_class_at_the_last_client() -> Frames:
    """Its 32 patients are all high."""
    table = pd.concat(diabetes().values(), ignore_index=True)
    last = table.index[table["high"] == 1][:32]
    return split(
        pd.concat([table.drop(last), table.loc[last]], ignore_index=True), (220, 150, 40, 32)
    )


def fewer_rows_than_columns_at_two_clients() -> Frames:
    return diabetes((300, 135, 5, 2))


def columns_in_another_order() -> Frames:
    return {
        name: table[table.columns[:: (-1) ** j]]
        for j, (name, table) in enumerate(diabetes().items())
    }


@dataclass(frozen=True)
class Case:
    """A model of real data: what ``fs.fit`` gets, and by the same words statsmodels."""

    frames: Callable[[], Frames]
    formula: str
    family: str
    columns: dict[str, Any] = field(default_factory=dict)  # weights, offset and exposure by name


def on_rand(family: Family) -> Case:
    """A target of the RAND study that suits a family."""
    if family.classifies:
        return Case(randhie, f"visited ~ {RAND}", family.name)
    if family.invalid(np.zeros(1)).any():
        return Case(users, f"mdvis ~ {RAND}", family.name)
    return Case(randhie, f"mdvis ~ {RAND}", family.name)


CASES = {
    **{f"RAND, {name}": on_rand(family) for name, family in FAMILIES.items() if is_glm(family)},
    "RAND, Poisson, weights": Case(randhie, f"mdvis ~ {RAND}", "poisson", {"weights": "weight"}),
    "RAND, Gaussian, weights": Case(randhie, f"mdvis ~ {RAND}", "gaussian", {"weights": "weight"}),
    "RAND, gamma, weights": Case(users, f"mdvis ~ {RAND}", "gamma", {"weights": "weight"}),
    "RAND, Poisson, offset": Case(randhie, f"mdvis ~ {RAND}", "poisson", {"offset": "shift"}),
    "RAND, Poisson, exposure": Case(randhie, f"mdvis ~ {RAND}", "poisson", {"exposure": "time"}),
    "RAND, logistic, offset": Case(randhie, f"visited ~ {RAND}", "logistic", {"offset": "shift"}),
    "a covariate that is the weight": Case(
        diabetes, "target ~ age + bmi + bp", "gaussian", {"weights": "bp"}
    ),
    "a covariate that is the exposure": Case(
        randhie, f"mdvis ~ {RAND} + time", "poisson", {"exposure": "time"}
    ),
    "diabetes, Gaussian": Case(diabetes, f"target ~ {DIABETES}", "gaussian"),
    "diabetes, logistic": Case(diabetes, f"high ~ {DIABETES}", "logistic"),
    "a level missing at the last client": Case(
        nobody_poor_at_the_last_site, f"mdvis ~ {RAND}", "poisson"
    ),
    "a client with one class": Case(one_class_at_the_last_client, f"high ~ {DIABETES}", "logistic"),
    "clients with few rows, Gaussian": Case(
        fewer_rows_than_columns_at_two_clients, f"target ~ {DIABETES}", "gaussian"
    ),
    "clients with few rows, logistic": Case(
        fewer_rows_than_columns_at_two_clients, f"high ~ {DIABETES}", "logistic"
    ),
    "columns in another order": Case(columns_in_another_order, f"high ~ {DIABETES}", "logistic"),
    "no intercept": Case(diabetes, f"high ~ {DIABETES} - 1", "logistic"),
    "an interaction": Case(diabetes, "target ~ age * C(sex) + bmi", "gaussian"),
}


@cache
def ours(name: str) -> "fs.Model":
    case = CASES[name]
    return fs.fit(case.frames(), case.formula, family=case.family, **case.columns)


@cache
def ours_by_secure_sums(name: str) -> "fs.Model":
    case = CASES[name]
    return fs.fit(case.frames(), case.formula, family=case.family, secure=True, **case.columns)


@cache
def theirs(name: str) -> "sm.GLMResults":
    """statsmodels' fit of the rows together, iterated until the coefficients stand still."""
    case = CASES[name]
    table = pd.concat(case.frames().values(), ignore_index=True)
    matrices = Formula(case.formula).get_model_matrix(table, na_action="drop")
    X = pd.DataFrame(matrices.rhs)
    kept = table.loc[X.index]
    words = {"weights": "var_weights", "offset": "offset", "exposure": "exposure"}
    columns = {words[word]: kept[column].to_numpy() for word, column in case.columns.items()}
    family = statsmodels_family(FAMILIES[case.family])
    model = sm.GLM(np.asarray(matrices.lhs).ravel(), X, family=family, **columns)
    use_t = FAMILIES[case.family].statistic == "t"
    return model.fit(tol=1e-12, tol_criterion="params", maxiter=300, use_t=use_t)


def assert_same(one: object, other: object, rtol: float = 1e-8, atol: object = 0.0) -> None:
    """The same names in any order, and the same numbers, each to ``rtol`` of itself."""
    if isinstance(other, pd.Series):
        assert isinstance(one, pd.Series)
        assert set(one.index) == set(other.index)
        one = one[other.index]
    apart = np.abs(np.asarray(one) - np.asarray(other))
    assert np.all(apart <= rtol * np.abs(np.asarray(other)) + np.asarray(atol)), apart


each_case = pytest.mark.parametrize("name", CASES)


@each_case
def test_coefficients_standard_errors_and_log_likelihood_are_those_of_the_pool(name: str) -> None:
    model, pool = ours(name), theirs(name)
    assert model.converged
    # the tolerance is in standard errors: one that is nearly 0 has fewer digits
    assert_same(model.params, pool.params, atol=1e-9 * pool.bse)
    assert_same(model.bse, pool.bse)
    assert_same(model.llf, log_likelihood(model.family, pool))


@each_case
def test_the_certificate_holds_against_the_pool(name: str) -> None:
    model, pool = ours(name), theirs(name)
    assert model.certificate.standard_errors is not None, model.certificate.reason
    assert model.certificate.standard_errors < 1e-3
    error = np.max(np.abs(model.params[pool.params.index] - pool.params) / pool.bse)
    assert error <= model.certificate.standard_errors + 1e-10  # the reference's own rounding


@each_case
def test_by_secure_sums_the_table_is_that_of_the_pool_too(name: str) -> None:
    assert_pooled_by_secure_sums(name)


def assert_pooled_by_secure_sums(name: str) -> None:
    """As proved, with few more questions than in the open."""
    model = ours_by_secure_sums(name)
    assert_proved_and_pooled(model, theirs(name))
    assert model.exchanges <= 1.5 * ours(name).exchanges


def assert_proved_and_pooled(model: "fs.Model", pool: "sm.GLMResults") -> None:
    """Within 1e-9 standard errors, as the certificate says."""
    assert model.certificate.standard_errors is not None, model.certificate.reason
    assert model.certificate.standard_errors <= 1e-9
    error = np.max(np.abs(model.params[pool.params.index] - pool.params) / pool.bse)
    assert error <= 1e-9 + 1e-10  # the reference's own rounding
    assert_same(model.bse, pool.bse)
    assert_same(model.llf, log_likelihood(model.family, pool))


STRICT = {
    "RAND": Case(
        randhie,
        "mdvis ~ logc + idp + fmde + linc + xage + female + educdec + physlm + disea",
        "poisson",
    ),
    "diabetes": Case(lambda: diabetes((160, 150, 132)), f"target ~ {DIABETES}", "gaussian"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRICT)
def test_by_secure_sums_of_strict_clients_the_table_is_that_of_the_pool_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CASES, f"strict {name}", STRICT[name])
    case = STRICT[name]
    model = fs.fit(case.frames(), case.formula, family=case.family, strict=True, secure=True)
    assert_proved_and_pooled(model, theirs(f"strict {name}"))


@each_case
def test_tests_and_intervals_are_those_of_the_pool(name: str) -> None:
    model, pool = ours(name), theirs(name)
    assert_same(model.tvalues, pool.tvalues, rtol=1e-7)
    assert_same(model.pvalues, pool.pvalues, rtol=1e-5)  # a tail far out makes an error in z larger
    for level in (0.95, 0.5):
        interval = model.conf_int(1 - level).loc[pool.params.index]
        expected = pool.conf_int(alpha=1 - level)
        width = 1e-8 * np.max(np.abs(expected), axis=1).to_numpy()  # an end may lie near 0
        assert np.all(np.abs(interval["lower"].to_numpy() - expected[0].to_numpy()) <= width)
        assert np.all(np.abs(interval["upper"].to_numpy() - expected[1].to_numpy()) <= width)


@each_case
def test_deviance_aic_and_dispersion_are_those_of_the_pool(name: str) -> None:
    model, pool = ours(name), theirs(name)
    assert_same(model.deviance, pool.deviance)
    assert_same(model.aic, aic(model.family, pool))
    assert_same(model.dispersion, pool.scale)
    assert model.nobs == pool.nobs == model.clients["n"].sum()
    assert list(model.clients["n"].index) == list(CASES[name].frames())


@each_case
def test_covariances_are_those_of_the_pool(name: str) -> None:
    expected = theirs(name).cov_params()
    covariance = ours(name).cov_params().loc[expected.index, expected.columns]
    # on the scale of standard errors: two names may hardly vary together
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(covariance / scale, expected / scale, rtol=0, atol=1e-8)


@each_case
def test_predictions_are_those_of_the_pool(name: str) -> None:
    model, pool = ours(name), theirs(name)
    case = CASES[name]
    rows = pd.concat(case.frames().values(), ignore_index=True).dropna()
    assert_same(model.predict(rows), pool.fittedvalues.to_numpy())


def test_intercept_false_is_minus_one_in_the_formula() -> None:
    model = fs.fit(diabetes(), f"high ~ {DIABETES}", family="logistic", intercept=False)
    assert_same(model.params, theirs("no intercept").params)


@pytest.mark.slow
@pytest.mark.skipif(
    not FLIGHTS.exists(), reason="no examples/data/flights: make data downloads them"
)
def test_a_third_of_a_million_flights_of_sixteen_carriers_give_the_table_of_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    formula = "late ~ hour + distance + C(origin) + C(month)"
    monkeypatch.setitem(CASES, "flights", Case(flights, formula, "logistic"))
    model, pool = ours("flights"), theirs("flights")
    assert (model.nobs, len(model.clients["n"])) == (327_346, 16)
    assert model.clients["n"]["OO"] == 29
    assert_same(model.params, pool.params)
    assert_same(model.bse, pool.bse)
    assert_same(model.llf, log_likelihood(model.family, pool))
    assert_pooled_by_secure_sums("flights")
