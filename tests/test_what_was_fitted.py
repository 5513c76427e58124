"""Table, JSON and page say what was fitted, and a model has what later analyses need."""

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.outliers_influence import variance_inflation_factor

import fedsplit as fs
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.client.design import Moments
from fedsplit.regression.result.fitted import Computation
from fedsplit.regression.result.page import noisy_html, pooled_html
from fedsplit.regression.server.report import FitCertificate, fingerprint_of

RNG = np.random.default_rng(11)
N = 240
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "u": RNG.normal(size=N),
        "ward": RNG.choice(["south", "north", "west"], N),
        "w": RNG.uniform(0.5, 2.0, N),
        "o": RNG.normal(size=N),
        "years": RNG.uniform(1.0, 3.0, N),
        "visits": RNG.poisson(2.0, N),
        "ill": RNG.integers(0, 2, N),
        "site": np.arange(N) % 4,
    }
)
FRAME["score"] = FRAME.x + 0.5 * FRAME.u + RNG.normal(size=N)
HOLES = FRAME.assign(x=FRAME.x.mask(FRAME.index < 7), u=FRAME.u.mask(FRAME.index == 3))


def said(model: fs.Model) -> tuple[str, dict[str, Any], str]:
    """The table, the JSON and what the page shows, of which lines begin in capitals."""
    text = noisy_html(model) if isinstance(model, fs.NoisyModel) else pooled_html(model)
    shown = html.unescape(re.sub(r"<[^>]+>", " ", text.partition("</style>")[2]))
    return str(model.summary()), model.to_dict(), re.split(r"<h2>|\bSettings\b", shown)[0].lower()


@pytest.mark.parametrize(
    ("formula", "options", "line", "key", "value"),
    [
        ("score ~ x", {"weights": "w"}, "weights w", "weights", "w"),
        ("score ~ x", {"offset": "o"}, "offset o", "offset", "o"),
        ("score ~ x + offset(o)", {}, "offset(o)", "formula", "score ~ x + offset(o)"),
        (
            "visits ~ x",
            {"family": "poisson", "exposure": "years"},
            "exposure years",
            "exposure",
            "years",
        ),
        (
            "score ~ x",
            {"family": "huber", "delta": 0.7},
            "(0.7 robust deviations of",
            "family",
            "huber",
        ),
        (
            "score ~ x",
            {
                "family": "huber",
                "delta": 0.7,
                "dp": fs.Privacy(50, 1e-5, 4.0, 5, seed=1),
                "types": {"score": "number", "x": "number"},
            },
            "delta 0.7",
            "delta",
            0.7,
        ),
        (
            "score ~ C(ward, Treatment('west')) + C(site)",
            {},
            "reference levels: C(ward, Treatment('west')) west, C(site) 0",
            "reference",
            {"C(ward, Treatment('west'))": "west", "C(site)": "0"},
        ),
        (
            "score ~ ward",
            {"reference": {"ward": "south"}},
            "reference levels: ward south",
            "reference",
            {"ward": "south"},
        ),
    ],
)
def test_columns_with_a_role_delta_and_reference_levels_are_said_everywhere(
    formula: str, options: dict[str, Any], line: str, key: str, value: object
) -> None:
    model = fs.fit({f"site {j}": part for j, part in FRAME.groupby("site")}, formula, **options)
    table, record, page = said(model)
    assert line in table
    assert record[key] == value
    assert line.lower() in page


@pytest.mark.parametrize(
    ("options", "words", "settings"),
    [
        ({"ridge": 2.5}, ["ridge 2.5"], {"ridge": 2.5, "l1": 0.0}),
        ({"l1": 3.0}, ["l1 3"], {"l1": 3.0, "standardize": False}),
        (
            {"elastic_net": (1.5, 0.5), "standardize": True},
            ["ridge 0.5", "l1 1.5", "on standardized columns"],
            {"l1": 1.5, "ridge": 0.5, "standardize": True},
        ),
        ({"nonnegative": ["x", "u"]}, ["x, u not negative"], {"nonnegative": ("x", "u")}),
    ],
)
def test_a_penalty_is_said_everywhere_and_no_penalty_nowhere(
    options: dict[str, Any], words: list[str], settings: dict[str, Any]
) -> None:
    table, record, page = said(fs.fit(FRAME, "score ~ x + u", group="site", **options))
    [line] = re.findall(r"^penalty: .*$", table, re.MULTILINE)
    assert line == f"penalty: {', '.join(words)}"
    assert line.lower() in page
    assert record["penalty"].items() >= settings.items()
    table, record, page = said(fs.fit(FRAME, "score ~ x + u", group="site"))
    assert record["penalty"] is None
    assert "penalty" not in table + page


def test_firths_penalty_is_in_the_title_and_in_the_json() -> None:
    model = fs.fit(FRAME, "ill ~ x", family="logistic", group="site", firth=True)
    table, record, page = said(model)
    assert "Firth's logistic regression" in table
    assert "firth's logistic regression" in page
    assert record["penalty"]["firth"] is True


