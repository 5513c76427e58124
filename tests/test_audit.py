"""The log of a client is whole, its answers come out again, and nothing is answered without it."""

from __future__ import annotations

import json
import resource
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attacks.server import Server
from fedsplit.channels.channel import Reply
from fedsplit.channels.history import History
from fedsplit.clients.question import Answer
from fedsplit.commands.app import run
from fedsplit.regression.client import fitted as statistics
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.remote.messages import read_reply, write_reply
from fedsplit.sites.log.audit_log import digest, log_files
from fedsplit.sites.log.entries import summary
from fedsplit.sites.log.exchange_log import NOT_LOGGED
from fedsplit.sites.log.replay import distance
from fedsplit.sites.studies.study import Study
from owners import NAMES, Federation, survey, with_tables
from sum_questions import ask_calibration, calibration_in
from test_service import table

Entry = dict[str, object]


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(with_tables(tmp_path), "always")


def kept(federation: Federation, name: str = "a") -> Path:
    return federation.folder / f"kept {name}"


def entries(federation: Federation) -> list[Entry]:
    text = (kept(federation) / "questions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def rewrite(federation: Federation, found: list[Entry]) -> None:
    """A log with these entries, and a chain that suits them."""
    lines = []
    previous = "0" * 64
    for number, entry in enumerate(found, start=1):
        line = json.dumps(entry | {"number": number, "previous": previous}, ensure_ascii=False)
        previous = digest(line.encode())
        lines.append(line)
    text = "\n".join(lines) + "\n"
    (kept(federation) / "questions.jsonl").write_text(text, encoding="utf-8")


def fitted(federation: Federation, **settings: float) -> Study:
    study = federation.study(**settings)  # type: ignore[arg-type]  # settings of a fit
    federation.approve(study)
    federation.fit(study, **settings)
    return study


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"rules": Rules(matrices=False)},
        {"rules": Rules(True, 4, families=("poisson",), allowed=("*",), denied=("secret",))},
    ],
    ids=["matrices", "vectors", "policy"],
)
def test_every_answer_comes_out_again_bit_by_bit(
    tmp_path: Path, rules: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    federation = Federation(with_tables(tmp_path), "always", **rules)
    fitted(federation)
    federation.start()  # in a new process, from what is kept
    fitted(federation, ridge=0.5)
    for name in NAMES:
        assert run(["audit", str(kept(federation, name))]) == 0
        out = capsys.readouterr().out
        assert out.endswith("OK\n")
        answers = sum(
            entry["outcome"] == "answer" and entry["question"] not in ("hello", "propose")
            for entry in entries(federation)
        )
        assert f"{answers} answers reproduced, {answers} of them exactly" in out


def told_otherwise(found: list[Entry]) -> list[Entry]:
    """The point of one answer in the rounds is another."""
    [at, *_] = [k for k, entry in enumerate(found) if entry["question"] == "local_model"]
    reply = read_reply(b64decode(str(found[at]["reply"])), Answer, 0.0).value
    parts = reply.parts | {"point": np.nextafter(reply.parts["point"], np.inf)}
    message = write_reply(Reply("answer", reply._replace(parts=parts)))
    changed = found[at] | {"reply": b64encode(message).decode()}
    return [*found[:at], changed, *found[at + 1 :]]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (told_otherwise, "local_model: the answer is not reproduced"),
        (lambda found: found[:-2], "it was cut short"),
        (lambda found: [*found[:2], *found[3:]], "it was cut short"),
        (lambda found: [*found[:2], found[1], *found[2:]], "is not the one that the server knows"),
        (lambda found: [], "the log ends at line 0, but the server knows line"),
    ],
    ids=["an answer", "the end", "a line", "one more", "all"],
)
def test_a_log_that_is_changed_or_cut_and_chained_anew_is_noticed(
    federation: Federation,
    change: Callable[[list[Entry]], list[Entry]],
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    study = federation.study()
    federation.approve(study)
    head = federation.fit(study).run.logs["a"]
    assert run(["audit", str(kept(federation)), "--head", head]) == 0
    rewrite(federation, change(entries(federation)))
    assert run(["audit", str(kept(federation)), "--head", head]) == 1
    assert what in capsys.readouterr().out


def test_a_line_that_is_changed_is_named(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted(federation)
    path = kept(federation) / "questions.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1].replace("Z", "z").replace('"outcome": "answer"', '"outcome": "refused"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert run(["audit", str(kept(federation))]) == 1
    out = capsys.readouterr().out
    assert "line 3: it does not follow from the line before it: one of the two was changed" in out


def without(key: str) -> Callable[[Entry], Entry]:
    return lambda entry: {name: value for name, value in entry.items() if name != key}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda entry: entry | {"outcome": "refused", "sent": "nothing"}, "its outcome is not"),
        (lambda entry: entry | {"question": "hello"}, "its question is not"),
        (lambda entry: entry | {"study": "0" * 64}, "its study is not"),
        (lambda entry: entry | {"received_bytes": 1}, "its received_bytes is not"),
        (lambda entry: entry | {"sent_bytes": 1}, "its sent_bytes is not"),
        (lambda entry: entry | {"message": "é"}, "cannot be computed again"),
        (lambda entry: entry | {"settings": "0"}, "cannot be computed again"),
        (without("outcome"), "is not a line of this log"),
        (without("question"), "is not a line of this log"),
    ],
)
def test_what_the_last_line_says_is_compared_with_the_messages_in_it(
    federation: Federation,
    change: Callable[[Entry], Entry],
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    study = federation.study()
    federation.approve(study)
    federation.ask(survey(), study.hash)
    assert run(["audit", str(kept(federation))]) == 0
    assert "can be checked only with --head" in capsys.readouterr().out
    found = entries(federation)
    rewrite(federation, [*found[:-1], change(found[-1])])
    assert run(["audit", str(kept(federation))]) == 1
    assert what in capsys.readouterr().out


def test_a_log_goes_on_without_its_oldest_files(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    study = federation.study()
    federation.approve(study)
    federation.sites["a"]._record._log._largest = 1  # a file per line
    federation.fit(study)
    files = log_files(kept(federation) / "questions.jsonl")
    assert run(["audit", str(kept(federation))]) == 0
    for file in files[: len(files) - 2]:
        file.unlink()
    capsys.readouterr()
    assert run(["audit", str(kept(federation))]) == 0
    assert "earlier files were taken away; 2 answers cannot be" in capsys.readouterr().out


def test_a_study_that_is_gone_is_named_with_its_line(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    study = federation.study()
    federation.approve(study)
    federation.ask(survey(), study.hash)
    shutil.rmtree(kept(federation) / "studies" / study.hash)
    assert run(["audit", str(kept(federation))]) == 1
    assert "line 2, survey: cannot be computed again (the study" in capsys.readouterr().out


def test_refused_messages_that_were_shortened_are_no_fault_of_the_log(
    federation: Federation,
) -> None:
    federation.sites["a"].reply(b"code\n" + b"x" * 10_000)
    federation.sites["a"].reply(b"nonsense")
    federation.ask(survey(), "0" * 64)
    assert run(["audit", str(kept(federation))]) == 0


def test_answers_under_rules_are_computed_again_from_the_snapshot_that_gave_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = Federation(with_tables(tmp_path), "always", strict=True)
    fitted(federation)
    table(9, 200).assign(secret=1.0).to_csv(tmp_path / "a.csv", index=False)
    assert run(["audit", str(kept(federation))]) == 0
    shutil.rmtree(kept(federation) / "snapshots" / "000001")
    assert run(["audit", str(kept(federation))]) == 1
    assert "the snapshot 1 of the file is missing" in capsys.readouterr().out


def test_what_was_withheld_after_other_rules_is_no_fault_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(statistics, "MOST_CALIBRATIONS", 1)
    server = Server(tmp_path, Rules.strict(), 1)
    told = []
    for slope in (0.01, 0.02):
        key = server.settle(server.coding("ill ~ age", "logistic"), 2)
        counts = calibration_in(server.ask(ask_calibration(np.array([-0.5, slope])), key))
        told.append(bool(counts.rows.any()))
        server.rules = Rules(refuse=True, questions=5000)
        server.site = server.started()
    assert told == [True, False]
    assert run(["audit", str(server.folder)]) == 0, capsys.readouterr().out


def test_a_summary_of_a_set_is_the_same_in_every_process() -> None:
    names = [f"column {k}" for k in range(50)]
    assert summary(frozenset(names)) == summary(frozenset(reversed(names))) == sorted(names)


@pytest.mark.filterwarnings("error")
def test_an_answer_beside_zero_is_infinitely_far_away() -> None:
    assert distance(np.zeros(2), np.array([0.0, 1e-300])) == np.inf
    assert distance(np.full(2, 1e-300), np.full(2, 1e300)) == np.inf
    assert distance(np.ones(2), np.full(2, 1.5)) == 0.5


def test_without_rules_an_audit_says_that_the_file_has_changed(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted(federation)
    table(9, 200).assign(secret=1.0).to_csv(federation.folder / "a.csv", index=False)
    assert run(["audit", str(kept(federation))]) == 1
    assert "has changed since, and without rules no copy of it was kept" in capsys.readouterr().out


def test_answers_about_other_data_are_noticed(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted(federation)
    other = federation.folder / "other.csv"
    pd.read_csv(federation.folder / "a.csv").assign(x=lambda t: t.x + 1e-6).to_csv(other)
    assert run(["audit", str(kept(federation)), "--data", str(other)]) == 1
    out = capsys.readouterr().out
    assert "the answer is not reproduced" in out
    assert "other.csv the file of this client?" in out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nowhere"], "there is no such folder"),
        ([".", "--log", "none.jsonl"], "is not the folder of a client"),
        (["kept", "--log", "none.jsonl"], "there is no log"),
        (["kept", "--head", "x"], "--head must be a number"),
    ],
)
def test_what_cannot_be_audited_is_bad_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept" / "settings").mkdir(parents=True)
    (tmp_path / "kept" / "questions.jsonl").write_text("", encoding="utf-8")
    assert run(["audit", *arguments]) == 2
    assert what in capsys.readouterr().err


def test_without_room_for_the_log_nothing_is_answered_and_the_owner_is_told(
    federation: Federation,
) -> None:
    study = federation.study()
    federation.approve(study)
    log = kept(federation) / "questions.jsonl"
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 200, most))
    try:
        reply = federation.ask(survey(), study.hash)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert reply.outcome == "failed"
    assert reply.text == NOT_LOGGED
    assert federation.seen[-1].kind == "trouble"
    assert "File too large" in federation.seen[-1].text
    assert federation.ask(survey(), study.hash).outcome == "answer"
    assert run(["audit", str(kept(federation))]) == 0


@pytest.mark.parametrize("room", [1, 150, 300, 600, 1200])
def test_a_full_disk_says_nothing_that_is_not_counted(tmp_path: Path, room: int) -> None:
    with_tables(tmp_path)
    frame = table(0).assign(secret=1.0)
    frame.loc[0, "ward"] = "south"
    frame.to_csv(tmp_path / "a.csv", index=False)
    federation = Federation(tmp_path, "always", strict=True)
    study = federation.study()
    federation.approve(study)
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    try:
        replies = [federation.ask(survey(name=name), study.hash, name=name) for name in ("a", "b")]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    refused, answered = replies
    assert (answered.outcome, answered.text) == ("failed", NOT_LOGGED)
    assert (refused.outcome, refused.text) == ("failed", NOT_LOGGED)
    # With room for its count the question was computed, and its refusal is known even so.
    assert bool(federation.sites["a"].refusals.found()) == (room > 1)
    assert not federation.sites["b"].refusals.found()


def test_a_terminal_that_is_gone_changes_no_answer(tmp_path: Path) -> None:
    def gone(event: object) -> None:
        raise BrokenPipeError

    federation = Federation(with_tables(tmp_path), "always")
    federation.watch = gone
    federation.start()
    study = federation.study()
    federation.approve(study)
    assert federation.ask(survey(), study.hash).outcome == "answer"


def test_a_log_that_is_shorter_than_before_is_an_incident_at_the_server(
    federation: Federation,
) -> None:
    study = federation.study()
    federation.approve(study)
    model = federation.fit(study)
    number, _, head = model.run.logs["a"].partition(":")
    assert int(number) == len(entries(federation))
    assert not model.run.incidents
    history = History()
    for line in (7, 8, 3):
        history.note_log("a", f"{line}:{head}")
    history.note_log("a", "nonsense")
    [incident] = history.incidents
    assert incident.what == "its log was cut short: line 3 came after line 8"


def test_the_log_holds_whole_questions_and_answers_for_its_owner_alone(
    federation: Federation,
) -> None:
    fitted(federation)
    path = kept(federation) / "questions.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    for entry in entries(federation):
        assert len(b64decode(str(entry["message"]))) == entry["received_bytes"]
        assert len(b64decode(str(entry["reply"]))) == entry["sent_bytes"]
