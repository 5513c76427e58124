"""A plan is one value: expressions as weights, derived columns, questions that travel together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from faulty import channel_to, fit
from fedsplit.channels import codec
from fedsplit.channels.channel import LocalChannel, Request
from fedsplit.channels.members import Members
from fedsplit.data.formula.formula import Formula
from fedsplit.data.sources import sources
from fedsplit.dialogue import Several, converse
from fedsplit.errors import RequestError
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Frame
from fedsplit.regression.client.guards.requests import check_coding
from fedsplit.regression.client.guards.rules import WARN
from fedsplit.regression.client.plan import BasicPlan, Coding, DerivedColumn, Plan, columns_of
from fedsplit.regression.client.questions import Joint, Settle, Survey, SurveyAnswer, joined
from fedsplit.regression.options import Settings
from fedsplit.regression.result.io import plain, value_of
from fedsplit.regression.server.agreement import agree_on_plan, draft_of
from fedsplit.regression.server.federation import FitDriver
from hospitals import people
from sum_questions import ask_arguments, rows_in


def weighed() -> dict[str, pd.DataFrame]:
    """Clients with a treatment that depends on age, and some gaps."""
    frames = people()
    rng = np.random.default_rng(3)
    for frame in frames.values():
        p = 1 / (1 + np.exp(-(frame.age - frame.age.mean()) / 20))
        frame["treated"] = (rng.uniform(size=len(frame)) < p).astype(float)
        frame["w"] = rng.integers(1, 4, len(frame)).astype(float)
    frames["hospital0"].loc[4, "age"] = np.nan
    return frames


# Weights, offset and exposure


@pytest.mark.parametrize(
    ("plain", "expression"),
    [
        ({"weights": "double"}, {"weights": "2 * w"}),
        ({"weights": "old"}, {"weights": "w * (age > 50)"}),
        ({"offset": "double"}, {"offset": "w + w"}),
        ({"exposure": "double", "family": "poisson"}, {"exposure": "I(2 * w)"}),
    ],
)
def test_weights_offset_and_exposure_may_be_expressions(
    plain: dict[str, Any], expression: dict[str, Any]
) -> None:
    frames = weighed()
    for frame in frames.values():
        frame["double"], frame["old"] = 2 * frame.w, frame.w * (frame.age > 50)
    expected = fs.fit(frames, "visits ~ age + hours", **plain)
    model = fs.fit(frames, "visits ~ age + hours", **{**plain, **expression})
    np.testing.assert_allclose(model.params, expected.params, rtol=1e-12)
    np.testing.assert_allclose(model.estimates.errors, expected.estimates.errors, rtol=1e-12)


def test_an_expression_leaves_its_columns_out_of_the_dot() -> None:
    frames = {name: frame[["visits", "age", "hours", "w"]] for name, frame in weighed().items()}
    model = fs.fit(frames, "visits ~ .", weights="2 * w")
    assert list(model.estimates.names) == ["Intercept", "age", "hours"]


def test_a_name_that_is_no_expression_is_that_of_a_column() -> None:
    assert columns_of("person years", None, "w", "2020", "a.b") == [
        "person years",
        "w",
        "2020",
        "a.b",
    ]
    assert columns_of("a / b + log(c)", "`a-b`") == ["a", "b", "c", "a-b"]
    frames = {
        name: frame.rename(columns={"w": "person years"}) for name, frame in weighed().items()
    }
    spaced = fs.fit(frames, "visits ~ hours", weights="person years")
    plain = fs.fit(weighed(), "visits ~ hours", weights="w")
    assert np.array_equal(spaced.params, plain.params)


def test_a_column_whose_name_is_read_as_an_expression_is_to_be_quoted() -> None:
    frames = {name: frame.rename(columns={"w": "my-w"}) for name, frame in weighed().items()}
    with pytest.raises(fs.InputError, match="my-w is read as an expression, write `my-w` in back"):
        fs.fit(frames, "visits ~ hours", weights="my-w")
    quoted = fs.fit(frames, "visits ~ hours", weights="`my-w`")
    assert np.array_equal(quoted.params, fs.fit(weighed(), "visits ~ hours", weights="w").params)


def test_a_weight_below_zero_is_named_with_its_row() -> None:
    with pytest.raises(fs.InputError, match=r"row \d+: w - 2 is -1; a weight is finite and not"):
        fs.fit(weighed(), "visits ~ hours", weights="w - 2")


def test_shares_that_are_whole_at_one_client_are_shares() -> None:
    rng = np.random.default_rng(8)
    n = rng.integers(1, 6, 80).astype(float)
    x = rng.normal(size=80)
    whole = pd.DataFrame({"x": x, "n": n, "share": (rng.uniform(size=80) < 0.5).astype(float)})
    part = whole.assign(share=rng.binomial(n.astype(int), 0.4) / n)
    model = fs.fit({"a": whole, "b": part}, "share ~ x", family="logistic", weights="n")
    pooled = fs.fit(pd.concat([whole, part]), "share ~ x", family="logistic", weights="n")
    np.testing.assert_allclose(model.params, pooled.params, rtol=1e-8)
    assert model.plan.classes == ()


# Derived columns


def inverse_probability(frames: dict[str, pd.DataFrame]) -> tuple[Plan, DerivedColumn]:
    """A plan whose weights are those of inverse probability, by a first model."""
    first = fs.fit(frames, "treated ~ age + C(ward)", family="logistic")
    column = DerivedColumn.of(first.plan, first.params)
    draft = draft_of(
        Formula("score ~ treated"),
        Settings(weights="treated / p + (1 - treated) / (1 - p)"),
        (),
    )
    return replace(draft, derived={"p": column}), column


def test_a_derived_column_is_the_mean_that_a_model_predicts() -> None:
    frames = weighed()
    first = fs.fit(frames, "treated ~ age + C(ward)", family="logistic")
    _, column = inverse_probability(frames)
    for source, frame in zip(sources(frames), frames.values(), strict=True):
        values = column.values(source, "here")
        np.testing.assert_allclose(values, first.predict(frame), rtol=1e-12)
        assert np.array_equal(np.isnan(values), frame.age.isna())


def test_clients_agree_on_a_plan_with_derived_columns_and_weigh_by_them() -> None:
    frames = weighed()
    draft, _ = inverse_probability(frames)
    members = Members(LocalChannel(DatasetCohort([Dataset(each) for each in sources(frames)])))
    agreed = converse(agree_on_plan(draft, Settings()), FitDriver(members))
    assert agreed.plan.columns == ["score", "treated"]
    assert agreed.plan.types == {"score": "number", "treated": "number"}
    assert agreed.used["hospital0"] == len(frames["hospital0"]) - 1  # whose age is missing
    first = fs.fit(frames, "treated ~ age + C(ward)", family="logistic")
    for source, (name, frame) in zip(sources(frames), frames.items(), strict=True):
        design = Dataset(source).code(agreed.plan, WARN)
        p = first.predict(frame).to_numpy()
        t = frame.treated.to_numpy()
        expected = (t / p + (1 - t) / (1 - p))[~np.isnan(p)]
        np.testing.assert_allclose(design.w, expected, rtol=1e-12)
        assert len(design.b) == agreed.used[name]


def test_a_plan_with_derived_columns_travels_and_is_saved() -> None:
    draft, _ = inverse_probability(weighed())
    there = codec.decode(Plan, codec.encode(draft))
    saved = value_of(Plan, json.loads(json.dumps(plain(draft))))
    assert codec.encode(there) == codec.encode(saved) == codec.encode(draft)


def test_a_derived_column_without_its_coefficients_or_of_several_means_is_refused() -> None:
    frames = weighed()
    first = fs.fit(frames, "treated ~ age", family="logistic")
    with pytest.raises(fs.InputError, match="a coefficient for each column"):
        DerivedColumn.of(first.plan, (1.0,))
    with pytest.raises(fs.InputError, match="needs a plan"):
        DerivedColumn(BasicPlan("treated ~ age", "logistic", draft=True), (1.0, 2.0))
    several = fs.fit(frames, "ward ~ age", family="multinomial")
    with pytest.raises(fs.InputError, match="one mean a row, multinomial has several"):
        DerivedColumn.of(several.plan, several.params[:2])


def test_a_derived_column_needs_no_weights_and_no_covariate() -> None:
    frames = weighed()
    frames["hospital1"] = frames["hospital1"].drop(columns="w")
    first = fs.fit({"a": frames["hospital0"]}, "visits ~ 1", weights="w", family="poisson")
    column = DerivedColumn.of(first.plan, first.params)
    values = column.values(sources(frames)[1], "here")
    assert len(values) == len(frames["hospital1"])
    np.testing.assert_allclose(values, np.exp(first.params.iloc[0]), rtol=1e-12)


@pytest.mark.parametrize("change", [{"family": "cauchy"}, {"levels": {"hours": ["1"]}}])
def test_a_server_cannot_send_a_derived_column_that_contradicts_itself(
    change: dict[str, Any],
) -> None:
    draft, column = inverse_probability(weighed())
    check_coding(Coding(draft, False, ()))
    wrong = object.__new__(DerivedColumn)  # as of a server that does not check
    object.__setattr__(wrong, "plan", replace(column.plan, **change))
    object.__setattr__(wrong, "coefficients", column.coefficients)
    with pytest.raises(RequestError):
        check_coding(Coding(replace(draft, derived={"p": wrong}), False, ()))


# Questions that travel together


def cohort() -> DatasetCohort:
    return DatasetCohort([Dataset(source) for source in sources(people())])


def test_a_joint_question_is_answered_part_by_part_and_each_is_a_single_question() -> None:
    draft = Plan("visits ~ poly(age, 2)", "poisson", draft=True)
    names = tuple(people())
    survey, measure = (
        Survey(Coding(draft, False, names)),
        ask_arguments(Coding(draft, False, names), {}),
    )
    question = Joint({"columns": survey, "states": measure})
    assert Request(question).parts == [survey, measure]
    value = cohort().answer(Request(question))
    assert list(value) == ["columns", "states"]
    assert value["columns"] == cohort().answer(Request(survey))
    assert value["states"] == cohort().answer(Request(measure))
    assert question.check_answer(value, 3) == ""
    assert question.check_answer({"columns": value["columns"]}, 3) == "answers to other questions"
    swapped = {"columns": value["states"], "states": value["columns"]}
    assert question.check_answer(swapped, 3) == "the answer to another question"
    short = {**value, "states": value["states"][:2]}
    assert question.check_answer(short, 3).startswith("an answer of the wrong type")
    assert joined({"columns": survey}) is survey
    with pytest.raises(TypeError, match="settle is asked alone"):
        joined({"a": survey, "b": Settle(Coding(draft, False, names), cast(Frame, None))})


def test_the_parts_of_an_exchange_may_be_for_different_clients() -> None:
    frames = people()
    draft = Plan("visits ~ poly(age, 2)", "poisson", draft=True)
    channel = channel_to(frames)
    asking = FitDriver(Members(channel))
    survey = Survey(Coding(draft, False, ("hospital1",)))
    answers = asking.ask(
        Several({"one": survey, "all": ask_arguments(Coding(draft, False, ()), {})})
    )
    assert list(answers["one"]) == ["hospital1"]
    assert list(answers["all"]) == list(frames)
    assert isinstance(answers["one"]["hospital1"], SurveyAnswer)
    assert rows_in(answers["all"]["hospital0"]) == 60


def test_a_draft_is_not_surveyed_by_sums() -> None:
    draft = Plan("visits ~ age", "poisson", draft=True)
    assert not Survey(Coding(draft, False, ())).summable
    assert not ask_arguments(Coding(draft, False, ()), {}).summable
    typed = replace(draft, types={"visits": "number", "age": "number"}, draft=False)
    assert Survey(Coding(typed, False, ())).summable
    levelled = replace(typed, formula="visits ~ C(age)", categories=("age",))
    assert not Survey(Coding(levelled, False, ())).summable
    known = replace(levelled, levels={"age": ["1"]})
    assert Survey(Coding(known, False, ())).summable


def test_functions_of_a_category_wait_until_its_type_is_agreed_on() -> None:
    frames = people()
    frames["hospital1"] = frames["hospital1"].assign(ill=frames["hospital1"].ill == 1)
    channel = channel_to(frames)
    formula = "visits ~ scale(age * ill) + C(ill)"
    model = fit(channel, formula, family="poisson")
    asked = [question for _, question, _ in channel.log]
    assert asked[:4] == ["joint", "survey", "sums", "sums"]
    plain = fs.fit(people(), formula, family="poisson")
    np.testing.assert_allclose(model.params, plain.params, rtol=1e-12)


def test_nothing_of_a_client_outside_the_breaks_is_in_the_plan() -> None:
    frames = people()
    frames["hospital2"] = frames["hospital2"].assign(age=500.0, ward="attic")
    formula = "visits ~ cut(age, c(0, 50, 200)) + scale(hours) + ward"
    model = fs.fit(frames, formula, family="poisson")
    others = {name: frames[name] for name in ("hospital0", "hospital1")}
    rest = fs.fit(others, formula, family="poisson")
    assert model.plan.state == rest.plan.state
    assert "attic" not in model.plan.levels["ward"]
    np.testing.assert_allclose(model.params, rest.params, rtol=1e-12)
    assert any("hospital2 has no complete row" in text for text in model.warnings)


def test_a_model_whose_types_are_all_declared_is_the_same() -> None:
    types: dict[str, Any] = {"ill": "number", "age": "number", "ward": "text"}
    declared = fs.fit(people(), "ill ~ age + ward", family="logistic", types=types)
    plain = fs.fit(people(), "ill ~ age + ward", family="logistic")
    assert declared.plan == plain.plan
    assert np.array_equal(declared.params, plain.params)
    with pytest.raises(fs.InputError, match="client hospital0: there is no column aeg, did you"):
        fs.fit(people(), "ill ~ aeg", family="logistic", types={"ill": "number", "aeg": "number"})


def test_rows_are_read_once_for_a_survey_and_the_plan_that_follows() -> None:
    [source] = sources({"a": people()["hospital0"]})
    taken = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(source, name)

        def take(self, wanted: Any) -> Any:
            taken.append(set(wanted))
            return source.take(wanted)

    dataset = Dataset(Counted())  # type: ignore[arg-type]  # it is one in all that is asked of it
    draft = draft_of(Formula("visits ~ age + ward"), Settings(), ())
    counts = dataset.survey(draft, WARN)[0].counts
    assert counts is not None
    plan = replace(
        draft, types=counts.types, draft=False, levels={"ward": list(counts.levels["ward"])}
    )
    dataset.code(plan, WARN)
    assert taken == [{"visits", "age", "ward"}]
    numbers = dataset.complete(plan)
    levels = dataset.complete(replace(plan, categories=("age",)))
    assert (numbers.age.dtype, levels.age.dtype) == (np.float64, "category")


@pytest.mark.parametrize("strict", [False, True])
def test_a_client_without_a_complete_row_adds_nothing_to_sums_of_functions(strict: bool) -> None:
    frames = people()
    frames["hospital1"] = frames["hospital1"].assign(age=np.nan)
    formula = "visits ~ scale(age)"
    model = fs.fit(frames, formula, strict=strict)
    others = {name: frames[name] for name in ("hospital0", "hospital2")}
    rest = fs.fit(others, formula, strict=strict)
    assert model.plan.state == rest.plan.state
    assert model.exchanges == rest.exchanges