@pytest.mark.parametrize("secure", [False, True])
def test_missing_values_and_the_rows_left_out_are_counted_by_column(secure: bool) -> None:
    model = fs.fit(HOLES, "score ~ x + u + ward", group="site", secure=secure)
    table, record, page = said(model)
    line = "missing values: x 7, u 1; 7 rows left out"
    assert line in table
    assert line in page
    assert record["missing_values"] == {"x": 7, "u": 1}
    assert record["rows_left_out"] == 7
    assert model.nobs == N - 7
    table, record, page = said(fs.fit(FRAME, "score ~ x", group="site"))
    assert (record["missing_values"], record["rows_left_out"]) == ({}, 0)
    assert "left out" not in table + page


def test_the_class_that_others_are_compared_with_is_said_everywhere() -> None:
    west = {"ward": "west"}
    model = fs.fit(FRAME, "ward ~ x", family="multinomial", group="site", reference=west)
    table, record, page = said(model)
    assert "reference: west" in table
    assert "reference: west" in page
    assert record["reference"] == west
    table, record, page = said(fs.fit(FRAME, "ill ~ x", family="logistic", group="site"))
    assert "modelled: ill = 1" in table
    assert "modelled: ill = 1" in page
    assert record["modelled"] == "ill = 1"


def test_a_saved_model_has_the_columns_of_each_term() -> None:
    model = fs.fit(FRAME, "score ~ x*ward + poly(u, 2)", group="site")
    assert model.terms == {
        "Intercept": ["Intercept"],
        "x": ["x"],
        "ward": ["ward[T.south]", "ward[T.west]"],
        "poly(u, 2)": ["poly(u, 2)1", "poly(u, 2)2"],
        "x:ward": ["x:ward[T.south]", "x:ward[T.west]"],
    }
    columns = [column for each in model.terms.values() for column in each]
    assert columns == list(model.params.index)


@pytest.mark.parametrize("secure", [False, True])
def test_variance_inflation_follows_from_the_moments_of_a_saved_model(
    tmp_path: Path, secure: bool
) -> None:
    data = FRAME.assign(u=FRAME.u + 2.0 * FRAME.x)
    fs.fit(data, "score ~ x + u + ward", group="site", secure=secure).save(tmp_path)
    moments = fs.load(tmp_path).fit.moments
    assert moments is not None
    at = [moments.names.index(name) for name in ("x", "u", "ward[T.south]", "ward[T.west]")]
    scatter = moments.scatter[np.ix_(at, at)]
    deviation = np.sqrt(np.diag(scatter))
    inflation = np.diag(np.linalg.inv(scatter / np.outer(deviation, deviation)))
    dummies = pd.get_dummies(data.ward, dtype=float)[["south", "west"]]
    A = np.column_stack([np.ones(N), data.x, data.u, dummies])
    expected = [variance_inflation_factor(A, i) for i in range(1, 5)]
    np.testing.assert_allclose(inflation, expected, rtol=1e-10)
    np.testing.assert_allclose(moments.mean[at], A[:, 1:].mean(axis=0), atol=1e-14)
    assert moments.weight == N
    assert moments.target == pytest.approx(data.score.mean(), abs=1e-14)


def test_models_of_the_same_rows_have_one_fingerprint_and_others_another() -> None:
    def fingerprint(frame: pd.DataFrame, formula: str, **options: Any) -> str:
        return fs.fit(frame, formula, group="site", **options).fit.fingerprint

    one = fingerprint(FRAME, "score ~ x")
    assert one == fingerprint(FRAME, "score ~ u + ward")
    assert one != fingerprint(HOLES, "score ~ x")  # without seven rows
    assert fingerprint(HOLES, "score ~ 1", columns=["x"]) == fingerprint(HOLES, "score ~ x")
    assert one != fingerprint(FRAME, "score ~ x", weights="w")
    assert one != fingerprint(FRAME.assign(score=FRAME.score + 1.0), "score ~ x")


def test_the_columns_of_several_interactions_are_those_of_their_own_terms() -> None:
    frame = FRAME.assign(half=np.where(np.arange(N) % 3 == 0, "a", np.where(FRAME.x > 0, "b", "c")))
    model = fs.fit(frame, "score ~ ward:half + u:half - 1", group="site")
    assert {term: len(columns) for term, columns in model.terms.items()} == {
        "ward:half": 9,
        "half:u": 3,
    }
    assert model.terms["half:u"] == list(model.params.index[9:])


