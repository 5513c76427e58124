"""What a client has disclosed is on disk before it is disclosed, and damage to it is no amnesty."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from fedsplit import files
from fedsplit.clients.questions import Gradient
from fedsplit.errors import RequestError, StateError
from fedsplit.regression.client.guards.answered import Answered, Asked
from fedsplit.regression.client.guards.blocks import Block
from fedsplit.regression.client.guards.matrices import Ledger
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.guards.slopes import Slopes
from fedsplit.regression.client.plan import Plan
from fedsplit.remote.channel import Reply, Request
from fedsplit.sites import budget
from fedsplit.sites.budget import Budget
from fedsplit.sites.studies.asked_questions import AskedQuestions
from owners import Federation, disk_full, survey, with_tables

STRICT = Rules.strict()


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(with_tables(tmp_path), "always", rules=STRICT)


def asked(formula: str) -> Asked:
    return Asked(Plan(formula, "gaussian", types={"x": "number", "y": "number"}), survey=True)


def asked_columns(federation: Federation) -> Reply:
    """The first question of a fit at client a."""
    study = federation.study()
    federation.approve(study)
    return federation.ask(survey(), study.hash)


def test_columns_that_could_not_be_noted_are_noted_when_they_are_asked_for_again(
    tmp_path: Path,
) -> None:
    block = Block(np.arange(40.0).reshape(20, 2) % 7, np.arange(20))
    told = Answered("a", tmp_path / "answered")
    for room in (1, 20):
        with disk_full(room), pytest.raises(OSError, match="too large"):
            told.admit(asked("y ~ x"), block, STRICT)
        assert told.records() == {}
    told.admit(asked("y ~ x"), block, STRICT)
    assert [each.plan.formula for each in told.records().values()] == ["y ~ x"]


def test_counts_that_could_not_be_written_are_not_remembered(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with disk_full():
        with pytest.raises(OSError, match="too large"):
            ledger.add("a", 2)
        with pytest.raises(OSError, match="too large"):
            ledger.add_all(["b"])
        with pytest.raises(OSError, match="too large"):
            ledger.spend("steady", 1)
    assert ledger.total == 0
    assert "a" not in ledger
    assert ledger.spend("steady", 1)
    assert not Ledger(tmp_path / "ledger").spend("steady", 1)


@pytest.mark.parametrize("room", [1, 40, 100])
def test_a_question_that_could_not_be_counted_is_counted_when_it_is_asked_again(
    federation: Federation, tmp_path: Path, room: int
) -> None:
    path, study = tmp_path / "asked", federation.study()
    request = Request(survey(), "", 3)
    counted = AskedQuestions(path, study)
    counted.add(Request(Gradient(np.zeros(3)), "key", 3), "")
    with disk_full(path.stat().st_size + room % 80), pytest.raises(OSError, match="too large"):
        counted.add(request, "")
    counted.add(request, "")
    assert len(AskedQuestions(path, study)) == len(counted) == 2


def test_the_name_of_a_new_file_is_on_disk_with_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync", synced.append)
    for line in ("columns 12", "code 34"):
        files.append_line(tmp_path / "asked", line)
    assert synced == [tmp_path]


def test_a_line_that_a_crash_cut_short_is_not_glued_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "asked"
    path.write_text("columns 12\ncode 3", encoding="utf-8")
    assert files.recover_lines(path) == ["columns 12"]
    files.append_line(path, "code 34")
    assert files.recover_lines(path) == ["columns 12", "code 34"]


@pytest.mark.parametrize("content", [b"", b"a later version"])
def test_nothing_is_answered_while_a_part_of_the_ledger_cannot_be_read(
    federation: Federation, content: bytes
) -> None:
    assert asked_columns(federation).outcome == "answer"
    damaged = next((federation.folder / "kept a" / "answered").iterdir())
    good = damaged.read_bytes()
    federation.start()
    damaged.write_bytes(content)
    for _ in range(4):
        reply = asked_columns(federation)
        assert reply.outcome == "failed"
        assert str(federation.folder) not in reply.text
        assert str(damaged) in federation.seen[-1].text
    assert federation.sites["a"].refusals.found() == []
    with pytest.raises(StateError, match=damaged.name):
        federation.start()
    damaged.write_bytes(good)
    assert asked_columns(federation).outcome == "answer"


def test_a_ledger_of_another_version_is_named_and_not_taken_for_an_empty_one(
    tmp_path: Path,
) -> None:
    content = b"in a format of later"
    (tmp_path / sha256(content).hexdigest()).write_bytes(content)
    block = Block(np.arange(40.0).reshape(20, 2) % 7, np.arange(20))
    told = Answered("a", tmp_path, lambda each: block)
    for _ in range(2):
        with pytest.raises(StateError, match=r"another version of fedsplit.* use that version"):
            told.admit(asked("y ~ x"), block, STRICT)


def test_an_error_on_the_way_leaves_no_ledger_that_knows_a_part(tmp_path: Path) -> None:
    block = Block(np.arange(40.0).reshape(20, 2) % 7, np.arange(20))
    for formula in ("y ~ x", "y ~ z"):
        Answered("a", tmp_path).admit(asked(formula), block, STRICT)
    calls = 0

    def again(each: Asked) -> Block:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise MemoryError
        return block

    told = Answered("a", tmp_path, again)
    with pytest.raises(MemoryError):
        told.admit(asked("y ~ w"), block, STRICT)
    told.admit(asked("y ~ w"), block, STRICT)
    assert calls == 4


@pytest.mark.parametrize("name", ["rounds", "today"])
@pytest.mark.parametrize("content", ["", "x", "2026-11-16", "2026-11-16 x", "\0\0"])
def test_a_damaged_count_of_questions_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(StateError, match=f"{name}: this count cannot be read.* delete the file"):
        Budget(tmp_path, 100, 300).spend()


def test_a_damaged_count_is_for_the_owner_to_mend_and_no_refusal(federation: Federation) -> None:
    federation.rules["max_rounds"] = 100
    federation.start()
    study = federation.study()
    federation.approve(study)
    path = federation.folder / "kept a" / "rounds"
    path.write_text("", encoding="utf-8")
    assert federation.ask(survey(), study.hash).outcome == "failed"
    assert f"{path}: this count cannot be read" in federation.seen[-1].text
    assert federation.sites["a"].refusals.found() == []
    path.unlink()
    assert federation.ask(survey(), study.hash).outcome == "answer"


@pytest.mark.parametrize(("name", "ledger"), [("ledger", Ledger), ("000000.npz", Slopes)])
def test_a_damaged_ledger_of_matrices_or_points_is_named(
    tmp_path: Path, name: str, ledger: type[Ledger | Slopes]
) -> None:
    path = tmp_path / name
    path.write_bytes(b"half a li")
    with pytest.raises(StateError, match=rf"{name}: this .* cannot be read"):
        ledger(path if ledger is Ledger else tmp_path)


def kept(folder: Path, columns: list[float]) -> Slopes:
    """Slopes of five rows that are told one after the other."""
    told = Slopes(folder)
    for each in columns:
        vectors = {"slopes": each * np.ones((5, 1))}
        told.add(vectors, told.with_vectors(vectors))
    return told


def test_the_same_slopes_are_not_kept_again(tmp_path: Path) -> None:
    kept(tmp_path, [1.0, 2.0, 1.0])
    kept(tmp_path, [2.0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000.npz", "000001.npz"]
    assert Slopes(tmp_path).earlier(np.arange(5)).shape == (5, 2)


def test_a_missing_file_of_slopes_is_named(tmp_path: Path) -> None:
    kept(tmp_path, [1.0, 2.0, 3.0])
    (tmp_path / "000001.npz").unlink()
    with pytest.raises(StateError, match=r"000001\.npz: this .* is missing"):
        Slopes(tmp_path)


def test_a_clock_that_is_set_back_gives_no_more_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    for day in ("2026-11-16", "2026-11-15", "2026-11-16", "2026-11-17"):
        monkeypatch.setattr(budget, "today", lambda day=day: day)
        counts = Budget(tmp_path, None, 3)
        left.append(counts.left)
        counts.spend()
    assert left == [3, 2, 1, 3]


def test_a_count_of_a_day_that_is_still_to_come_is_named_once_it_is_used_up(tmp_path: Path) -> None:
    (tmp_path / "today").write_text("2999-01-01 2", encoding="utf-8")
    counts = Budget(tmp_path, None, 3)
    counts.spend()
    with pytest.raises(StateError, match=r"today: counts the questions of 2999-01-01.*clock"):
        counts.spend()


def test_a_question_that_is_refused_for_the_day_is_not_counted_in_all(tmp_path: Path) -> None:
    counts = Budget(tmp_path, 10, 1)
    counts.spend()
    for _ in range(3):
        with pytest.raises(RequestError, match="1 questions a day"):
            counts.spend()
    assert (tmp_path / "rounds").read_text(encoding="utf-8") == "1"
