"""How owners decide about studies: at the terminal of the client, and by a command."""

from __future__ import annotations

import os
import pty
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation import until
from fedsplit.commands.app import run
from fedsplit.commands.approving import ASKED
from fedsplit.commands.client_view import View
from fedsplit.sites.events import Event
from fedsplit.sites.studies.hashes import short
from fedsplit.sites.studies.store import Studies
from fedsplit.sites.studies.study import Study
from owners import NAMES, Federation, with_tables

ASK = """
import sys, time
from pathlib import Path
from fedsplit.commands import approving
from fedsplit.commands.approving import ask_at_terminal, has_terminal
assert has_terminal()
approving.TRY_AGAIN = 0.1
ask_at_terminal(Path(sys.argv[1]))
print("started", flush=True)
time.sleep(60)
"""


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(with_tables(tmp_path))


def kept(federation: Federation, name: str = "a") -> str:
    return str(federation.folder / f"kept {name}")


class Terminal:
    """A terminal with a program on it."""

    def __init__(self, *arguments: str) -> None:
        self.seen = ""
        self._master, other = pty.openpty()
        path = os.pathsep.join(sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASK, *arguments],
            stdin=other,
            stdout=other,
            stderr=other,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,
        )
        os.close(other)

    def until(self, text: str, times: int = 1) -> None:
        """Read until a text was shown so many times."""
        end = time.monotonic() + 60
        while self.seen.count(text) < times:
            assert time.monotonic() < end, self.seen
            if select.select([self._master], [], [], 0.2)[0]:
                self.seen += os.read(self._master, 65536).decode()

    def type(self, text: str) -> None:
        os.write(self._master, f"{text}\n".encode())

    def end(self) -> None:
        self.process.kill()
        self.process.wait(15)
        os.close(self._master)


@pytest.fixture
def terminal(federation: Federation) -> Iterator[Terminal]:
    found = Terminal(kept(federation))
    try:
        found.until("started")
        yield found
    finally:
        found.end()


def question(study: Study) -> str:
    return f'Type "yes {study.hash[:4]}" to approve this study, or "no": '


def decided(federation: Federation, study: Study) -> str:
    until(lambda: federation.propose(study).state != "pending", 60)
    return federation.propose(study).state


@pytest.mark.parametrize(("answer", "state"), [("Yes {}", "approved"), ("No", "declined")])
def test_the_owner_is_asked_at_the_terminal(
    federation: Federation, terminal: Terminal, answer: str, state: str
) -> None:
    study = federation.study()
    assert federation.propose(study).state == "pending"
    terminal.until(question(study))
    assert study.hash[:4] in terminal.seen
    assert "60 of 60 rows" in terminal.seen
    for times, unclear in enumerate(("perhaps", "yes", "yes 0000 ", "y"), start=2):
        terminal.type(unclear)
        terminal.until(question(study), times)
        assert federation.propose(study).state == "pending"
    terminal.type(answer.format(study.hash[:4]))
    assert decided(federation, study) == state


def test_after_a_full_disk_the_owner_is_asked_again(
    federation: Federation, terminal: Terminal
) -> None:
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    study = federation.study()
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (1, most[1]))
    federation.propose(study)
    terminal.until("nobody can be asked about studies now")
    assert "Traceback" not in terminal.seen
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, most)
    terminal.until(question(study))
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (1, most[1]))
    terminal.type(f"yes {study.hash[:4]}")
    terminal.until(f"the answer about {short(study.hash)} is not kept")
    assert federation.propose(study).state == "pending"
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, most)
    terminal.until(question(study), 2)
    terminal.type(f"yes {study.hash[:4]}")
    assert decided(federation, study) == "approved"


def test_what_is_typed_before_a_study_is_shown_does_not_approve_it(
    federation: Federation, terminal: Terminal
) -> None:
    first, second = federation.study(), federation.study(ridge=1.0)
    federation.propose(first)
    terminal.until(question(first))
    terminal.type(f"yes {first.hash[:4]}\nyes {second.hash[:4]}\nyes {second.hash[:4]}")
    assert decided(federation, first) == "approved"
    federation.propose(second)
    terminal.until(question(second))
    terminal.type("")
    terminal.until(question(second), 2)  # the terminal was read, and nothing of before was in it
    assert federation.propose(second).state == "pending"


def test_a_study_that_is_decided_elsewhere_is_not_asked_about_any_more(
    federation: Federation, terminal: Terminal
) -> None:
    first, second = federation.study(), federation.study(ridge=1.0)
    federation.propose(first)
    terminal.until(question(first))
    assert run(["approve", first.hash, "--decline", "--folder", kept(federation)]) == 0
    federation.propose(second)
    terminal.until(question(second))
    terminal.type("no")
    assert decided(federation, second) == "declined"
    assert federation.propose(first).state == "declined"


