"""A study by files: question files go out, answer files come in, and the table is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

import fedsplit as fs
from by_files import FORMULA, ByFiles, Told, hospitals, refusal
from fedsplit.channels.channel import Request
from fedsplit.commands.app import run
from fedsplit.commands.client_options import SiteKeys
from fedsplit.errors import InputError
from fedsplit.remote.issuing import make_keys
from fedsplit.remote.keys import read_private_key
from fedsplit.remote.messages import write_request
from fedsplit.sites.letters.arrivals import read_answer
from fedsplit.sites.letters.incoming import read_question
from fedsplit.sites.letters.letter import (
    AnswerLetter,
    QuestionLetter,
    Taken,
    read_letter,
    unpack,
)
from fedsplit.sites.letters.post import CoordinatorPost, SitePost
from fedsplit.sites.letters.sealing import Box, seal
from fedsplit.sites.letters.study_folder import StudyFolder
from fedsplit.sites.service import ALLOWED
from fedsplit.sites.studies.proposal import Finish
from fedsplit.sites.studies.study import read_study
from hospitals import people


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> ByFiles:
    """A study in its second round, whose first answers are still there, beside another one."""
    federation = hospitals(tmp_path_factory.mktemp("begun") / "begun")
    assert federation.ask() == 0
    assert federation.combine(*federation.answer_all(1)) == 0
    federation.answer_all(2)
    return federation


@pytest.fixture
def study(begun: ByFiles, tmp_path: Path) -> ByFiles:
    return begun.copied(tmp_path / "federation")


def test_a_fit_by_files_has_the_bits_of_a_fit_in_process(tmp_path: Path, capsys: Told) -> None:
    federation = hospitals(tmp_path / "hospitals")
    assert federation.rounds() <= 7
    printed = capsys.readouterr().out
    here = fs.fit([str(path) for path in federation.data.values()], FORMULA)
    there = json.loads((federation.study / "model.json").read_text(encoding="utf-8"))
    same = ("coef", "se", "robust_se", "deviance", "certificate", "clients", "rounds")
    assert {key: there[key] for key in same} == {key: here.to_dict()[key] for key in same}
    assert here.summary().splitlines()[0] in printed
    assert (federation.study / "report.html").exists()
    for name in federation.names:
        for _ in range(2):
            assert federation.answer(name, federation.study / "result.fedsplit") == 0
            shown = capsys.readouterr()
            assert shown.out == ""
            assert "has ended, with this result" in shown.err
        assert run(["audit", str(federation.state(name))]) == 0
        assert "4 of them exactly" in capsys.readouterr().out
    assert "the study is done" in refusal(capsys, federation.combine())


class Files(NamedTuple):
    """A study, and files beside it by what is wrong with them."""

    study: ByFiles
    files: dict[str, Path]


@pytest.fixture(scope="module")
def answers(begun: ByFiles, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A study that waits for its second answers, which are there as ``first`` and ``second``."""
    folder = tmp_path_factory.mktemp("answers")
    study = begun.copied(folder / "federation")
    first, second, _ = (study.file(2, name) for name in study.names)
    assert study.ask(study="other") == 0  # the same study once more, in another folder
    assert study.ask("--ridge", "1", study="ridge") == 0
    again, else_, twice = (folder / name for name in ("again", "else", "twice"))
    assert study.answer("hospital0", study.question(1, "other"), out=again) == 0
    assert study.answer("hospital0", study.question(1, "ridge"), out=else_) == 0
    assert study.answer("hospital0", study.question(2), out=twice) == 0
    changed, cut, renamed, unsigned = (folder / name for name in ("changed", "cut", "re", "un"))
    content = first.read_bytes()
    at = content.index(b"hospital0")
    changed.write_bytes(content[:-300] + bytes([content[-300] ^ 1]) + content[-299:])
    renamed.write_bytes(content[: at + 8] + b"1" + content[at + 9 :])
    cut.write_bytes(content[:-30])
    signed = msgspec.msgpack.decode(content.partition(b"\n")[2])
    unsigned.write_bytes(b"fedsplit answer 1\n" + msgspec.msgpack.encode([signed[0], "", ""]))
    return Files(
        study,
        {
            "first": first,
            "second": second,
            "of round 1": study.file(1, "hospital0"),
            "of another run": again,
            "of another study": else_,
            "a second one": twice,
            "changed": changed,
            "renamed": renamed,
            "unsigned": unsigned,
            "cut": cut,
            "a question": study.question(2),
            "none": folder / "none",
            "a certificate": study.keys / "ca.crt",
        },
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["of round 1"], "was combined before, in round 1; the study is in round 2"),
        (["first", "second", "a second one"], "is a second answer of hospital0, beside {first}"),
        (["first", "first"], "is a second answer of hospital0"),
        (["of another run"], "belongs to another run of the same study"),
        (["first", "of another study"], "belongs to the study"),
        (["second", "changed"], "was changed since it was signed"),
        (["renamed"], "is signed by another key than that of hospital1 in the study"),
        (["unsigned"], "is not signed"),
        (["cut"], "is damaged, or a part of a file"),
        (["a question"], "is a question, not an answer"),
        (["none"], "there is no such file"),
        (["a certificate"], "is not an answer of fedsplit"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, list) else "",
)
def test_an_answer_that_cannot_be_used_is_named_and_nothing_is_lost(
    answers: Files, given: list[str], why: str, capsys: Told
) -> None:
    def kept() -> dict[Path, bytes]:
        paths = answers.study.study.rglob("*")
        return {path: path.read_bytes() for path in paths if path.is_file()}

    capsys.readouterr()
    before, paths = kept(), [answers.files[name] for name in given]
    expected = f"{paths[-1]}: {why.format(first=answers.files['first'])}"
    assert refusal(capsys, answers.study.combine(*paths)).startswith(expected)
    assert kept() == before


