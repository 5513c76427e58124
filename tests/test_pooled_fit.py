"""Fits with functions that depend on the rows of all clients, against R."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from asked import AskedSite
from fedsplit.channels import codec
from fedsplit.channels.channel import Reply, Request
from fedsplit.data.formula.pooled_functions import ColumnStatistic
from fedsplit.data.pooled.column_statistics import ColumnMoments, Histogram
from fedsplit.data.pooled.polynomials import GramMatrix
from fedsplit.errors import InputError
from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.questions import decode_request
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.regression.client.questions import SumAnswer
from fedsplit.testing import Federation
from sum_questions import ask_arguments

FOUND = json.loads((Path(__file__).parent / "data" / "pooled_functions.json").read_text())
"""What ``pooled_functions.R`` beside it wrote."""

ROWS = pd.DataFrame(FOUND["data"])
NEW = pd.DataFrame(FOUND["new"])
FAMILIES = {"gaussian": "gaussian", "binomial": "logistic"}


@pytest.mark.parametrize("case", FOUND["fits"], ids=[each["formula"] for each in FOUND["fits"]])
def test_a_fit_and_its_predictions_are_those_of_r(case: Mapping[str, Any], tmp_path: Path) -> None:
    model = fs.fit(ROWS, case["formula"], group="site", family=FAMILIES[case["family"]])
    assert model.converged
    assert model.nobs == case["n"]
    np.testing.assert_allclose(model.params, case["coef"], rtol=1e-10)
    assert model.bse is not None
    np.testing.assert_allclose(model.bse, case["se"], rtol=1e-9)
    expected = np.array(case["predicted"], dtype=np.float64)  # null is nan
    np.testing.assert_allclose(model.predict(NEW), expected, rtol=1e-10)
    model.save(tmp_path / "model")
    np.testing.assert_allclose(fs.load(tmp_path / "model").predict(NEW), expected, rtol=1e-10)


def test_names_are_those_of_r() -> None:
    model = fs.fit(ROWS, "y ~ poly(year, 2):g + poly(age, 1) + scale(dose)", group="site")
    assert list(model.estimates.names) == [
        "Intercept",
        "poly(age, 1)",
        "scale(dose)",
        "poly(year, 2)1:g[f]",
        "poly(year, 2)2:g[f]",
        "poly(year, 2)1:g[m]",
        "poly(year, 2)2:g[m]",
    ]


def test_agreed_knots_and_breaks_are_in_the_table_and_in_the_json(tmp_path: Path) -> None:
    model = fs.fit(ROWS, "y ~ ns(age, df=3) + cut(age, 3)", group="site")
    expected = {
        "ns(age, df=3)": "knots=c(45.7, 54.9), Boundary.knots=c(25, 75)",
        "cut(age, 3)": "breaks=c(-Inf, 41.7, 58.3, Inf)",
    }
    lines = str(model.summary()).split("\n")
    assert {f"{text}: {agreed}" for text, agreed in expected.items()} <= set(lines)
    model.save(tmp_path / "model")
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    assert record["agreed"] == expected
    assert record["plan"]["state"]["ns(age, df=3)"]["knots"] == [45.7, 54.9]
    path = fs.path(ROWS, "y ~ ns(age, df=3)", group="site", n_lambdas=3, folds="clients")
    assert "ns(age, df=3): knots=c(45.7, 54.9)" in str(path.summary())


def test_rows_outside_the_breaks_are_missing_values() -> None:
    formula = "y ~ cut(age, c(20, 40, 50, 60)) + scale(year)"
    model = fs.fit(ROWS, formula, group="site")
    inside = ROWS["age"].between(20, 60, inclusive="right")
    lost = (~inside).groupby(ROWS["site"]).sum()
    assert model.clients["missing"].to_dict() == lost.to_dict()
    assert model.clients["n"].to_dict() == inside.groupby(ROWS["site"]).sum().to_dict()
    with pytest.raises(InputError, match=r"client a: \d+ rows outside the breaks of cut\(\)"):
        fs.fit(ROWS, formula, group="site", missing="fail")


def test_a_client_whose_rows_are_all_outside_the_breaks_is_left_out() -> None:
    rows = ROWS.copy()
    rows.loc[rows["site"] == "c", "age"] += 1000.0
    formula = "y ~ cut(age, c(20, 40, 90))"
    model = fs.fit(rows, formula, group="site")
    assert model.nobs == int((rows["age"].between(20, 90, inclusive="right")).sum())
    assert "client c has no complete row and is left out" in model.warnings
    with pytest.raises(InputError, match="every row is outside"):
        fs.fit(rows, "y ~ cut(age, c(-3, -2, -1))", group="site")


def test_rows_of_weight_zero_count_as_in_r_and_incomplete_ones_do_not() -> None:
    # sd(age) and mean(age) of all rows, in R: scale(age) does not know the weights
    rows = ROWS.assign(w=np.arange(len(ROWS)) % 2)
    weighted = fs.fit(rows, "y ~ scale(age)", group="site", weights="w")
    state = weighted.plan.state["scale(age)"]
    np.testing.assert_allclose(state["center"], ROWS["age"].mean(), rtol=1e-14)
    np.testing.assert_allclose(state["scale"], ROWS["age"].std(ddof=1), rtol=1e-14)
    rows = ROWS.copy()
    rows.loc[::7, "age"] = np.nan
    dropped = fs.fit(rows, "y ~ scale(age)", group="site").plan.state["scale(age)"]
    np.testing.assert_allclose(dropped["scale"], rows["age"].std(ddof=1), rtol=1e-13)


def test_polynomials_of_few_rows_are_a_warning_and_refused_if_strict() -> None:
    formula = "y ~ poly(age, 6)"
    what = "client c has 30 rows for 12 sums of column age, more than a third"
    assert what in fs.fit(ROWS, formula, group="site").warnings
    # or an extreme age has nearly all of the leverage of a high power
    with pytest.raises(InputError, match=r"client c has 30 rows for 12 sums|singles out row"):
        fs.fit(ROWS, formula, group="site", strict=True)


def test_sums_of_several_functions_of_a_column_count_together() -> None:
    formula = "y ~ poly(age, 3) + poly(log(age), 3)"
    warnings = fs.fit(ROWS, formula, group="site").warnings
    assert "client c has 30 rows for 12 sums of column age, more than a third" in warnings
    warnings = fs.fit(ROWS, "y ~ poly(age, 3) + poly(dose, 3)", group="site").warnings
    assert not any("sums" in text for text in warnings)


def test_an_interval_with_one_row_is_a_warning() -> None:
    rows = ROWS.copy()
    rows.loc[0, "age"] = 99.0
    model = fs.fit(rows, "y ~ cut(age, c(0, 50, 80, 100))", group="site")
    assert any("cut(age, c(0, 50, 80, 100)) = (80,100] in 1" in text for text in model.warnings)


def test_rows_beyond_the_boundary_knots_of_bs_are_a_warning_as_in_r() -> None:
    formula = "y ~ {}(age, knots=c(50), Boundary.knots=c(35, 80))"
    warnings = fs.fit(ROWS, formula.format("bs"), group="site").warnings
    assert any("3 clients have rows beyond the boundary knots of bs(" in text for text in warnings)
    assert not fs.fit(ROWS, formula.format("ns"), group="site").warnings


def test_a_target_can_be_scaled() -> None:
    model = fs.fit(ROWS, "scale(y) ~ age", group="site")
    y = (ROWS["y"] - ROWS["y"].mean()) / ROWS["y"].std(ddof=1)
    expected = np.linalg.lstsq(np.column_stack([np.ones(len(y)), ROWS["age"]]), y, rcond=None)[0]
    np.testing.assert_allclose(model.params, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ poly(event, 2)", r"poly\(event, 2\): its column has too few different values"),
        ("y ~ poly(g, 2)", "column g holds text"),
        ("y ~ scale(log(age - 40))", "row 17: the column of scale"),
        ("y ~ bs(age, knots=c(5, 50))", "must lie between 25 and 75"),
        ("y ~ poly(scale(age), 2)", "cannot stand inside"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(formula: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        fs.fit(ROWS, formula, group="site")
    assert "\n" not in str(refusal.value)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    frames = {str(name): rows.drop(columns="site") for name, rows in ROWS.groupby("site")}
    return Federation(tmp_path, frames, secure_sums_only=False, least_sites=2, rules="warn")


def fit(federation: Federation, formula: str) -> Any:
    found = federation.run(federation.regression(formula, secure=False))
    assert isinstance(found, StudyResult)
    return found.result


def answered(federation: Federation, name: str) -> list[tuple[Request, Any]]:
    """What a site was asked, and what it answered."""
    record = federation.site(name).record
    rows = record.execute("SELECT question, value FROM sent WHERE number > 0 ORDER BY number")
    asked = [decode_request(question) for question, _ in rows]
    return [
        (each, codec.decode(each.question.answer_type, value))
        for each, (_, value) in zip(asked, rows, strict=True)
    ]


def titles(request: Request) -> list[str]:
    return [title for part in request.question.singles() for title in part.titles]


def questions(federation: Federation, name: str) -> list[str]:
    return [" ".join(titles(request)) for request, _ in answered(federation, name)]


def test_sites_of_a_study_give_the_same_model(federation: Federation) -> None:
    formula = "y ~ poly(year, 3) + ns(age, df=3)"
    here = fs.fit(ROWS, formula, group="site")
    there = fit(federation, formula)
    assert there.plan.state == here.plan.state
    np.testing.assert_allclose(there.params, here.params, rtol=1e-12)
    # the first sums come with the survey
    sums = "rows_inside of_argument"
    assert questions(federation, "a")[:3] == [f"survey {sums}", sums, "design_moments"]


def test_formulas_without_such_functions_ask_nothing_more(federation: Federation) -> None:
    fit(federation, "y ~ age + g + poly(dose, 2, raw=TRUE)")
    assert not any("of_argument" in question for question in questions(federation, "a"))


def test_owners_refuse_statistics_of_anything_else(tmp_path: Path) -> None:
    site = AskedSite(tmp_path, ROWS[ROWS.site == "a"].drop(columns="site"))
    plan = Plan("y ~ poly(age, 2)", "gaussian", {}, {"y": "number", "age": "number"})

    def reply(statistics: Mapping[str, ColumnStatistic]) -> Reply:
        return site.ask(Request(ask_arguments(Coding(plan, False, ("a",)), statistics), "", 1))

    told = reply({"poly(age, 2)": ColumnMoments()})
    assert told.value[0].values["poly(age, 2)"]["part"][0] == 70
    assert reply({"scale(age)": ColumnMoments()}).outcome == "refused"
    assert "scale(age) is not in the formula" in site.refusals[-1]


def test_statistics_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="cells"):
        Histogram(0.0, 1.0, 10_000)
    with pytest.raises(ValueError, match="without finite cells"):
        Histogram(0.0, 0.0, 10)
    with pytest.raises(ValueError, match="without a norm"):
        GramMatrix(0.0, 1.0, (0.0,), (1.0, -1.0))
    with pytest.raises(ValueError, match="degree above"):
        GramMatrix(0.0, 1.0, (0.0,) * 30, (1.0,) * 31)


def test_no_smallest_or_largest_value_and_no_quantile_of_a_site_travels(
    federation: Federation,
) -> None:
    fit(federation, "y ~ bs(age, df=5) + cut(dose, 4)")
    sent = []
    for request, answer in answered(federation, "a"):
        if "of_argument" not in " ".join(titles(request)):
            continue
        for entry in itertools.chain(*(answer.values() if isinstance(answer, dict) else [answer])):
            if isinstance(entry, SumAnswer):
                sent += [parts["part"] for parts in entry.values.values() if "part" in parts]
    # moments of both columns, then the cells of both histograms
    assert [each.shape for each in sent[:2]] == [(3,), (3,)]
    assert all(each.shape[1] > 30 for each in sent[2:])
