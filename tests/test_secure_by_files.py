"""Secure sums by files: nobody but a site itself can read what it adds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import fedsplit as fs
from by_files import FORMULA, ByFiles, Told, hospitals, refusal
from fedsplit import fixed_point
from fedsplit.arrays import Array
from fedsplit.commands.app import run
from fedsplit.remote.messages import read_reply
from fedsplit.sites.letters.letter import (
    AnswerLetter,
    belongs_to,
    read_letter,
    unpack,
)
from fedsplit.sites.letters.post import CoordinatorPost
from fedsplit.sites.letters.sealing import Box
from hospitals import people


def secure(folder: Path, sizes: tuple[int, ...] = (60, 45, 30)) -> ByFiles:
    """Hospitals that tell sums alone."""
    federation = hospitals(folder, sizes)
    levels = ("--types", "score=number,age=number,ward=text", "--levels", "ward=north|south|west")
    return ByFiles(federation.folder, federation.data, *federation.model, "--secure", *levels)


def added_up(federation: ByFiles, number: int) -> tuple[Array, Array]:
    """What was sent in a round, added up, and what the copies of the owners say of it."""
    post = CoordinatorPost(federation.study / "box.key", federation.keys)
    sent, told = [], []
    for name in federation.names:
        letter, _ = read_letter(federation.file(number, name), AnswerLetter)
        [reply] = post.replies(letter)
        sent.append(read_reply(reply, NDArray[np.int64], 0.0).value.view(np.uint64))
        [copy] = (federation.state(name) / "letters").glob(f"*/answer-{number}.txt")
        numbers = copy.read_text(encoding="utf-8").partition("all of it, as numbers:")[2]
        told.append(np.array(numbers.strip(" \n[]").split(), dtype=np.float64))
    total = fixed_point.decode(fixed_point.total(sent, len(sent[0])))
    return total, np.sum(told, axis=0)


def test_secure_sums_by_files_give_the_pooled_table(tmp_path: Path, capsys: Told) -> None:
    federation = secure(tmp_path / "hospitals")
    assert federation.rounds() <= 10
    here = fs.fit([str(path) for path in federation.data.values()], FORMULA)
    there = json.loads((federation.study / "model.json").read_text(encoding="utf-8"))
    assert there["converged"]
    for name, value in here.to_dict()["coef"].items():
        assert abs(there["coef"][name] - value) < 1e-9 * here.to_dict()["se"][name]
    for name in federation.names:
        assert run(["audit", str(federation.state(name))]) == 0
    [copy] = (federation.state("hospital0") / "letters").glob("*/answer-2.txt")
    text = copy.read_text(encoding="utf-8")
    assert "before it is masked" in text
    total, told = added_up(federation, 3)
    np.testing.assert_allclose(total, told, rtol=1e-12, atol=1e-12)
    assert total.any()
    for level, count in people()["hospital0"]["ward"].value_counts().items():
        assert f"{level}: {count}\n" in text


def test_in_secure_sums_a_question_is_answered_by_the_same_numbers_again(
    tmp_path: Path, capsys: Told
) -> None:
    federation = secure(tmp_path / "hospitals")
    assert federation.ask() == 0
    assert federation.combine(*federation.answer_all(1)) == 0
    question = federation.question(2)
    boxes = federation.study / "box.key"
    told = []
    for _ in range(2):
        assert federation.answer("hospital0", question) == 0
        letter, _ = read_letter(federation.file(2, "hospital0"), AnswerLetter)
        told.append(unpack(Box(boxes).open(letter.content, belongs_to(letter, "hospital0"))))
    # the first line says which line of the log it is
    first, second = (replies[-1].partition(b"\n")[2] for replies in told)
    assert first == second
    for name in federation.names[1:]:
        assert federation.answer(name, question) == 0
    capsys.readouterr()
    answers = [federation.file(2, name) for name in federation.names]
    assert "at least" in refusal(capsys, federation.combine(*answers[:2], "--without", "hospital2"))
    assert federation.combine(*answers) == 0


@pytest.mark.slow
def test_secure_sums_go_on_without_a_client_only_if_its_owner_has_consented(
    tmp_path: Path, capsys: Told
) -> None:
    federation = secure(tmp_path / "hospitals", (60, 45, 30, 40))
    assert federation.ask("--min-clients", "3") == 0
    first, last = federation.question(1), "hospital3"
    assert federation.answer(last, first, approve="ask") == 1
    state = str(federation.state(last))
    assert run(["approve", federation.hash(first), "--folder", state, "--allow-removal"]) == 0
    assert federation.combine(*federation.answer_all(1)) == 0
    assert federation.combine(*federation.answer_all(2)) == 0
    answers = federation.answer_all(3)
    capsys.readouterr()
    assert "its owner has not allowed that secure sums go on without it" in refusal(
        capsys, federation.combine(*answers[1:], "--without", "hospital0")
    )
    assert not federation.question(4).exists()
    assert federation.combine() == 1  # it is waited for as before
    assert federation.combine(answers[0]) == 0
    number, status = 4, 0
    while not (federation.study / "result.fedsplit").exists():
        for name in federation.names[:3]:
            assert federation.answer(name, federation.question(number)) == 0
        answers = [federation.file(number, name) for name in federation.names[:3]]
        status = federation.combine(*answers, *["--without", last] * (number == 4))
        number += 1
        assert number < 20
    assert status == 1  # a client was removed
    model = json.loads((federation.study / "model.json").read_text(encoding="utf-8"))
    assert list(model["removed"]) == [last]
    frames = dict(list(people(sizes=(60, 45, 30, 40)).items())[:3])
    here = fs.fit(frames, FORMULA)
    np.testing.assert_allclose(list(model["coef"].values()), here.params, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("more", "most"), [((), 8), (("--secure",), 10)], ids=["open", "secure"])
def test_six_sites_of_rand_by_files_take_few_rounds(
    tmp_path: Path, more: tuple[str, ...], most: int
) -> None:
    terms = ("logc", "idp", "linc", "xage", "female", "physlm", "disea")
    types = ",".join(f"{name}=number" for name in ("mdvis", *terms))
    formula = f"mdvis ~ {' + '.join(terms)} + C(health)"
    data = {path.stem: path for path in sorted(Path("examples/randhie").absolute().glob("*.csv"))}
    federation = ByFiles(
        tmp_path / "six", data, "--family", "poisson", "--formula", formula, *more,
        "--types", f"{types},health=text", "--levels", "health=excellent|fair|good|poor",
    )  # fmt: skip
    assert federation.rounds() <= most
    here = fs.fit("examples/randhie", formula, family="poisson").to_dict()
    there = json.loads((federation.study / "model.json").read_text(encoding="utf-8"))
    for name, value in here["coef"].items():
        assert abs(there["coef"][name] - value) < 1e-9 * here["se"][name]