def test_after_answers_that_were_refused_the_right_ones_are_combined(
    study: ByFiles, capsys: Told
) -> None:
    first, second, third = (study.file(2, name) for name in study.names)
    assert study.combine(first, first) == 2
    capsys.readouterr()
    assert study.combine(first, second, third) == 0
    assert capsys.readouterr().out.strip() == str(study.question(3))


def changes(data: bytes, flips: int) -> Iterator[bytes]:
    """A file in other forms: as a reader may take it, or with single bits flipped."""
    line, _, body = data.partition(b"\n")
    content, value, signer = msgspec.msgpack.decode(body)
    deep = b"\x91" * 100_000 + b"\xc0"
    fields = msgspec.msgpack.decode(content)
    many = msgspec.msgpack.encode(fields | {"parts": {str(i): b"" for i in range(20_000)}})
    more = bytes([content[0] + 1]) + content[1:] + msgspec.msgpack.encode("more") + deep
    for signed in [
        (content, value.upper(), signer),
        (content, value, f"{signer}\n"),
        (content, value, f"{signer} text"),
        (many, value, signer),
        (more, value, signer),
    ]:
        yield line + b"\n" + msgspec.msgpack.encode(signed)
    yield line + b"\n" + deep
    yield data + b"\n"
    rng = np.random.default_rng(0)
    for at in (*range(len(line) + 20), *rng.integers(0, len(data), flips)):
        yield data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
    for cut in rng.integers(0, len(data), flips):
        yield data[:cut]
        yield data[cut:]


def test_a_file_that_differs_in_any_bit_is_refused(study: ByFiles, tmp_path: Path) -> None:
    name = study.names[0]
    key, ca = study.folder / name / f"{name}.key", study.keys / "ca.crt"
    credentials = SiteKeys(key=key, ca=ca).credentials()
    folder = StudyFolder(study.study)
    approved = read_study(folder.study.read_bytes(), ALLOWED)
    path = tmp_path / "changed"
    for question in (study.question(1), study.question(2)):
        assert read_question(question, credentials, name)[0].number
        for data in changes(question.read_bytes(), 20):
            path.write_bytes(data)
            with pytest.raises(InputError, match=r"changed: |does not belong|number"):
                read_question(path, credentials, name)
    assert read_answer(study.file(2, name), folder, approved)[0].name == name
    for data in changes(study.file(2, name).read_bytes(), 60):
        path.write_bytes(data)
        with pytest.raises(InputError, match="changed: "):
            read_answer(path, folder, approved)


