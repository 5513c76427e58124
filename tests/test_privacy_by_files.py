"""Fits with noise by files: noise is drawn once, the owner reads how much, and rules hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from by_files import ByFiles, Told, hospitals, refusal
from fedsplit.commands.app import run
from fedsplit.sites.letters.letter import AnswerLetter, belongs_to, read_letter, unpack
from fedsplit.sites.letters.sealing import Box

pytest.importorskip("dp_accounting", reason="the extra dp is not installed")

DECLARED = ("--types", "score=number,age=number,ward=text", "--levels", "ward=north|south|west")
NOISE = ("--dp-epsilon", "8", "--dp-delta", "1e-6", "--dp-clip", "2", "--dp-rounds", "2")
BOUNDS = ("--dp-score", "4", "--dp-ranges", "age=0:100")


def federation(folder: Path, *more: str) -> ByFiles:
    """Hospitals that add noise to all that they tell."""
    plain = hospitals(folder)
    return ByFiles(plain.folder, plain.data, *plain.model, *DECLARED, *NOISE, *BOUNDS, *more)


def replies(files: ByFiles, number: int, name: str) -> list[bytes]:
    """What a site told in a round, without the first line, which counts the lines of its log."""
    letter, _ = read_letter(files.file(number, name), AnswerLetter)
    box = Box(files.study / "box.key")
    told = unpack(box.open(letter.content, belongs_to(letter, name)))
    return [reply.partition(b"\n")[2] for reply in told]


def copy_of(files: ByFiles, number: int, name: str) -> str:
    [copy] = (files.state(name) / "letters").glob(f"*/answer-{number}.txt")
    return copy.read_text(encoding="utf-8")


@pytest.mark.parametrize("secure", [False, True])
def test_a_study_by_files_has_noise_and_every_owner_reads_how_much(
    secure: bool, tmp_path: Path, capsys: Told
) -> None:
    files = federation(tmp_path / "hospitals", *["--secure"] * secure)
    assert files.rounds() == 2 + secure
    assert "NOISY for privacy: (ε, δ) = (8, 1e-06) for one row" in capsys.readouterr().out
    found = json.loads((files.study / "model.json").read_text(encoding="utf-8"))
    assert found["privacy"]["epsilon"] == 8
    text = copy_of(files, 2 + secure, "hospital0")
    assert "question 2 of 2: takes 75.0% of the budget of ε 8 and δ 1e-06" in text
    deviation = found["privacy"]["multiplier"] / (3**0.5 if secure else 1)
    assert f"standard deviation {deviation:.4g}" in text
    assert ("this client's share among 3" in text) == secure
    assert "one row more or less moves all numbers together by at most 0.866" in text
    assert files.answer("hospital0", files.study / "result.fedsplit") == 0
    assert "NOISY" in capsys.readouterr().err
    assert run(["audit", str(files.state("hospital0"))]) == 0


def test_a_question_is_answered_by_the_same_numbers_again_and_no_other_one_in_its_place(
    tmp_path: Path, capsys: Told
) -> None:
    files = federation(tmp_path / "hospitals")
    assert files.ask() == 0
    assert files.combine(*files.answer_all(1)) == 0
    told = []
    for _ in range(2):
        assert files.answer("hospital0", files.question(2)) == 0
        told.append(replies(files, 2, "hospital0"))
    assert told[0] == told[1]
    # the same study once more, in which another client has forgotten its noise and draws anew
    again = "again"
    shutil.rmtree(files.state("hospital1"))
    assert files.ask(study=again) == 0
    answers = files.answer_all(1, again)
    assert run(["combine", str(files.folder / again), *map(str, answers)]) == 0
    capsys.readouterr()
    assert files.answer("hospital0", files.question(2, again)) == 1
    assert "question 2 of the study was answered before, about another point" in (
        capsys.readouterr().err
    )


def test_owners_rules_about_noise_hold_for_studies_by_files(tmp_path: Path, capsys: Told) -> None:
    files = federation(tmp_path / "hospitals")
    policy = tmp_path / "policy.toml"
    policy.write_text("privacy_only = true\nprivacy_epsilon = 10\n", encoding="utf-8")
    rules = ("--policy", str(policy))
    plain = ByFiles(files.folder, files.data, *files.model[:2])
    assert plain.ask(study="plain") == 0
    assert files.answer("hospital0", files.question(1, "plain"), *rules) == 1
    assert "privacy_only: the study has no noise" in capsys.readouterr().err
    assert files.ask() == 0
    assert files.answer("hospital0", files.question(1), *rules) == 0
    assert files.ask("--dp-rounds", "1", study="other") == 0
    capsys.readouterr()
    assert files.answer("hospital0", files.question(1, "other"), *rules) == 1
    assert "privacy_epsilon: 8 of 10 is spent" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--dp-ranges", "height=0:3"], "there is no column height"),
        (["--dp-epsilon", "0"], "dp epsilon must be a finite number above 0"),
        (["--levels", "ward="], "ward"),
        (["--min-clients", "2"], "dp: every client is needed: leave out --min-clients"),
        (["--secure", "--dp-colluding", "3"], "--dp-colluding 3: there are only 3 clients"),
    ],
)
def test_a_study_with_noise_that_lacks_something_is_refused_before_anything_is_written(
    more: list[str], text: str, tmp_path: Path, capsys: Told
) -> None:
    files = federation(tmp_path / "hospitals")
    assert text in refusal(capsys, files.ask(*more))
    assert not files.study.exists()