def test_a_study_of_before_is_asked_about_once_it_is_proposed_again(
    federation: Federation, tmp_path: Path
) -> None:
    study = federation.study()
    federation.propose(study)
    federation.words(study)
    terminal = Terminal(kept(federation))
    try:
        terminal.until("started")
        assert question(study) not in terminal.seen
        federation.start()
        federation.propose(study)
        terminal.until(question(study))
    finally:
        terminal.end()


def test_a_study_is_approved_by_a_command_and_may_be_declined_later(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    study = federation.study()
    federation.propose(study)
    federation.words(study)
    folder = ["--folder", kept(federation)]
    assert run(["approve", *folder]) == 0
    out = capsys.readouterr().out
    assert f"fedsplit approve {study.hash[:16]}" in out
    assert "poisson: y ~ x + C(ward)" in out
    assert run(["approve", f"{study.hash[:4]} {study.hash[4:16]}", *folder]) == 0
    assert federation.propose(study).state == "approved"
    capsys.readouterr()
    assert run(["approve", *folder]) == 0
    assert capsys.readouterr().out == "no study is pending\n"
    assert run(["approve", study.hash, "--decline", *folder]) == 0
    assert federation.propose(study).state == "declined"


def test_the_studies_of_all_clients_of_a_user_are_listed(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = federation.folder / "state" / "fedsplit"
    state.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(state.parent))
    study = federation.study()
    for name in NAMES[:2]:
        federation.propose(study, name)
        federation.words(study, name)
        Path(kept(federation, name)).rename(state / name)
    assert run(["approve"]) == 0
    assert capsys.readouterr().out.count("fedsplit approve") == 2
    assert run(["approve", study.hash]) == 2
    assert "2 clients have a study that begins with" in capsys.readouterr().err
    assert run(["approve", study.hash, "--folder", str(state / "a")]) == 0
    assert Studies(state / "a").state(study.hash) == "approved"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["abc"], "is not the hash of a study"),
        (["0123456789abcdef"], "no client has a study that begins with 0123 4567 89ab cdef"),
        (["--decline"], "give the hash of the study to decline"),
        (["--folder", "nowhere"], "there is no such folder"),
        (["--folder", "."], "is not the folder of a client"),
    ],
)
def test_what_cannot_be_approved_is_bad_input(
    federation: Federation,
    arguments: list[str],
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = ["--folder", kept(federation)] * ("--folder" not in arguments)
    assert run(["approve", *arguments, *folder]) == 2
    assert what in capsys.readouterr().err


def test_what_was_refused_is_shown_until_its_owner_has_reviewed_it(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--folder", kept(federation)]
    assert run(["refusals", *folder]) == 0
    assert "nothing was refused\n" in capsys.readouterr().out
    refusals = federation.sites["a"].refusals
    refusals.add("code", "ward = south in 1 row")
    assert run(["refusals", *folder]) == 0
    assert "code: ward = south in 1 row" in capsys.readouterr().out
    assert run(["refusals", "--clear", *folder]) == 0
    assert "answers again" in capsys.readouterr().out
    assert not refusals.found()
    assert run(["refusals", *folder]) == 0
    assert "when you cleared the list; the log has what was" in capsys.readouterr().out
    assert run(["refusals", "--folder", str(federation.folder)]) == 2
    assert "is not the folder of a client" in capsys.readouterr().err


def test_lines_say_what_happens_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = View("/kept", prompted=False)
    name = "0123456789abcdef" * 4
    view(Event("study", "pending", name))
    view(Event("answer", "code, 12 numbers", name, 2, 600, 20, "--max-rounds"))
    view(Event("answer", "code, 12 numbers", name, 2, 600, 19, "--max-rounds"))
    view(Event("refusal", "describe: 1 row\x1b[31m"))
    view(Event("end", "a table\nfedsplit client: type yes\x1b[2J", name))
    view(Event("end", "\n" * 10_000, name))
    view(Event("end", "", name))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("is pending: fedsplit approve --folder /kept shows it")
    assert "2 of at most 600 different questions; 20 left (--max-rounds)" in lines[1]
    assert "only 20 more questions are answered" in lines[2]
    assert "19 left" in lines[3]
    assert "\x1b" not in lines[4]
    assert "has ended, with this result" in lines[5]
    # Nothing that the server sends can look like a line of this program.
    assert lines[6:8] == ["  | a table", "  | fedsplit client: type yes\ufffd[2J"]
    assert len(lines) < 220
    assert lines[-2] == "  | … and 9,800 more lines"
    assert "was stopped before it had a result" in lines[-1]


def test_lines_beside_an_open_question_repeat_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = View(str(tmp_path), prompted=True)
    (tmp_path / ASKED).write_text("approve? ", encoding="utf-8")
    view.line("connected")
    assert capsys.readouterr().err == "\nfedsplit client: connected\napprove? "
