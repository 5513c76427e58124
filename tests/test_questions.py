"""How often a fit asks every client, from its file to the table, and what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from faulty import Fault, Moment, channel_to, fit, silent
from fedsplit.data.formula.formula import Formula
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.guards.rules import WARN
from fedsplit.regression.client.questions import SurveyAnswer
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import draft_of
from fedsplit.regression.server.federation import numbers_in
from hospitals import RANDHIE, people

ALL = "mdvis ~ logc + idp + fmde + linc + xage + female + educdec + physlm + disea + C(health)"


def asked(formula: str, **settings: Any) -> tuple[fs.Model, list[str]]:
    """A model, and the questions that its clients were asked."""
    channel = channel_to(people())
    model = fit(channel, formula, method="information", **settings)
    return model, [question for _, question, _ in channel.log]


def test_the_rand_data_take_at_most_seven_questions_from_files_to_table() -> None:
    model = fs.fit(RANDHIE, ALL, family="poisson", method="information")
    assert model.converged
    assert model.exchanges <= 7
    assert model.exchanges == model.rounds + 2  # how well it fits comes with the last round
    assert "exchanges 7   rounds 5   " in model.summary()
    assert fs.fit(RANDHIE, ALL).exchanges <= 4


@pytest.mark.parametrize(
    ("formula", "settings", "before"),
    [
        ("visits ~ age + C(ward)", {"family": "poisson"}, ["survey", "sums"]),
        ("ill ~ age", {"family": "logistic"}, ["survey", "sums"]),
        ("stay ~ age + hours", {"family": "gamma"}, ["survey", "sums"]),
        ("score ~ age", {"family": "huber"}, ["survey", "sums"]),
        ("ward ~ age", {"family": "multinomial"}, ["survey", "sums"]),
        ("visits ~ age + hours", {"family": "poisson", "ridge": 2.0}, ["survey", "sums"]),
        ("visits ~ age + ward", {"family": "poisson", "types": {"ward": "text"}}, None),
        ("visits ~ age + ward", {"family": "poisson"}, ["survey", "sums"]),
        ("visits ~ scale(age)", {"family": "poisson"}, ["joint", "sums"]),
        ("visits ~ poly(age, 2)", {"family": "poisson"}, ["joint", "sums", "sums"]),
        ("visits ~ cut(age, c(0, 50, 200))", {"family": "poisson"}, ["joint", "sums"]),
        ("visits ~ poly(age, 2) + ward", {"family": "poisson"}, ["joint", "sums", "sums"]),
    ],
)
def test_what_is_counted_is_what_is_asked(
    formula: str, settings: dict[str, Any], before: list[str] | None
) -> None:
    model, questions = asked(formula, **settings)
    before = before or ["survey", "sums"]
    assert questions[: len(before)] == before
    if model.llf is not None:
        assert questions[-1] == "sums"
    assert "settle" not in questions
    # how well a model fits is asked with the last round, or where that is not foreseen after it
    end = [row for row in model.trace.rows if row.kind == "end"]
    # the sizes of residuals, on which Huber's δ depends
    counted = sum(row.questions for row in model.trace.rows if row.kind == "setup")
    assert bool(counted) == (model.family.name == "huber")
    assert len(questions) == len(before) + counted + model.rounds + len(end)
    assert len(end) <= 1
    assert model.exchanges == len(questions)
    here = fs.fit(people(), formula, method="information", **settings)
    assert (here.exchanges, here.run.floats) == (model.exchanges, model.run.floats)
    assert np.array_equal(here.params, model.params)


def test_a_dot_in_the_formula_costs_no_question() -> None:
    frames = {name: frame[["visits", "age", "hours"]] for name, frame in people().items()}
    channel = channel_to(frames)
    model = fit(channel, "visits ~ .", family="poisson")
    assert [question for _, question, _ in channel.log][:2] == ["survey", "sums"]
    named = fs.fit(frames, "visits ~ age + hours", family="poisson")
    assert np.array_equal(model.params, named.params)


def surveyed(
    formula: str, frame: pd.DataFrame | None = None, strict: bool = False, **changes: Any
) -> SurveyAnswer:
    """What one client answers about the columns of a draft."""
    frames = {"a": people()["hospital0"] if frame is None else frame}
    draft = draft_of(Formula(formula), Settings(family="poisson", **changes), ())
    answer, *_ = Dataset(sources(frames)[0]).survey(draft, WARN.asked(strict))
    return answer


def test_levels_are_told_of_text_and_of_declared_categories_and_never_of_other_numbers() -> None:
    frame = people()["hospital0"].assign(kept=lambda rows: rows.ward.astype("category"))
    for formula, levelled in {
        "visits ~ age + ward": {"ward"},
        "visits ~ kept + age": {"kept"},
        "visits ~ C(ill) + age": {"ill"},
        "visits ~ ill + age": set(),
    }.items():
        counts = surveyed(formula, frame).counts
        assert counts is not None
        assert set(counts.levels) == levelled
        assert (counts.rows, counts.complete, sum(counts.missing.values())) == (60, 60, 0)
    declared = surveyed("visits ~ ill", frame, types={"ill": "text"}).counts
    assert declared is not None
    assert declared.levels == {"ill": frame.ill.astype(str).value_counts(sort=False).to_dict()}


def test_what_a_strict_client_does_not_tell_at_once_is_refused_and_not_left_out() -> None:
    few = people()["hospital0"].head(8)
    assert surveyed("visits ~ age", few).counts is not None
    with pytest.raises(fs.InputError, match="8 rows, fewer than 10"):
        surveyed("visits ~ age", few, strict=True)


def test_a_bad_value_leaves_its_message_to_the_next_question() -> None:
    names = people()["hospital0"].assign(name=[f"p{i}" for i in range(60)])
    assert surveyed("visits ~ C(name)", names).counts is None
    assert surveyed("visits ~ nothing").counts is None
    assert list(surveyed("visits ~ nothing").profiles) == ["visits"]


def test_a_stored_category_of_numbers_is_surveyed_once() -> None:
    frames = {name: frame.astype({"ill": "category"}) for name, frame in people().items()}
    channel = channel_to(frames)
    model = fit(channel, "visits ~ age + ill", family="poisson")
    assert [question for _, question, _ in channel.log][:2] == ["survey", "sums"]
    plain = fs.fit(people(), "visits ~ age + C(ill)", family="poisson")
    assert np.array_equal(model.params, plain.params)


def test_a_client_without_values_in_a_category_is_surveyed_once() -> None:
    frames = people()
    frames["hospital1"] = frames["hospital1"].assign(ward=None)
    channel = channel_to(frames)
    model = fit(channel, "visits ~ age + ward", family="poisson")
    assert [question for _, question, _ in channel.log][:2] == ["survey", "sums"]
    assert "client hospital1 has no complete row and is left out" in model.warnings


def test_a_client_whose_file_is_empty_is_refused_or_left_out(tmp_path: Path) -> None:
    for name, frame in people().items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "new.csv").touch()
    with pytest.raises(fs.InputError, match="there is no row with a value at client new"):
        fs.fit(tmp_path, "visits ~ age", family="poisson")
    model = fs.fit(tmp_path, "visits ~ age", family="poisson", empty_site="leave-out")
    assert "client new has no row with a value and is left out" in model.warnings
    assert model.nobs == sum(map(len, people().values()))


@pytest.mark.parametrize("choice", ["refuse", "leave-out"])
def test_where_all_clients_are_empty_nobody_is_advised_to_leave_them_out(choice: Any) -> None:
    frames = {name: frame.iloc[:0] for name, frame in people().items()}
    with pytest.raises(fs.InputError, match=r"correct the data$"):
        fs.fit(frames, "visits ~ age", family="poisson", empty_site=choice)


def test_a_client_that_reads_a_column_otherwise_is_asked_again() -> None:
    frames = people()
    frames["hospital1"] = frames["hospital1"].assign(ill=frames["hospital1"].ill == 1)
    channel = channel_to(frames)
    model = fit(channel, "visits ~ age + C(ill)", family="poisson")
    assert [(question, names) for _, question, names in channel.log][:3] == [
        ("survey", list(frames)),
        ("survey", ["hospital1"]),
        ("sums", list(frames)),
    ]
    plain = fs.fit(people(), "visits ~ age + C(ill)", family="poisson")
    assert np.array_equal(model.params, plain.params)


def test_a_second_survey_travels_with_the_next_sums_of_functions() -> None:
    frames = people()
    frames["hospital1"] = frames["hospital1"].assign(ill=frames["hospital1"].ill == 1)
    channel = channel_to(frames)
    model = fit(channel, "visits ~ poly(age, 2) + C(ill)", family="poisson")
    asked = [(question, names) for _, question, names in channel.log]
    # only the client that is surveyed again is asked both in the second exchange
    assert asked[:3] == [(each, list(frames)) for each in ("joint", "sums", "sums")]
    plain = fs.fit(people(), "visits ~ poly(age, 2) + C(ill)", family="poisson")
    np.testing.assert_allclose(model.params, plain.params, rtol=1e-12)


def test_the_null_model_with_offsets_of_a_logit_is_that_of_newtons_method() -> None:
    model, questions = asked("ill ~ age + offset(hours)", family="logistic")
    only, _ = asked("ill ~ offset(hours)", family="logistic")
    assert questions.count("sums") >= 3
    assert model.exchanges == len(questions)
    assert model.null_deviance == pytest.approx(only.deviance, rel=1e-12)


def test_a_model_keeps_what_was_asked(tmp_path: Path) -> None:
    model, _ = asked("visits ~ age + C(ward)", family="poisson")
    model.write(tmp_path)
    loaded = fs.load(tmp_path)
    assert (loaded.exchanges, loaded.run.floats) == (model.exchanges, model.run.floats)
    assert loaded.to_dict() == model.to_dict()
    lines = pd.read_csv(tmp_path / "trace.csv")
    assert lines.questions.sum() == model.exchanges
    assert lines.floats_up.sum() + lines.floats_down.sum() == model.run.floats
    assert list(lines.kind)[:3] == ["handshake", "handshake", "setup"]
    assert list(lines["round"]) == [0, 0, 0, *range(1, model.rounds + 1), model.rounds]
    assert f"{model.exchanges} exchanges with every client" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )


def test_the_rounds_of_a_run_that_lost_a_client_are_counted() -> None:
    def script(moment: Moment) -> Fault | None:
        gone = moment.client == "hospital1" and moment.number >= 5
        return silent if gone else None

    channel = channel_to(people(), script)
    patience = fs.Patience(min_clients=2)
    model = fit(channel, "visits ~ age + C(ward)", script, patience, family="poisson")
    assert list(model.removed) == ["hospital1"]
    kinds = [row.kind for row in model.trace.rows]
    assert kinds.count("handshake") == 4
    assert kinds[3:5] == ["round", "round"]
    assert kinds.count("round") > model.rounds
    assert model.exchanges == sum(row.questions for row in model.trace.rows)


def test_numbers_are_counted_wherever_they_are() -> None:
    value = {"a": [1, 2.0, True, None, "x"], "b": (np.zeros((2, 3)), {"c": np.float64(1.0)})}
    assert numbers_in(value) == 9
