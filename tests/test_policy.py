"""The rules of a client's owner as a file: what they allow, what they refuse, and what is said."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from fedsplit.commands.app import run
from fedsplit.errors import InputError
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.sites.studies.policy import KEYS, read_policy
from owners import Federation, survey, with_tables
from test_service import FORMULA

EXAMPLE = Path(__file__).parents[1] / "examples" / "deploy" / "policy.toml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return with_tables(tmp_path)


def policy(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_documented_example_has_every_key(tmp_path: Path) -> None:
    rules = read_policy(EXAMPLE)
    assert rules.refuse
    assert rules.parameters == 0.1
    assert rules.allowed is not None
    text = EXAMPLE.read_text(encoding="utf-8")
    for key in KEYS:
        assert f"\n{key} = " in text, key
    assert {key.field for key in KEYS.values()} <= {each.name for each in fields(Rules)}
    assert read_policy(policy(tmp_path, "")) == Rules.strict()
    assert read_policy(policy(tmp_path, "smallest_group = 20")).rows == 20


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("least_row = 3", "there is no key 'least_row', did you mean least_rows?"),
        ("qqqq = 3", "there is no key 'qqqq': the keys are columns_allowed, "),
        ("least_rows = 0", "least_rows must be a whole number of at least 1, not 0"),
        ("least_rows = true", "least_rows must be a whole number"),
        ("least_rows = 1.5", "least_rows must be a whole number"),
        ("parameters_per_row = 2", "parameters_per_row must be a number above 0, at most 1, not 2"),
        ("matrices = 1", "matrices must be true or false, not 1"),
        ("families = ['cauchy']", "families must be a list of gaussian"),
        ("columns_allowed = 'age'", "columns_allowed must be a list of names"),
        ("[columns]\nallow = []", "there is no key 'columns'"),
        ("least_rows = ", "is not TOML"),
        ("partners = ['south']", "partners must be a table of clients"),
        ("partners = { south = '5c1e' }", "with the 64 digits of its key's fingerprint"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    path = policy(tmp_path, text)
    with pytest.raises(InputError, match=f"^{path}: ") as caught:
        read_policy(path)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules(families=("gaussian",)), "families: poisson is none of gaussian"),
        (Rules(denied=("w*",)), "columns_denied: ward"),
        (Rules(allowed=("x", "y")), "columns_allowed: ward"),
        (Rules(sites=4), "least_sites: it goes on with 3 clients, fewer than 4"),
        (Rules(secure=True), "secure_sums_only"),
    ],
)
def test_a_study_that_breaks_a_rule_is_declined_and_its_owner_sees_the_rule(
    folder: Path, rules: Rules, why: str
) -> None:
    federation = Federation(folder, "always", rules=rules)
    study = federation.study()
    decision = federation.propose(study)
    assert decision.state == "declined"
    assert why in decision.reason
    decided = federation.studies().decided(study.hash)
    assert decided is not None
    assert why in decided.reason
    assert why in federation.seen[-1].text


def test_a_study_that_a_rule_declined_is_decided_anew_under_other_rules(folder: Path) -> None:
    federation = Federation(folder, rules=Rules(families=("gaussian",)))
    study = federation.study()
    assert federation.propose(study).state == "declined"
    decided = federation.studies().decided(study.hash)
    assert federation.propose(study).state == "declined"
    assert federation.studies().decided(study.hash) == decided
    federation.rules = {"rules": Rules(sites=4)}
    federation.start()
    assert "least_sites" in federation.propose(study).reason
    federation.rules = {"rules": Rules()}
    federation.start()
    assert federation.propose(study).state == "pending"


def test_rules_that_are_made_stricter_hold_for_studies_approved_before(folder: Path) -> None:
    federation = Federation(folder, "always")
    study = federation.study()
    federation.approve(study)
    federation.rules = {"rules": Rules(denied=("ward",))}
    federation.start()
    reply = federation.ask(survey(), study.hash)
    assert "breaks a rule of its owner: columns_denied: ward" in reply.text


def test_a_day_has_only_so_many_studies_and_questions(folder: Path) -> None:
    federation = Federation(folder, "always", rules=Rules(studies=1, questions=3))
    first, second = federation.study(), federation.study(ridge=1.0)
    for study in (first, second):
        federation.approve(study)
    assert federation.ask(survey(), first.hash).outcome == "answer"
    reply = federation.ask(survey(), second.hash)
    assert "allows 1 study a day" in reply.text
    federation.start()
    for _ in range(2):
        assert federation.ask(survey(), first.hash).outcome == "answer"
    federation.start()
    assert "3 questions a day" in federation.ask(survey(), first.hash).text


def test_an_owner_who_tells_vectors_only_has_a_fit_by_vectors(folder: Path) -> None:
    federation = Federation(folder, "always", rules=Rules(matrices=False))
    study = federation.study()
    federation.approve(study)
    assert federation.fit(study).settings.method == "quasi-newton"


def test_the_command_says_what_a_policy_would_allow(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(folder / "a.csv")
    path = str(policy(folder, 'columns_denied = ["secret"]\nleast_rows = 50\n'))
    assert run(["policy", "check", data, "--policy", path]) == 0
    out = capsys.readouterr().out
    assert "may be used: y, x, ward" in out
    assert "may not (columns_denied): secret" in out
    model = ["--formula", FORMULA, "--family", "poisson"]
    assert run(["policy", "check", data, "--policy", path, *model]) == 0
    assert "would be allowed" in capsys.readouterr().out
    path = str(policy(folder, "parameters_per_row = 0.01"))
    assert run(["policy", "check", data, "--policy", path, *model]) == 1
    assert "would be refused" in capsys.readouterr().out
    frame = pd.read_csv(data)
    frame["near"] = frame.x + 0.01 * (frame.x == frame.x.max())  # their difference is one row
    frame.to_csv(folder / "near.csv", index=False)
    capsys.readouterr()
    near = ["policy", "check", str(folder / "near.csv"), "--formula", "y ~ x + near"]
    assert run(near) == 0
    path = str(policy(folder, "largest_leverage = 0.9"))
    capsys.readouterr()
    assert run([*near, "--policy", path]) == 1
    assert "the leverage of a row would be 1.0000" in " ".join(capsys.readouterr().out.split())
    assert run(["policy", "check", data, "--formula", "y ~ nothing"]) == 1
    assert "refused: there is no column" in " ".join(capsys.readouterr().out.split())
    assert run(["policy", "check", str(folder / "none.csv")]) == 2
    assert run(["policy", "check", data, "--policy", str(folder / "none.toml")]) == 2


def test_the_command_checks_the_study_that_the_server_will_propose(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(folder / "a.csv")
    path = str(policy(folder, 'columns_denied = ["secret"]\n'))
    model = ["policy", "check", data, "--policy", path, "--formula", "y ~ x"]
    assert run(model) == 0
    for option in ("--columns", "--weights", "--offset"):
        capsys.readouterr()
        assert run([*model, option, "secret"]) == 1
        assert "columns_denied: secret" in capsys.readouterr().out
    assert run(["policy", "check", data, "--target", "y", "--columns", "x"]) == 0
    capsys.readouterr()
    assert run([*model, "--family", "nope"]) == 2
    assert "family 'nope' is not known" in capsys.readouterr().err
    assert run(["policy", "check", data, "--family", "poisson"]) == 2
    assert "--family is about a model: give its --formula, too" in capsys.readouterr().err


def test_the_command_reads_a_file_as_the_client_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(folder / "a.csv")
    frame.to_csv(folder / "german.csv", index=False, sep=";", decimal=",")
    check = ["policy", "check", str(folder / "german.csv"), "--formula", "y ~ x"]
    assert run([*check, "--decimal", ","]) == 0
    assert run(check) == 1  # x is text then, with a level for each row