def test_a_signature_that_somebody_else_has_rewritten_does_not_break_the_chain(
    study: ByFiles, tmp_path: Path
) -> None:
    # (r, n - s) is an ECDSA signature of the same content, which everybody can compute
    first, *others = (study.file(2, name) for name in study.names)
    line, _, body = first.read_bytes().partition(b"\n")
    content, value, signer = msgspec.msgpack.decode(body)
    r, s = decode_dss_signature(bytes.fromhex(value))
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    value = encode_dss_signature(r, order - s).hex()
    other = tmp_path / "other"
    other.write_bytes(line + b"\n" + msgspec.msgpack.encode((content, value, signer)))
    assert study.combine(other, *others) == 0
    assert study.answer(study.names[0], study.question(3)) == 0


NO_FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a pipe": (lambda folder: made(folder / "pipe", os.mkfifo), "is not an ordinary file"),
    "a device": (lambda folder: Path("/dev/zero"), "is not an ordinary file"),
    "a folder": (lambda folder: folder, "is a folder, not a file"),
    "a long name": (lambda folder: folder / ("x" * 300), "cannot be read (File name too long)"),
    "empty": (lambda folder: made(folder / "empty", Path.touch), "is not a"),
    "another kind": (lambda folder: made(folder / "paper.pdf", pdf), "is not a"),
}


def made(path: Path, make: Callable[[Path], object]) -> Path:
    make(path)
    return path


def pdf(path: Path) -> None:
    path.write_bytes(b"%PDF-1.7\n" + bytes(range(256)))


@pytest.mark.parametrize("name", NO_FILES)
def test_what_is_no_question_or_answer_is_refused(
    answers: Files, name: str, tmp_path: Path, capsys: Told
) -> None:
    make, why = NO_FILES[name]
    path, study = make(tmp_path), answers.study
    capsys.readouterr()
    assert refusal(capsys, study.combine(path)).startswith(f"{path}: {why}")
    assert refusal(capsys, study.answer("hospital0", path)).startswith(f"{path}: {why}")


def own_key(study: ByFiles) -> Path:
    return study.folder / "hospital0" / "hospital0.key"


