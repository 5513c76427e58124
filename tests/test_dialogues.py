"""Analyses are functions of the answers alone: run again from a record, they give the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit.channels import codec
from fedsplit.channels.channel import LocalChannel
from fedsplit.channels.members import Members
from fedsplit.channels.summed import SummedChannel
from fedsplit.clients.question import Question
from fedsplit.data.sources import sources
from fedsplit.dialogue import Dialogue, converse, replay
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.cross_validation import make_folds
from fedsplit.regression.fit import prepare
from fedsplit.regression.options import FitOptions, PathOptions
from fedsplit.regression.path import regularisation
from fedsplit.regression.server import minimise
from fedsplit.regression.server.federation import AboutCosts, FitDriver
from fedsplit.regression.server.glm import glm


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    n = 240
    frame = pd.DataFrame({"u": rng.normal(size=n), "k": rng.choice(list("abc"), n)})
    frame["site"] = np.arange(n) % 4
    eta = 0.6 * frame.u - 0.5 * (frame.k == "b")
    frame["count"] = rng.poisson(np.exp(eta))
    frame["event"] = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    # level c has no events: its coefficient grows without bound
    frame["few"] = frame.event * (frame.k != "c")
    frame["size"] = rng.gamma(2.0, np.exp(eta))
    return frame


def _members(options: Any) -> tuple[Members, Any]:
    found = sources(options.data, options.group, options.reading)
    channel: Any = LocalChannel(DatasetCohort([Dataset(source) for source in found]))
    if not options.secure:
        return Members(channel), channel
    summed = SummedChannel(channel)
    return Members(summed, summed=summed.clients), channel


def _of_fit(formula: str, **options: Any) -> tuple[FitDriver, Callable[[], Dialogue[Any]]]:
    chosen = FitOptions(rows(), formula, group="site", **options)
    members, before = _members(chosen)
    agreement = prepare(members, chosen, before)
    return FitDriver(members), lambda: glm(agreement)


def _of_path(formula: str, **options: Any) -> tuple[FitDriver, Callable[[], Dialogue[Any]]]:
    chosen = PathOptions(rows(), formula, group="site", **options)
    members, before = _members(chosen)
    agreement = prepare(members, chosen, before)
    folds = make_folds(agreement, chosen.folds, chosen.seed)
    return FitDriver(members), lambda: regularisation(agreement, chosen, folds=folds)


def recorded(driver: FitDriver, dialogue: Dialogue[Any]) -> tuple[list[Any], list[Any], Any]:
    """The questions, what came of them, and the result."""
    questions: list[Any] = []
    events: list[Any] = []

    def watch(question: Any, event: Any) -> None:
        questions.append(question)
        events.append(copy.deepcopy(event))

    return questions, events, converse(dialogue, driver, watch)


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        ("count ~ u + k", {"family": "poisson"}),
        ("count ~ u + k", {"family": "poisson", "secure": True}),
        ("count ~ u + k", {"family": "poisson", "method": "quasi-newton"}),
        ("size ~ u + k", {"family": "gamma"}),
        ("few ~ u + k", {"family": "logistic"}),
        ("few ~ u + k", {"family": "logistic", "firth": True}),
    ],
)
def test_a_fit_is_a_function_of_the_answers(formula: str, options: dict[str, Any]) -> None:
    driver, make = _of_fit(formula, **options)
    questions, events, made = recorded(driver, make())
    again = replay(make(), events)
    assert again.ended
    assert again.question is None
    for one, other in ((made.estimates, again.result.estimates), (made.fit, again.result.fit)):
        for name, value in vars(one).items():
            np.testing.assert_equal(_plain(value), _plain(getattr(other, name)))
    assert again.result.certificate == made.certificate
    # and with the first answers alone, the question that came next comes next
    for k in {1, len(events) // 2, len(events) - 1}:
        halfway = replay(make(), events[:k])
        assert not halfway.ended
        assert type(halfway.question) is type(questions[k])
        if isinstance(halfway.question, AboutCosts):
            _same_question(halfway.question.question, questions[k].question)


def _plain(value: Any) -> Any:
    return value.to_dict() if isinstance(value, pd.DataFrame) else value


def _same_question(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, Question):  # what goes to the driver alone may hold a dialogue
        assert codec.encode(one) == codec.encode(other)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_path_is_a_function_of_the_answers(family: str) -> None:
    target = {"gaussian": "size", "poisson": "count"}[family]
    driver, make = _of_path(f"{target} ~ u + k", family=family, n_lambdas=5, folds="clients")
    _, events, (_, followed) = recorded(driver, make())
    _, again = replay(make(), events).result
    np.testing.assert_array_equal(again.lambdas, followed.lambdas)
    pd.testing.assert_frame_equal(again.params, followed.params, check_exact=True)
    pd.testing.assert_frame_equal(again.cv, followed.cv, check_exact=True)
    assert again.certificates == followed.certificates


def test_a_dialogue_that_is_asked_about_other_data_asks_something_else() -> None:
    driver, make = _of_fit("count ~ u + k", family="poisson")
    questions, events, _ = recorded(driver, make())
    at = next(k for k, each in enumerate(events) if hasattr(each, "parts"))
    events[at].parts["gradient"][:] *= 1.5
    other = replay(make(), events[: at + 1])
    later = [each.question for each in questions[at + 1 :] if hasattr(each.question, "x")]
    x = getattr(getattr(other.question, "question", None), "x", None)
    assert not any(x is not None and np.array_equal(x, each.x) for each in later)


def test_a_fit_by_its_own_dialogue_is_that_of_fit() -> None:
    driver, make = _of_fit("count ~ u + k", family="poisson")
    made = driver.run(make())
    model = fs.fit(rows(), "count ~ u + k", family="poisson", group="site")
    np.testing.assert_array_equal(made.estimates.values, model.params)
    assert len(driver.trace) == model.rounds


def test_a_last_round_that_is_foreseen_too_early_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = fs.fit(rows(), "count ~ u + k", family="poisson", group="site")
    monkeypatch.setattr(minimise, "ProvedDistance", partial(minimise.ProvedDistance, sure=1e12))
    early = fs.fit(rows(), "count ~ u + k", family="poisson", group="site")
    assert early.converged
    assert early.certificate.standard_errors is not None
    assert early.certificate.standard_errors <= early.settings.tol
    np.testing.assert_allclose(early.params, usual.params, rtol=1e-9)
    assert early.llf == pytest.approx(usual.llf, rel=1e-12)
    assert early.exchanges > usual.exchanges  # what was asked too early was asked in vain


@pytest.mark.parametrize("rounds", range(10, 18))
def test_rounds_leave_room_for_the_proof(rounds: int) -> None:
    options: dict[str, Any] = {"family": "poisson", "group": "site", "method": "giant"}
    model = fs.fit(rows(), "count ~ u + k", rounds=rounds, tol=1e-15, **options)
    assert model.rounds <= rounds
    assert model.run.proofs
