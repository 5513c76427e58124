"""What a client has disclosed is on disk before it is disclosed, and damage to it is no amnesty."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsplit import files
from fedsplit.channels.channel import Reply, Request
from fedsplit.clients.questions import Gradient
from fedsplit.errors import RequestError, StateError
from fedsplit.regression.client.guards.ledger import Disclosed, DisclosureLedger
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.sites import budget
from fedsplit.sites.budget import Budget
from fedsplit.sites.studies.asked_questions import AskedQuestions
from fedsplit.statistic import RowSum
from owners import Federation, disk_full, survey, with_tables

STRICT = Rules.strict()


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(with_tables(tmp_path), "always", rules=STRICT)


COLUMNS = np.arange(40.0).reshape(20, 2) % 7
SUMS = [Disclosed(np.arange(20), RowSum(COLUMNS, np.ones((20, 1))))]


def asked_columns(federation: Federation) -> Reply:
    """The first question of a fit at client a."""
    study = federation.study()
    federation.approve(study)
    return federation.ask(survey(), study.hash)


def test_what_could_not_be_written_is_not_remembered_and_written_when_it_is_asked_again(
    tmp_path: Path,
) -> None:
    ledger = DisclosureLedger(tmp_path / "disclosed")
    for room in (1, 20):
        with disk_full(room), pytest.raises(OSError, match="too large"):
            ledger.add("a", SUMS, ["matrix"])
        assert "a" not in ledger
        assert len(DisclosureLedger(tmp_path / "disclosed")) == 0
    ledger.add("a", SUMS, ["matrix"])
    again = DisclosureLedger(tmp_path / "disclosed")
    assert "a" in again
    assert again.count("matrix") == 1
    assert np.array_equal(again.leverages(), ledger.leverages())
    assert again.leverages().sum() == pytest.approx(2)


def test_the_same_question_counts_once_and_the_same_array_is_kept_once(tmp_path: Path) -> None:
    ledger = DisclosureLedger(tmp_path)
    for key in ("a", "b", "a"):
        ledger.add(key, SUMS, ["matrix"])
    assert ledger.count("matrix") == 2
    assert ledger.leverages().sum() == pytest.approx(2)
    assert len(list(tmp_path.glob("*.npy"))) == 3


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
def test_a_site_does_not_start_while_a_part_of_its_ledger_cannot_be_read(
    federation: Federation, content: bytes
) -> None:
    assert asked_columns(federation).outcome == "answer"
    damaged = next((federation.folder / "kept a" / "disclosed").glob("*.json"))
    good = damaged.read_bytes()
    damaged.write_bytes(content)
    with pytest.raises(StateError, match=damaged.name):
        federation.start()
    damaged.write_bytes(good)
    federation.start()
    assert asked_columns(federation).outcome == "answer"


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


@pytest.mark.parametrize("content", [b"", b"half a li", b"{}", b"[]"])
def test_a_damaged_record_of_what_was_disclosed_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "000000.json").write_bytes(content)
    with pytest.raises(StateError, match=r"000000\.json: this record of what was disclosed"):
        DisclosureLedger(tmp_path)


@pytest.mark.parametrize("name", ["000000.json", "*.npy"])
def test_a_missing_part_of_what_was_disclosed_is_named(tmp_path: Path, name: str) -> None:
    ledger = DisclosureLedger(tmp_path)
    for key in ("a", "b"):
        ledger.add(key, SUMS)
    next(tmp_path.glob(name)).unlink()
    with pytest.raises(StateError, match="this record of what was disclosed is missing"):
        DisclosureLedger(tmp_path).leverages()


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
