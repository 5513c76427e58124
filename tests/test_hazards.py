"""What a machine does to the record of a site: one line each, and nothing is answered twice."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from carried import Ends, Once
from fedsplit.errors import InputError, StateError, TooFewClients
from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.database import Database
from fedsplit.federation.messages import Inquiry, Proposal, read_response
from fedsplit.federation.site.record import Record
from fedsplit.federation.site.site import Site
from fedsplit.federation.transport import Arrivals
from fedsplit.federation.transport.direct import DirectTransport
from fedsplit.testing import Federation
from test_malicious import AT_ONCE, Watched, noon, outcome, sent_in
from test_site_and_coordinator import made, study_of

DAY = 86400.0


def one_line_of(work: Callable[[], object]) -> str:
    with pytest.raises(InputError) as error:
        work()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_system_without_shared_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def without_memory(path: Path, **settings: Any) -> sqlite3.Connection:
        # as on a network file system: locks are files, and processes share no memory
        found: sqlite3.Connection = connect(f"file:{path}?vfs=unix-dotfile", uri=True, **settings)
        return found

    federation = made(tmp_path)
    monkeypatch.setattr(sqlite3, "connect", without_memory)
    line = one_line_of(lambda: federation.site("north"))
    assert line.endswith("site.db: is on a file system without shared memory: use a local disk")


def test_a_second_process_takes_turns_and_counts_no_question_twice(tmp_path: Path) -> None:
    _, _, sent = sent_in(tmp_path / "whole")
    federation = made(tmp_path / "again")
    first, second = (federation.site("north", clock=noon) for _ in range(2))
    for messages in sent[:-1]:
        for name in ("south", "west"):
            assert outcome(federation, name, messages[name]).outcome == "answer"
        replies = [first.reply(messages["north"]), second.reply(messages["north"])]
        assert replies[0] == replies[1]
        first, second = second, first
    assert first.record.count("answer") == len(sent) - 2
    # one that holds the database is waited for, and then named
    other = sqlite3.connect(first.record.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    lines: list[str] = []
    first.watch = lines.append
    first.record.execute("PRAGMA busy_timeout = 20")
    assert outcome_of(federation, first, sent[1]["north"]).outcome == "failed"
    assert lines == [
        f"nothing is answered: {first.record.path}: cannot be used (database is locked)"
    ]
    other.execute("ROLLBACK")
    assert first.reply(sent[1]["north"]) is not None


def outcome_of(federation: Federation, site: Any, message: bytes) -> Any:
    return read_response(bytes.fromhex(federation.members[site.policy.name]), site.reply(message))


def test_read_only_media_are_named_and_nothing_is_answered(tmp_path: Path) -> None:
    # no permission stops root: another user tries
    folder = tmp_path if os.geteuid() else Path(tempfile.mkdtemp())
    try:
        Record(folder / "site.db", {}, time.time).close()
        (folder / "site.db").chmod(0o444)
        folder.chmod(0o555)
        read, write = os.pipe()
        if not (child := os.fork()):
            try:
                if not os.geteuid():
                    os.setuid(65534)
                for name in ("site.db", "new.db"):
                    try:
                        Record(folder / name, {}, time.time)
                    except StateError as error:
                        os.write(write, f"{error}\n".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as lines:
            first, second = lines.read().splitlines()
        assert first.startswith(f"{folder}/site.db: cannot be used (")
        assert second == f"{folder}/new.db: cannot be used (Permission denied)"
    finally:
        folder.chmod(0o755)
        if folder != tmp_path:
            shutil.rmtree(folder)


def test_a_lost_write_ahead_log_is_an_old_database_and_never_a_new_one(tmp_path: Path) -> None:
    federation = made(tmp_path / "made")
    study = study_of(federation, "open")
    transport = Watched(federation)
    site, copy = federation.folder / "north", tmp_path / "site.db"
    found = federation.coordinator(transport).run(study)
    assert isinstance(found, StudyResult)
    shutil.copy(site / "site.db", copy)  # without what only its log has
    assert sqlite3.connect(copy).execute("PRAGMA user_version").fetchone() == (2,)
    copy.with_name("site.db-wal").unlink(missing_ok=True)
    for path in site.glob("site.db*"):
        path.unlink()
    shutil.copy(copy, site / "site.db")
    assert federation.site("north").record.scalar("PRAGMA user_version") == 2
    last = found.heads["north"]
    inquiry = Inquiry(study.digest, 99, b"", head=last)
    response = outcome(federation, "north", inquiry)
    assert response.outcome in ("failed", "refused")
    assert not response.value


def test_a_folder_whose_record_is_missing_is_not_begun_anew(tmp_path: Path) -> None:
    federation, _, _ = sent_in(tmp_path)
    site = federation.folder / "north"
    for path in site.glob("site.db*"):
        path.unlink()
    for empty in (False, True):
        if empty:
            (site / "site.db").touch()
        line = one_line_of(lambda: federation.site("north"))
        assert line.startswith(f"{site}/site.db: is missing")


def test_a_clock_that_is_set_back_lengthens_no_approval_and_no_day(tmp_path: Path) -> None:
    federation = made(tmp_path, approved_days=2)
    lines: list[str] = []
    clock = [1e9]
    moves = {3: 1.5 * DAY, 4: -10 * DAY, 6: 10.6 * DAY}  # before these exchanges

    class Moving(DirectTransport):
        exchanges = 0

        def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
            clock[0] += moves.get(self.exchanges, 0.0)
            self.exchanges += 1
            if self.exchanges == 6:  # a restart makes no difference
                self._sites["north"] = site("north").reply
            return super().exchange(messages, seconds, largest)

    def site(name: str) -> Site:
        watch = lines.append if name == "north" else len
        return federation.site(name, watch=watch, clock=lambda: clock[0])

    transport = Moving({name: site(name).reply for name in federation.names})
    with pytest.raises(InputError, match="the approval of the study has ended"):
        federation.coordinator(transport).run(study_of(federation, "secure"))
    assert transport.exchanges == 7
    said = "the clock was set back by more than a day: time goes on from the log's last"
    assert [line for line in lines if "set back" in line] == [said, said]  # once by each process


def test_a_restart_resets_no_budget(tmp_path: Path) -> None:
    _, _, sent = sent_in(tmp_path / "whole")
    federation = made(tmp_path / "again", questions_per_day=2)
    found = [
        [outcome(federation, name, messages[name]).reason for name in federation.names]
        for messages in sent[:4]  # every message finds a site that has just begun
    ]
    assert found[:3] == [[""] * 3] * 3
    assert all("questions_per_day" in each for each in found[3])


def test_an_old_and_a_later_site_db_are_upgraded_or_refused_untouched(tmp_path: Path) -> None:
    record = Record(tmp_path / "site.db", {}, time.time)
    record.execute("PRAGMA user_version = 7")
    record.close()
    before = (tmp_path / "site.db").read_bytes()
    line = one_line_of(lambda: Record(tmp_path / "site.db", {}, time.time))
    assert "has version 7, this fedsplit reads version 2: use the fedsplit that wrote it" in line
    assert (tmp_path / "site.db").read_bytes() == before


@pytest.mark.parametrize("mode", ["open", "secure"])
def test_a_site_that_was_upgraded_says_which_version_finishes_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    federation = made(tmp_path)
    study = study_of(federation, mode)
    with suppress(Ends):
        federation.coordinator(Once(federation.direct(), 3)).run(study)
    before, now = study.dialogue, study.dialogue + 1
    line = f"the study speaks version {before} of the dialogue, fedsplit .* here version {now}: "
    with monkeypatch.context() as upgraded:
        upgraded.setattr("fedsplit.federation.study.DIALOGUE", now)
        with pytest.raises(TooFewClients, match=f"north.*{line}"):
            federation.coordinator(federation.direct(), patience=AT_ONCE).run(study)
        site = federation.site("north")
        assert re.match(f"for you: {line}", site.status().studies[0].waits)
        assert not site.record.count("refused")  # nobody is guilty of it
        another = study_of(federation, mode, title="another").content
        response = outcome(federation, "north", Proposal(another))
        assert response.outcome == "refused"
        assert re.search(line, response.reason)
    assert isinstance(federation.run(study), StudyResult)


def test_an_answer_is_one_fsync_at_a_site(tmp_path: Path) -> None:
    """Counted by the system: each durable commit of SQLite is one fsync of the write-ahead log."""
    _, _, sent = sent_in(tmp_path / "whole")
    again = made(tmp_path / "again")
    site = again.site("north", clock=noon)
    commits: list[str] = []
    execute = Database.execute

    def counted(self: Database, statement: str, *values: Any) -> Any:
        if statement == "COMMIT" and self.scalar("PRAGMA synchronous") == 2:
            commits.append(self.path.name)
        return execute(self, statement, *values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "execute", counted)
        for messages in sent[:5]:
            for name in ("south", "west"):
                outcome(again, name, messages[name])
            commits.clear()
            site.reply(messages["north"])
            assert commits == ["site.db"]
    kinds = {path.suffix or path.name for path in (again.folder / "north").rglob("*")}
    assert {"site.db", "disclosed.db"} <= {p.name for p in (again.folder / "north").iterdir()}
    assert kinds <= {".csv", "copies", ".db", ".db-wal", ".db-shm"}
