"""The log of a client: a chain of lines that cannot be changed, cut or left unwritten unnoticed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedsplit.channels.channel import Reply
from fedsplit.errors import InputError
from fedsplit.sites.log.audit_log import AuditLog, NotLogged, log_files, read_log
from fedsplit.sites.log.entries import Exchange, entry_of


def written(path: Path, number: int = 5, largest: int = 2**20) -> AuditLog:
    log = AuditLog(path, largest)
    for k in range(number):
        log.append({"k": k, "text": "é" * 20})
    return log


def test_each_line_has_the_hash_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    log = written(path)
    entries = list(read_log(path))
    assert [entry["number"] for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry["previous"] for entry in entries[1:]] == [entry["hash"] for entry in entries[:-1]]
    assert log.head == (5, entries[-1]["hash"])
    assert path.stat().st_mode & 0o777 == 0o600
    again = written(path, 2)
    assert again.head.number == 7
    assert len(list(read_log(path))) == 7


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda lines: [lines[0], lines[1].replace('"k": 1', '"k": 7'), *lines[2:]], "line 3"),
        (lambda lines: [lines[0], *lines[2:]], "it has the number 3, after 1"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 2"),
        (lambda lines: [*lines[:2], "nonsense", *lines[3:]], "line 3: is not a line"),
        (lambda lines: [*lines, lines[-1]], "it has the number 5, after 5"),
        (lambda lines: [*lines, json.dumps({"number": 6, "previous": "0"})], "does not follow"),
    ],
)
def test_the_first_bad_line_is_named(tmp_path: Path, damage: object, what: str) -> None:
    path = tmp_path / "questions.jsonl"
    written(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(damage(lines)) + "\n", encoding="utf-8")  # type: ignore[operator]  # a function
    with pytest.raises(InputError, match=what):
        list(read_log(path))


def test_a_long_log_goes_on_in_other_files_with_the_same_chain(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    log = written(path, 20, largest=700)
    assert len(log_files(path)) > 3
    entries = list(read_log(path))
    assert [entry["number"] for entry in entries] == list(range(1, 21))
    assert written(path, 1, largest=700).head.number == 21
    assert log.head.hash == entries[-1]["hash"]
    log_files(path)[0].unlink()  # archived elsewhere
    assert next(read_log(path))["number"] > 1
    log_files(path)[1].unlink()
    with pytest.raises(InputError, match="it has the number"):
        list(read_log(path))


def test_a_line_that_a_crash_left_incomplete_at_any_byte_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    head = written(path).head
    whole = path.read_bytes()
    AuditLog(path).append({"k": 5})
    line = path.read_bytes()[len(whole) :]
    for at in range(len(line)):
        path.write_bytes(whole + line[:at])
        assert len(list(read_log(path))) == 5
        assert AuditLog(path).head == head
        assert path.read_bytes() == whole


def test_a_log_that_is_continued_while_it_is_read_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    log = written(path, 3, largest=1)
    numbers = []
    for entry in read_log(path):
        numbers.append(entry["number"])
        log.append({"k": 9})
    assert numbers == [1, 2, 3]


def test_two_clients_do_not_write_to_the_same_log(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    holds = (
        "import sys; from pathlib import Path; from fedsplit.sites.log.audit_log import AuditLog"
    )
    script = f"{holds}; log = AuditLog(Path(sys.argv[1])); print('held', flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="another client writes to it"):
            AuditLog(path)
    finally:
        other.communicate(b"\n", 15)
    AuditLog(path)


def test_a_full_disk_leaves_whole_lines_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    log = written(path)
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, most))
    try:
        with pytest.raises(NotLogged, match="cannot be written"):
            log.append({"k": 5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert len(list(read_log(path))) == 5
    assert log.append({"k": 5}).number == 6
    assert len(list(read_log(path))) == 6


def test_a_log_of_an_earlier_version_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"time": "2026-01-01", "question": "hello"}\n', encoding="utf-8")
    written(path, 1)
    assert len(list(read_log(path))) == 1
    assert (tmp_path / "questions.unchained.jsonl").exists()


@pytest.mark.parametrize("content", ["age,ward\n51,a\n52,b", "notes", '{"a": 1}\n'])
def test_a_file_that_is_no_log_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "my.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="is not a log of a client"):
        AuditLog(path)
    assert path.read_text(encoding="utf-8") == content


def test_a_second_log_of_an_earlier_version_does_not_take_the_place_of_the_first(
    tmp_path: Path,
) -> None:
    path = tmp_path / "questions.jsonl"
    aside = tmp_path / "questions.unchained.jsonl"
    for each in (path, aside):
        each.write_text('{"time": "2026-01-01"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="move one away"):
        AuditLog(path)
    assert aside.exists()


def test_an_earlier_file_without_its_last_line_break_is_named(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    log = AuditLog(path, largest=1)
    for k in range(4):
        log.append({"k": k})
    first = log_files(path)[0]
    first.write_bytes(first.read_bytes().rstrip(b"\n"))
    with pytest.raises(InputError, match="it was cut off"):
        list(read_log(path))


def test_the_hash_of_a_line_says_nothing_about_the_rows_to_those_who_guess_it() -> None:
    exchange = Exchange(None, b"", Reply("failed"))
    salts = [entry_of(exchange, b"")["salt"] for _ in range(2)]
    assert salts[0] != salts[1]
    assert len(salts[0]) == 32
