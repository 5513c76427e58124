"""Fits with noise between organisations: what a site draws once, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.channels.channel import Reply
from fedsplit.clients.questions import Gradient
from fedsplit.commands.app import run
from fedsplit.regression.client.coding import Coding
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions import NoisedSum, NoisySums
from fedsplit.sites.studies.study import Study
from owners import Federation, with_tables
from secure_federation import DECLARED, SecureFederation
from test_service import FORMULA

pytest.importorskip("dp_accounting", reason="the extra dp is not installed")

PRIVACY = fs.Privacy(4.0, 1e-6, 2.0, 3, score=10.0, weight=10.0, ranges={"x": (-4, 4)})
OPEN = {**DECLARED, "secure": False, "dp": PRIVACY}
PLAN = Plan(
    FORMULA,
    "poisson",
    {"ward": ["east", "north", "west"]},
    {"y": "number", "x": "number", "ward": "text"},
)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(with_tables(tmp_path), "always")


def approved(federation: Federation, **more: object) -> Study:
    study = federation.study(**{**OPEN, **more})  # type: ignore[arg-type]  # settings of a fit
    federation.approve(study)
    return study


def question(number: int = 1, **changes: Any) -> NoisySums:
    coding = Coding(PLAN, False, ("a",))
    asked = NoisySums(coding, PRIVACY, number, np.zeros(len(PLAN.names)))
    return replace(asked, **changes)


def numbers(reply: Reply) -> NoisedSum:
    assert reply.outcome == "answer", reply.text
    [found] = reply.value
    assert isinstance(found, NoisedSum)
    return found


def test_a_study_with_noise_asks_so_many_questions_and_no_others(federation: Federation) -> None:
    study = approved(federation)
    assert study.most == 3
    model = federation.fit(study, **OPEN)
    assert model.exchanges == 3
    assert isinstance(model, fs.NoisyModel)
    assert "NOISY" in str(model.summary())
    reply = federation.ask(Gradient(np.zeros(4)), study.hash)
    assert (reply.outcome, "no question gradient" in reply.text) == ("refused", True)


def test_a_question_that_is_repeated_has_the_same_noise_also_after_a_restart(
    federation: Federation,
) -> None:
    study = approved(federation)
    first = numbers(federation.ask(question(), study.hash))
    again = numbers(federation.ask(question(), study.hash))
    federation.start()
    restarted = numbers(federation.ask(question(), study.hash))
    for each in (again, restarted):
        assert np.array_equal(each.high, first.high)
        assert np.array_equal(each.low, first.low)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"privacy": replace(PRIVACY, epsilon=40.0)}, "in its privacy"),
        ({"privacy": replace(PRIVACY, clip=20.0)}, "in its privacy"),
        ({"privacy": replace(PRIVACY, seed=1)}, "in its privacy"),
        ({"shares": 100}, "in its share of the noise"),
        (
            {"coding": Coding(replace(PLAN, parameters={"delta": 1.0}), False, ("a",))},
            "in its delta",
        ),
        ({"number": 2}, "is not the next one"),
        ({"number": 0}, "question 0 of 3"),
        ({"x": np.zeros(7)}, "a point of another size"),
    ],
)
def test_a_site_refuses_what_is_not_in_the_declared_plan(
    federation: Federation, changes: dict[str, Any], text: str
) -> None:
    study = approved(federation)
    reply = federation.ask(question(**changes), study.hash)
    assert reply.outcome == "refused"
    assert text in reply.text
    numbers(federation.ask(question(), study.hash))


def test_a_site_answers_every_question_once_and_none_after_the_last(
    federation: Federation,
) -> None:
    study = approved(federation)
    for number in (1, 2, 3):
        numbers(federation.ask(question(number), study.hash))
    elsewhere = federation.ask(question(2, x=np.ones(4)), study.hash)
    assert "answered before, about another point" in elsewhere.text
    federation.start()
    more = federation.ask(question(4), study.hash)
    assert more.outcome == "refused"


def test_a_site_that_lost_its_record_of_noise_answers_no_more(federation: Federation) -> None:
    study = approved(federation)
    numbers(federation.ask(question(), study.hash))
    kept = federation.studies().path(study.hash) / "noise" / "1"
    content = kept.read_bytes()
    kept.unlink()
    federation.start()
    assert "is lost" in federation.ask(question(), study.hash).text
    kept.write_bytes(content[:-3])
    assert "is lost or damaged" in federation.ask(question(), study.hash).text


def test_the_owner_reads_what_the_noise_promises(federation: Federation) -> None:
    study = federation.study(**OPEN)  # type: ignore[arg-type]  # settings of a fit
    federation.mode = "ask"
    federation.start()
    federation.propose(study)
    words = " ".join(federation.words(study).split())
    assert "with or without one row, all answers together are told apart with ε 4" in words
    assert "3 times a gradient and an information matrix" in words


def test_an_owner_limits_epsilon_over_all_studies(tmp_path: Path) -> None:
    rules = Rules(refuse=True, epsilon=6.0, rows=1)
    federation = Federation(with_tables(tmp_path), "always", rules=rules)
    study = approved(federation)
    numbers(federation.ask(question(), study.hash))
    other = federation.study(**{**OPEN, "dp": replace(PRIVACY, epsilon=2.5)})  # type: ignore[arg-type]  # settings of a fit
    decision = federation.propose(other)
    assert (decision.state, decision.reason) == ("declined", "privacy_epsilon: 4 of 6 is spent")
    smaller = federation.study(**{**OPEN, "dp": replace(PRIVACY, epsilon=2.0)})  # type: ignore[arg-type]  # settings of a fit
    assert federation.propose(smaller).state == "approved"


def test_a_policy_may_require_noise(tmp_path: Path) -> None:
    federation = Federation(with_tables(tmp_path), "always", rules=Rules(refuse=True, private=True))
    plain = federation.study()
    assert federation.propose(plain).reason == "privacy_only: the study has no noise"
    assert federation.propose(federation.study(**OPEN)).state == "approved"  # type: ignore[arg-type]  # settings of a fit


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"seed": 1}, "a seed gives no privacy"), ({"least": 2}, "every client is needed")],
)
def test_a_study_whose_noise_protects_nobody_is_refused(
    federation: Federation, changes: dict[str, Any], text: str
) -> None:
    least = changes.pop("least", None)
    study = federation.study(least=least, **{**OPEN, "dp": replace(PRIVACY, **changes)})  # type: ignore[arg-type]  # settings of a fit
    with pytest.raises(fs.InputError, match=text):
        federation.proposal(study).ask(["a"])


def test_the_log_of_a_site_with_noise_is_checked_against_what_it_drew(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    study = approved(federation)
    federation.fit(study, **OPEN)
    assert run(["audit", str(federation.folder / "kept a")]) == 0
    assert "3" in capsys.readouterr().out


def test_under_masks_the_noise_is_shared_and_drawn_once(tmp_path: Path) -> None:
    federation = SecureFederation(tmp_path)
    settings = {**DECLARED, "dp": PRIVACY}
    study = federation.study(**settings)  # type: ignore[arg-type]  # settings of a fit
    federation.decide(study)
    federation.restarts = True
    model = federation.summed_fit(study, **settings)
    assert isinstance(model, fs.NoisyModel)
    assert len(model.noise.clients) == 4
    files = [str(federation.folder / f"{name}.csv") for name in federation.names]
    here = fs.fit(
        files,
        FORMULA,
        family="poisson",
        **{**DECLARED, "dp": PRIVACY},  # type: ignore[arg-type]  # settings of a fit
    )
    assert isinstance(here, fs.NoisyModel)
    assert np.isclose(model.noise.rows_error, here.noise.rows_error)
    assert run(["audit", str(federation.folder / "kept a")]) == 0