PLACES: dict[str, tuple[Callable[[ByFiles, Path], Path], str]] = {
    "a folder": (lambda study, folder: folder, "is a folder: give the name of a file"),
    "in no folder": (lambda study, folder: folder / "none" / "answer", "there is no folder"),
    "in the state": (
        lambda study, folder: study.state("hospital0") / "answer",
        "is in the folder of the client's state",
    ),
    "the question": (
        lambda study, folder: study.question(2),
        "is a file that this command reads",
    ),
    "the key": (lambda study, folder: own_key(study), "is a file that this command reads"),
    "the data": (
        lambda study, folder: study.data["hospital0"],
        "is a file that this command reads",
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_an_answer_is_not_written_where_it_would_destroy_something(
    answers: Files, name: str, tmp_path: Path, capsys: Told
) -> None:
    where, why = PLACES[name]
    study = answers.study
    out, question = where(study, tmp_path), study.question(2)
    before = out.read_bytes() if out.is_file() else None
    capsys.readouterr()
    assert why in refusal(capsys, study.answer("hospital0", question, out=out))
    assert (out.read_bytes() if out.is_file() else None) == before


def test_a_link_in_the_place_of_a_new_answer_is_not_followed(
    study: ByFiles, tmp_path: Path
) -> None:
    # where others can write, too, a link may wait in the place of the new file
    mail, own = tmp_path / "mail", own_key(study)
    content = own.read_bytes()
    mail.mkdir()
    (mail / ".answer.partial").symlink_to(own)
    assert study.answer("hospital0", study.question(2), out=mail / "answer") == 0
    assert own.read_bytes() == content


def test_an_answer_that_comes_too_late_or_too_early_is_refused(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    late = tmp_path / "late"
    assert study.answer("hospital0", study.question(2), out=late) == 0
    older = study.copied(tmp_path / "older")
    assert study.combine(*(study.file(2, name) for name in study.names)) == 0
    assert study.answer("hospital0", study.question(3)) == 0
    capsys.readouterr()
    why = "is too late: it answers question 2, the study is in round 3"
    assert why in refusal(capsys, study.combine(late))
    # a coordinator that has restored an older copy of its folder
    why = "answers question 3, but the last question is 2"
    assert why in refusal(capsys, older.combine(study.file(3, "hospital0")))


def test_answers_come_one_by_one_and_can_be_replaced_until_all_are_there(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    first, second, third = (study.file(2, name) for name in study.names)
    capsys.readouterr()
    assert study.combine(first) == 1
    assert "1 of 3 answers are here; missing: hospital1, hospital2" in capsys.readouterr().err
    newer = tmp_path / "newer"
    assert study.answer("hospital0", study.question(2), out=newer) == 0
    assert newer.read_bytes() != first.read_bytes()
    assert study.combine(newer, second) == 1
    assert "the answer of hospital0 replaces its earlier one" in capsys.readouterr().err
    assert study.combine(second) == 1  # the same file again changes nothing
    assert "replaces" not in capsys.readouterr().err
    assert study.combine(third) == 0
    capsys.readouterr()
    assert study.ask() == 2
    assert "holds a study already" in capsys.readouterr().err
    assert run(["ask", str(study.study)]) == 0
    assert capsys.readouterr().out.strip() == str(study.question(3))
    for name in study.names:  # also hospital0, of whose two answers the second was taken
        assert study.answer(name, study.question(3)) == 0


class Questions(NamedTuple):
    """A study in its third round, one that went another way after the first, and wrong files."""

    study: ByFiles
    older: ByFiles
    folder: Path


@pytest.fixture(scope="module")
def questions(begun: ByFiles, tmp_path_factory: pytest.TempPathFactory) -> Questions:
    folder = tmp_path_factory.mktemp("questions")
    study, older = begun.copied(folder / "federation"), begun.copied(folder / "older")
    assert study.combine(*(study.file(2, name) for name in study.names)) == 0
    content = study.question(3).read_bytes()
    (folder / "changed").write_bytes(content.replace(b"gaussian", b"gaussiaN", 1))
    (folder / "cut").write_bytes(content[:-30])
    make_keys(folder / "theirs", [], ["localhost"], 2)
    assert older.combine(study.file(2, "hospital0")) == 1
    assert older.answer("hospital1", older.question(2)) == 0
    assert older.answer("hospital2", older.question(2)) == 0
    assert older.combine(*(older.file(2, name) for name in study.names)) == 0
    return Questions(study, older, folder)


@pytest.mark.parametrize(
    ("question", "name", "more", "why"),
    [
        ("changed", "hospital0", [], "the signature does not belong to the question"),
        ("cut", "hospital0", [], "is damaged, or a part of a file"),
        ("{answer}", "hospital0", [], "is an answer, not a question"),
        ("{third}", "hospital0", ["--ca", "theirs/ca.crt"], "issued by another CA"),
        ("{third}", "hospital0", ["--folder", "empty"], "question 3 is too early"),
        ("{older}", "hospital1", [], "follows from another answer 2 than the one given"),
        ("{third}", "hospital0", ["--name", "hospital7"], "has another key of hospital7"),
        ("{third}", "hospital1", ["--name", "hospital0"], "has another key of hospital0 than the"),
        ("{third}", "hospital0", ["--ca", "{study}"], "--ca: is not the cert"),
    ],
)
def test_a_question_that_cannot_be_answered_is_named(
    questions: Questions,
    question: str,
    name: str,
    more: list[str],
    why: str,
    capsys: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study, older, folder = questions
    monkeypatch.chdir(folder)
    paths = {
        "answer": study.file(2, "hospital0"),
        "third": study.question(3),
        "older": older.question(3),
        "study": study.study / "study.json",
    }
    capsys.readouterr()
    told = [word.format(**paths) for word in more]
    asked = Path(question.format(**paths)).absolute()
    assert why in refusal(capsys, study.answer(name, asked, *told))


def test_an_answered_question_is_not_answered_again_after_or_beside_another(
    questions: Questions, tmp_path: Path, capsys: Told
) -> None:
    study, older = questions.study, questions.older
    assert study.answer("hospital0", study.question(3), out=tmp_path / "answer") == 0
    capsys.readouterr()
    assert "question 2 is too late: question 3 was answered here already" in refusal(
        capsys, study.answer("hospital0", study.question(2))
    )
    assert "another question 3 of this run was answered here before" in refusal(
        capsys, study.answer("hospital0", older.question(3))
    )


def test_what_is_in_a_file_can_be_read_by_its_receiver_alone(
    study: ByFiles, tmp_path: Path
) -> None:
    question, _ = read_letter(study.question(2), QuestionLetter)
    answer, _ = read_letter(study.file(1, "hospital0"), AnswerLetter)
    for content in (answer.content, *question.parts.values()):
        assert not any(word in content for word in (b"ward", b"age", b"score"))
    one, other = Box(tmp_path / "one"), Box(tmp_path / "other")
    sealed = seal(b"text", one.public, b"about")
    assert one.open(sealed, b"about") == b"text"
    for box, text, about in [
        (other, sealed, b"about"),
        (one, sealed, b"else"),
        (one, sealed[:-1], b"about"),
        (one, b"", b"about"),
        (one, bytes(60), b"about"),
    ]:
        with pytest.raises(InputError, match="sealed to another key"):
            box.open(text, about)
    with pytest.raises(InputError, match="cannot be used"):
        seal(b"text", "00" * 32, b"about")


def test_an_answer_comes_from_the_rows_of_the_answers_before(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    mine, other = study.data["hospital0"], study.data["hospital1"]
    edited, copy = tmp_path / "edited.csv", tmp_path / "copy.csv"
    edited.write_bytes(mine.read_bytes() + mine.read_bytes().splitlines(keepends=True)[-1])
    copy.write_bytes(mine.read_bytes())
    answers = [study.file(2, name) for name in study.names]
    capsys.readouterr()

    def refuse(data: Path, number: int) -> None:
        study.data["hospital0"] = data
        why = f"{data}: is not the file that answered the questions before"
        status = study.answer("hospital0", study.question(number), out=tmp_path / "none")
        assert refusal(capsys, status).startswith(why)
        assert not (tmp_path / "none").exists()

    refuse(other, 2)
    refuse(edited, 2)
    assert study.combine(*answers) == 0
    capsys.readouterr()
    refuse(edited, 3)
    study.data["hospital0"] = copy
    assert study.answer("hospital0", study.question(3)) == 0
    assert study.ask("--ridge", "1", study="other") == 0
    edited.write_text("age,ward\n30,north\n")
    study.data["hospital0"] = edited
    assert study.answer("hospital0", study.question(1, "other"), out=tmp_path / "none") == 2
    assert "rows of hospital0 have no column score, which" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    for data in (other, mine):  # of which none was combined before the other came
        study.data["hospital0"] = data
        assert study.answer("hospital0", study.question(1, "other")) == 0


def test_the_owner_has_a_copy_of_every_number_that_leaves(study: ByFiles) -> None:
    [path] = (study.state("hospital0") / "letters").glob("*/answer-1.txt")
    text = path.read_text(encoding="utf-8")
    rows = people()["hospital0"]
    assert text.startswith("answer of hospital0 to question 1")
    for level, count in rows["ward"].value_counts().items():
        assert f"{level}: {count}\n" in text
    assert path.stat().st_mode & 0o077 == 0
    letter, _ = read_letter(study.file(1, "hospital0"), AnswerLetter)
    *_, sent = CoordinatorPost(study.study / "box.key", study.keys).replies(letter)
    line, _, _ = sent.partition(b"\n")
    assert f"its hash: {line.decode().removeprefix('answer ')}\n" in text


def test_a_study_waits_for_its_owner_who_may_decline(
    tmp_path: Path, capsys: Told, begun: ByFiles
) -> None:
    federation = hospitals(tmp_path / "hospitals")
    assert federation.ask() == 0
    first = federation.question(1)
    assert federation.answer("hospital0", first, approve="ask") == 1
    told = capsys.readouterr().err
    state = federation.state("hospital0")
    study = read_letter(first, QuestionLetter)[0].hash
    assert f"fedsplit approve {study[:16]} --folder {state}, then run this command again" in told
    assert not federation.file(1, "hospital0").exists()
    assert run(["approve", study, "--folder", str(state), "--decline"]) == 0
    assert federation.answer("hospital0", first, approve="ask") == 1
    for name in ("hospital1", "hospital2"):
        assert federation.answer(name, first, approve=study) == 0
    capsys.readouterr()
    answers = [federation.file(1, name) for name in federation.names]
    assert federation.combine(*answers) == 1
    told = capsys.readouterr().err
    assert "client hospital0 declined the study" in told
    assert "round 1 is still open: answers can be replaced" in told
    assert run(["approve", study, "--folder", str(state)]) == 0
    assert federation.answer("hospital0", first, approve="ask") == 0
    assert federation.combine(answers[0]) == 0


def test_an_approval_that_expires_during_a_study_is_asked_for_again(
    study: ByFiles, capsys: Told
) -> None:
    path = study.state("hospital0") / "studies" / study.hash(study.question(2)) / "decision.json"
    decided = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(decided | {"time": "2020-01-01T00:00:00Z"}), encoding="utf-8")
    assert study.answer("hospital0", study.question(2), approve="ask") == 1
    assert "waits for you" in capsys.readouterr().err
    name = study.hash(study.question(2))
    assert run(["approve", name, "--folder", str(study.state("hospital0"))]) == 0
    assert study.answer("hospital0", study.question(2), approve="ask") == 0


def test_a_refusal_by_rules_is_an_answer_that_can_be_replaced(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("least_rows = 1000\n")
    assert study.answer("hospital0", study.question(2), "--policy", str(policy)) == 1
    assert "is not answered, or not all of it, and the answer says so" in capsys.readouterr().err
    answers = [study.file(2, name) for name in study.names]
    assert study.combine(*answers) == 2
    assert "client hospital0: refused by its owner's rules" in capsys.readouterr().err
    assert study.answer("hospital0", study.question(2)) == 0
    assert study.combine(answers[0]) == 0


def test_an_answer_of_which_a_reply_cannot_be_read_is_refused(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    letter, _ = read_letter(study.file(2, "hospital0"), AnswerLetter)
    here = CoordinatorPost(study.study / "box.key", study.keys)
    [path] = (study.state("hospital0") / "letters").glob("*/box.key")
    key = read_private_key(study.folder / "hospital0" / "hospital0.key")
    [reply] = here.replies(letter)
    answer = tmp_path / "answer"
    capsys.readouterr()
    for changed in (reply[:-3], b"failed\n" + reply, b""):
        answer.write_bytes(SitePost(path, key).answer(letter, [changed], here.public)[0])
        assert refusal(capsys, study.combine(answer)) == (
            f"{answer}: its reply to sums cannot be read: hospital0 has to answer the question "
            "again"
        )


def test_a_journal_that_was_changed_is_noticed(study: ByFiles, capsys: Told) -> None:
    answers = [study.file(2, name) for name in study.names]
    kept = study.study / "journal" / "1" / "hospital1.fedsplit"
    content = kept.read_bytes()
    kept.write_bytes(study.file(2, "hospital1").read_bytes())
    capsys.readouterr()
    assert f"{kept}: was changed since it was combined" in refusal(capsys, study.combine(*answers))
    kept.write_bytes(content)
    for name in ("run.json", "signature.json"):
        path = study.study / name
        good = path.read_bytes()
        path.write_bytes(good[:20] + b"\xb9" + good[21:])
        assert f"{path}: is damaged: restore it" in refusal(capsys, study.combine(*answers))
        path.write_bytes(good)
    first = study.question(1).read_bytes()
    study.question(1).write_bytes(study.question(2).read_bytes())
    assert "question-1.fedsplit: is not question 1" in refusal(capsys, study.combine(*answers))
    study.question(1).write_bytes(first)
    assert study.combine(*answers) == 0


def test_files_and_studies_of_another_version_are_refused(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    newer = tmp_path / "newer"
    capsys.readouterr()
    newer.write_bytes(study.file(2, "hospital0").read_bytes().replace(b"answer 1", b"answer 2", 1))
    why = f"{newer}: was written by another version of fedsplit: install the same version"
    assert refusal(capsys, study.combine(newer)).startswith(why)
    question = study.question(2).read_bytes()
    newer.write_bytes(question.replace(b"question 1", b"question 2", 1))
    assert refusal(capsys, study.answer("hospital0", newer)).startswith(why)
    run_ = study.study / "run.json"
    about = json.loads(run_.read_text(encoding="utf-8"))
    run_.write_text(json.dumps(about | {"version": "0.0.9"}), encoding="utf-8")
    why = f"{study.study}: the study was begun with fedsplit 0.0.9"
    assert refusal(capsys, study.combine()).startswith(why)


def test_a_client_that_is_revoked_during_a_study_is_shut_out(study: ByFiles, capsys: Told) -> None:
    answers = [study.file(2, name) for name in study.names]
    assert run(["keys", str(study.keys), "--revoke", "hospital1"]) == 0
    capsys.readouterr()
    why = f"{answers[1]}: is of hospital1, whose key was revoked"
    assert refusal(capsys, study.combine(*answers)) == why


def test_a_coordinator_cannot_ask_about_one_study_in_a_question_of_another(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    question, _ = read_letter(study.question(1), QuestionLetter)
    messages = unpack(question.parts["hospital0"])
    post = CoordinatorPost(study.study / "box.key", study.keys)
    other = study.study.joinpath("study.json").read_bytes().replace(b'"ridge":0.0', b'"ridge":1.0')
    for number, (changed, asked, why) in enumerate(
        [
            (replace(question, study=other), messages, "asks about another study than its own"),
            (replace(question, last=True), messages, "is a result and a question at once"),
            (question, [], "asks nothing"),
        ]
    ):
        path = tmp_path / "question"
        run_ = replace(changed, run=f"{number:032}", parts={})
        path.write_bytes(post.question(run_, {"hospital0": asked}, {}))
        assert why in refusal(capsys, study.answer("hospital0", path))


def test_a_result_is_shown_without_what_controls_a_terminal_or_fills_it(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    post = CoordinatorPost(study.study / "box.key", study.keys)
    question, _ = read_letter(study.question(2), QuestionLetter)
    answer, received = read_letter(study.file(2, "hospital0"), AnswerLetter)
    taken = {"hospital0": Taken(2, received.digest)}
    last = replace(question, number=3, parts={}, last=True, taken=taken)
    path = tmp_path / "result"
    capsys.readouterr()
    for text, status in [("x" * 60_000, 1), ("table\x1b[31m\n\u202erows", 0)]:
        message = write_request(Request(Finish(True, text), study=question.hash))
        path.write_bytes(post.question(last, {"hospital0": [message]}, {"hospital0": answer.box}))
        for _ in range(2):
            assert study.answer("hospital0", path) == status
            told = capsys.readouterr().err
            assert "xxx" not in told
            assert status == 1 or "  | table\ufffd[31m\n  | \ufffdrows\n" in told


@pytest.mark.slow
def test_a_client_that_never_answers_is_left_out_if_the_study_allows(
    tmp_path: Path, capsys: Told, study: ByFiles
) -> None:
    answers = [study.file(2, name) for name in study.names]
    capsys.readouterr()
    assert "the study goes on with 3 of its clients at least" in refusal(
        capsys, study.combine(answers[0], "--without", "hospital1")
    )
    federation = hospitals(tmp_path / "hospitals")
    assert federation.ask("--min-clients", "2") == 0
    first = federation.answer_all(1)
    capsys.readouterr()
    assert "once all of them have answered question 1" in refusal(
        capsys, federation.combine(*first[:2], "--without", "hospital2")
    )
    assert federation.combine(*first) == 0
    number = 2
    while not (federation.study / "result.fedsplit").exists():
        names = federation.names
        if number > 2:
            names = names[:2]
        elif number == 2:
            assert federation.combine("--without", "hospital2") == 1  # others are missing, too
            names = names[:2]
        for name in names:
            assert federation.answer(name, federation.question(number)) == 0
        answers = [federation.file(number, name) for name in names]
        status = federation.combine(*answers, *["--without", "hospital2"] * (number == 2))
        number += 1
        assert number < 20
    assert status == 1  # a client was removed
    model = json.loads((federation.study / "model.json").read_text(encoding="utf-8"))
    assert list(model["removed"]) == ["hospital2"]
    frames = dict(list(people().items())[:2])
    here = fs.fit(frames, FORMULA)
    np.testing.assert_allclose(list(model["coef"].values()), here.params, rtol=1e-9)


def test_a_study_that_could_never_be_run_is_refused_before_any_file_goes_out(
    study: ByFiles, capsys: Told
) -> None:
    declared = ("--types", "score=number,age=number,ward=text")
    for more, why in [
        (["--secure"], "must declare the types of column score, age, ward"),
        (["--secure", *declared], "must declare the levels of column ward"),
        (["--secure", "--clients", "hospital0,hospital1"], "--secure needs 3 clients at least"),
    ]:
        assert why in refusal(capsys, study.ask(*more, study="new"))
    command = ["ask", str(study.folder / "new"), "--insecure", "--formula", FORMULA, "--clients"]
    assert "client '../../up': use letters" in refusal(capsys, run([*command, "../../up,b,c"]))
    assert not (study.folder / "new").exists()


def test_without_keys_files_are_neither_signed_nor_sealed_and_sites_with_keys_refuse_them(
    study: ByFiles, tmp_path: Path, capsys: Told
) -> None:
    open_ = tmp_path / "open"
    names = ",".join(study.names)
    command = ["ask", str(open_), "--insecure", "--formula", FORMULA]
    assert "give the names of the clients" in refusal(capsys, run(command))
    assert run([*command, "--clients", names]) == 0
    question = open_ / "question-1.fedsplit"
    capsys.readouterr()
    assert "the question is not signed" in refusal(capsys, study.answer("hospital0", question))
    answers = []
    for name in study.names:
        answers.append(str(tmp_path / name))
        line = [
            "answer", str(question), "--data", str(study.data[name]), "--out", answers[-1],
            "--folder", str(tmp_path / f"kept {name}"), "--approve", "always",
        ]  # fmt: skip
        assert "give --key and --ca" in refusal(capsys, run(line))
        assert run([*line, "--insecure"]) == 0
        capsys.readouterr()
    line[1] = str(study.question(2))
    assert "is of a study with keys" in refusal(capsys, run([*line, "--insecure"]))
    assert b"ward" in Path(answers[0]).read_bytes()
    assert run(["combine", str(open_), *answers]) == 0


@pytest.mark.slow
def test_the_example_fits_sites_of_rand_in_eight_rounds_with_the_bits_of_a_fit_in_process(
    tmp_path: Path,
) -> None:
    script = Path("examples/by-files/run.sh").absolute()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    sites = ("site3", "site5")  # each takes one process a round
    told = {"XDG_STATE_HOME": str(tmp_path / "state"), "SITES": " ".join(sites)}
    done = subprocess.run(
        ["sh", script, tmp_path / "fit"],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, **told},
    )
    assert done.returncode == 0, done.stderr
    study = tmp_path / "fit" / "coordinator" / "visits"
    assert len(list(study.glob("question-*.fedsplit"))) <= 8
    formula = "mdvis ~ logc + idp + linc + xage + female + physlm + disea + C(health)"
    here = fs.fit(
        [f"examples/randhie/{site}.csv" for site in sites], formula, family="poisson"
    ).to_dict()
    there = json.loads((study / "model.json").read_text(encoding="utf-8"))
    for key in ("coef", "se", "robust_se", "certificate", "deviance"):
        assert there[key] == here[key]