@pytest.mark.parametrize(
    ("b", "w", "alike"),
    [
        ([-1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], True),
        ([-1.0, 1.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0], False),  # the weight alone differs
        ([-1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 2.0], False),  # or the deviation too
        ([-1.0, 1.0, 0.0], [1.0, 1.0, 2.0], False),  # the number of rows alone
        ([-2.0, 2.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], False),  # the scatter alone
        ([0.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], False),  # the mean alone
        ([-1.0, 1.0 + 1e-12, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], True),  # rounding
    ],
)
def test_a_fingerprint_depends_on_rows_weights_and_targets(
    b: list[float], w: list[float], alike: bool
) -> None:
    def of(targets: list[float], weights: list[float], name: str = "a") -> str:
        y, v = np.array(targets), np.array(weights)
        mean = float(v @ y / v.sum())
        scatter = float(v @ np.square(y - mean))
        one = np.zeros(1), np.zeros((1, 1))
        return fingerprint_of({name: Moments("x", len(y), v.sum(), *one, mean, scatter, 0.0)})

    first = of([-1.0, 1.0, 0.0, 0.0], [1.0] * 4)
    assert (of(b, w) == first) is alike
    assert of([-1.0, 1.0, 0.0, 0.0], [1.0] * 4, "b") != first


def test_a_huber_fit_says_its_delta_in_the_unit_of_the_target() -> None:
    model = fs.fit(FRAME, "score ~ x", family="huber", delta=2.0, group="site")
    assert model.fit.spread is not None
    assert model.delta == pytest.approx(2.0 * model.fit.spread, rel=1e-12)
    assert fs.fit(FRAME, "score ~ x", group="site").delta is None


def test_degrees_of_freedom_count_every_predictor_and_no_intercept() -> None:
    model = fs.fit(FRAME, "ward ~ x + u", family="multinomial", group="site")
    assert (model.df_model, model.df_resid, model.df_null) == (4, 2 * N - 6, 2 * N - 2)
    model = fs.fit(FRAME, "score ~ x + u - 1", group="site")
    assert (model.df_model, model.df_resid, model.df_null) == (2, N - 2, N)
    assert model.bic is not None
    assert model.aic is not None
    # the coefficients, and the dispersion
    assert model.bic - model.aic == pytest.approx(3 * (np.log(N) - 2.0), rel=1e-12)


def test_as_many_coefficients_as_rows_leave_no_dispersion_and_no_likelihood() -> None:
    three = pd.DataFrame({"y": [1.0, 3.0, 2.0], "x": [0.0, 1.0, 5.0], "site": [0, 1, 2]})
    full = fs.fit(three.assign(u=[1.0, 0.0, 0.0]), "y ~ x + u", group="site")
    assert (full.bse, full.dispersion, full.llf, full.aic, full.f_test) == (None,) * 5
    assert full.se_reason == "with as many coefficients as rows no dispersion can be estimated"
    fewer = fs.fit(three, "y ~ x", group="site")
    assert fewer.bse is not None
    assert fewer.llf is not None
    shrunk = fs.fit(three, "y ~ x", group="site", ridge=1.0)
    assert (shrunk.bse, shrunk.dispersion, shrunk.aic) == (None, None, None)


def test_exchanges_are_those_before_the_rounds_the_rounds_and_those_after() -> None:
    def row(kind: Any) -> Row:
        return Row(np.nan, np.nan, kind, 0.0, 1, 1, 1, 0.0)

    rounds = Trace(1.0, [row("round"), row("round"), row("certificate")])
    proof = FitCertificate(0.0, 0.0, "by hand")
    run = Computation(proof, True, rounds, 0, 3, [], [], "0")
    # those of a run that lost a client come first, with a set-up of their own
    others = [row(kind) for kind in ("handshake", "setup", "handshake", "setup", "end", "end")]
    whole = run.among(others)
    kinds = ["handshake", "setup"] * 2 + ["round", "round", "certificate", "end", "end"]
    assert whole.trace.kind.tolist() == kinds
    assert whole.first_round == 4
    assert whole.of_rounds.kind.tolist() == ["round", "round", "certificate"]
    assert run.among([]).first_round == 0


def test_an_overdispersed_count_is_warned_of_by_the_factor_of_its_errors() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "site": np.arange(400) % 4})
    frame["y"] = rng.poisson(rng.gamma(2.0, np.exp(1.0 + 0.2 * frame.x) / 2.0))
    model = fs.fit(frame, "y ~ x", family="poisson", group="site")
    mu = np.exp(model.params["Intercept"] + model.params["x"] * frame.x)
    ratio = float(np.sum((frame.y - mu) ** 2 / mu)) / 398
    assert model.overdispersion == pytest.approx(ratio, rel=1e-9)
    assert ratio > 1.5
    assert f"{np.sqrt(ratio):.2g} times as large" in model.warnings[-1]
    # about the bound there is none
    frame["y"] = rng.poisson(rng.gamma(20.0, np.exp(1.0 + 0.2 * frame.x) / 20.0))
    model = fs.fit(frame, "y ~ x", family="poisson", group="site")
    assert model.overdispersion is not None
    assert 1.0 < model.overdispersion < 1.5
    assert not model.warnings


def test_the_test_of_all_covariates_is_that_of_statsmodels() -> None:
    model = fs.fit(FRAME, "score ~ x + u", group="site")
    fit = smf.ols("score ~ x + u", FRAME).fit()
    assert model.f_test is not None
    expected = (fit.fvalue, 2, N - 3, fit.f_pvalue)
    np.testing.assert_allclose(model.f_test, expected, rtol=1e-9)
