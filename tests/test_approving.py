"""How owners decide about studies: at the terminal of the client, and by a command."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsplit.commands.app import run
from fedsplit.commands.client_view import View
from fedsplit.sites.events import Event
from fedsplit.sites.refusals import Refusals
from fedsplit.sites.studies.store import Studies
from owners import NAMES, Federation, with_tables

ASK = """
import sys, time
from pathlib import Path
from fedsplit.commands.approving import ask_at_terminal, has_terminal
assert has_terminal()
ask_at_terminal(Path(sys.argv[1]))
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


@pytest.mark.parametrize(("answer", "state"), [("yes", "approved"), ("No", "declined")])
def test_the_owner_is_asked_at_the_terminal(
    federation: Federation, answer: str, state: str
) -> None:
    study = federation.study()
    assert federation.propose(study).state == "pending"
    terminal = Terminal(kept(federation))
    try:
        terminal.until("Type yes or no: ")
        assert study.hash[:4] in terminal.seen
        assert "60 of 60 rows" in terminal.seen
        terminal.type("perhaps")
        terminal.until("Type yes or no: ", 2)
        assert federation.propose(study).state == "pending"
        terminal.type(answer)
        end = time.monotonic() + 60
        while federation.propose(study).state == "pending":
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        terminal.end()
    assert federation.propose(study).state == state


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
    assert capsys.readouterr().out == "no study waits\n"
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


def test_what_was_refused_is_shown_until_its_owner_has_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--folder", str(tmp_path)]
    assert run(["refusals", *folder]) == 0
    assert "nothing was refused" in capsys.readouterr().out
    Refusals(tmp_path).add("code", "ward = south in 1 row")
    assert run(["refusals", *folder]) == 0
    assert "code: ward = south in 1 row" in capsys.readouterr().out
    assert run(["refusals", "--clear", *folder]) == 0
    assert "answers again" in capsys.readouterr().out
    assert not Refusals(tmp_path).found()


def test_lines_say_what_happens_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = View("/kept", prompted=False)
    name = "0123456789abcdef" * 4
    view(Event("study", "pending", name))
    view(Event("answer", "code, 12 numbers", name, 2, 600, 20))
    view(Event("answer", "code, 12 numbers", name, 2, 600, 19))
    view(Event("refusal", "describe: 1 row\x1b[31m"))
    view(Event("end", "a table", name))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("waits for you: fedsplit approve --folder /kept shows it")
    assert "sent code, 12 numbers; question 2 of at most 600; 20 left" in lines[1]
    assert "only 20 more questions are answered" in lines[2]
    assert "19 left" in lines[3]
    assert "\x1b" not in lines[4]
    assert "has ended, with this result" in lines[5]
    assert "a table" in lines
