"""``fedsplit site``: an owner's folder, decisions from what the screen says, and bad input."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.commands.site import _ask_about
from fedsplit.federation import authority
from fedsplit.federation.keys import in_groups
from fedsplit.federation.messages import Proposal, write_message
from fedsplit.federation.transport.direct import DirectTransport
from test_site_and_coordinator import TABLES

HOST = "127.0.0.1"

STUDY = """
[study]
title = "Visits by region"
purpose = "Planning of wards"
contact = "A. Berg, +49 30 1234"
until = "2099-01-31"
[model]
formula = "visits ~ age + smoker + C(region)"
family = "poisson"
[model.types]
visits = "number"
age = "number"
smoker = "number"
region = "text"
[model.levels]
region = ["centre", "east", "north", "west"]
"""


class Owners:
    """A coordinator's folder, and the folders of three owners."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hub = root / "hub"
        authority.create(self.hub, [HOST], 2)
        for name, table in TABLES.items():
            table.to_csv(root / f"{name}.csv", index=False)
            pem = authority.sign(self.hub, name, authority.request(root / name, name), 2)
            (root / f"{name}.pem").write_bytes(pem)
        (self.hub / "visits.toml").write_text(STUDY, encoding="utf-8")

    def init(self, *names: str, url: str = "") -> None:
        for name in names or TABLES:
            data = ["--data", f"{name}.csv", *(["--url", url] if url else [])]
            assert run(["site", "init", name, f"{name}.pem", *data]) == 0

    def site(self, name: str) -> fs.Site:
        return fs.Site.open(name, self.root / "state" / "fedsplit" / "disclosed.db")

    def coordinator(self, transport: Any = None, **settings: Any) -> fs.Coordinator:
        return fs.Coordinator.open(self.hub, transport, **settings)

    def propose(self) -> str:
        """Propose the study to all sites, and return its hash."""
        study = self.coordinator().study("visits.toml")
        key = authority.read_key(self.hub / "coordinator.key")
        for name in TABLES:
            self.site(name).reply(write_message(key, Proposal(study.content)))
        return study.hash

    def run(self) -> fs.StudyResult | fs.Interruption:
        sites = {name: self.site(name).reply for name in TABLES}
        coordinator = self.coordinator(DirectTransport(sites))
        return coordinator.run(coordinator.study("visits.toml"))


@pytest.fixture
def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Owners:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Owners(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    """What a command prints, which fits on a terminal."""
    capsys.readouterr()
    assert run(["site", *words]) == status
    out = capsys.readouterr().out
    assert not [line for line in out.split("\n") if len(line) > 80 and "/" not in line]
    return out


# ---------------------------------------------------------------------- the commands


def test_a_folder_is_completed_and_every_key_is_in_it(
    owners: Owners, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "least_rows=20", "--set", 'families=["poisson"]', "--set", "decimal=,"]
    said(capsys, "init", "north", "north.pem", "--data", "north.csv", *settings)
    policy = owners.site("north").policy
    assert (policy.name, policy.least_rows, policy.decimal) == ("north", 20, ",")
    assert policy.families == ["poisson"]
    assert policy.data == str(owners.root / "north.csv")
    text = (owners.root / "north" / "site.toml").read_text(encoding="utf-8")
    assert "# approve = " in text
    # a renewed certificate is accepted, and the file is kept
    Path("new.pem").write_bytes(authority.renew(owners.hub, "north", days=1))
    said(capsys, "init", "north", "new.pem")
    assert (owners.root / "north" / "site.toml").read_text(encoding="utf-8") == text


def test_a_partners_key_may_be_in_the_groups_in_which_it_is_shown(
    owners: Owners, capsys: pytest.CaptureFixture[str]
) -> None:
    key = next(each.key for each in authority.members(owners.hub) if each.name == "south")
    partners = f'partners={{south = "{in_groups(key).upper()}"}}'
    said(capsys, "init", "north", "north.pem", "--data", "north.csv", "--set", partners)
    assert owners.site("north").policy.partners == {"south": key.hex()}


def test_an_owner_decides_from_what_the_screen_says(
    owners: Owners, capsys: pytest.CaptureFixture[str]
) -> None:
    owners.init()
    columns = said(capsys, "check", "north")
    assert re.search(r"region +text: east 28, north 25, west 27", columns)
    assert "no study waits for you" in said(capsys, "approve", "north")
    digits = owners.propose()
    shown = said(capsys, "approve", "north")
    for what in (
        f"study {digits}",
        "Visits by region",
        "Planning of wards",
        "A. Berg, +49 30 1234",
        "poisson: visits ~ age + smoker + C(region)",
        "east 28, north 25, west 27; no row here has centre",
        "80 of 80 here have a value in all of them",
        "the coordinator and every member see the sums over all members",
        "at most 40 questions are answered",
        "NEW, compare this key with them by telephone",
        "2099-01-31, and 30 days after you approve it",
        "all 7 questions would be answered, by your rows and rules alone",
    ):
        assert what in " ".join(shown.split()), what
    [command] = re.findall(r"fedsplit site (approve .*)", shown)
    assert "is approved" in said(capsys, *command.split())
    for name in ("south", "west"):
        said(capsys, "approve", name, digits[:8])
    assert "waits for the coordinator" in said(capsys, "status", "north")
    found = owners.run()
    assert isinstance(found, fs.StudyResult)
    assert "ended, 7 questions answered" in said(capsys, "status", "north")
    log = said(capsys, "log", "north")
    for what in ("proposed", "approved", "joined", "answer 1", "survey", "answer 7", "ended"):
        assert what in log
    capsys.readouterr()
    assert run(["site", "log", "north", "--json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["number"] for each in entries] == list(range(1, 12))
    assert entries[9]["hash"] == found.heads["north"].hash.hex()
    head = f"{found.heads['north'].number}:{found.heads['north'].hash.hex()}"
    assert said(capsys, "audit", "north", "--head", head).endswith("OK\n")
    other = f"{found.heads['north'].number}:{found.heads['south'].hash.hex()}"
    assert "is not the one that others have" in said(
        capsys, "audit", "north", "--head", other, status=1
    )


def test_a_study_that_would_be_refused_is_said_before_approval(
    owners: Owners, capsys: pytest.CaptureFixture[str]
) -> None:
    TABLES["north"].head(5).to_csv("north.csv", index=False)
    owners.init()
    digits = owners.propose()
    shown = said(capsys, "check", "north", digits, status=1)
    assert "REFUSED: question 1 would not be answered" in " ".join(shown.split())
    said(capsys, "approve", "north", digits, status=2)
    assert "waits for your decision" in said(capsys, "status", "north")
    said(capsys, "decline", "north", digits, "--reason", "too few rows")
    assert "declined      too few rows" in said(capsys, "log", "north")
    assert "nothing was refused" in said(capsys, "resume", "north")


def test_a_changed_policy_holds_at_once_and_a_broken_one_does_not(owners: Owners) -> None:
    owners.init()
    lines: list[str] = []
    site = fs.Site.open("north", owners.root / "other.db", watch=lines.append)
    path = Path("north/site.toml")
    text = path.read_text(encoding="utf-8")
    study = owners.coordinator().study("visits.toml")
    key = authority.read_key(owners.hub / "coordinator.key")
    message = write_message(key, Proposal(study.content))
    path.write_text(text.replace("# least_sites = 3", "least_sites = 4"), encoding="utf-8")
    site.reply(message)
    assert any("declined: least_sites" in line for line in lines)
    path.write_text(text.replace("# least_sites = 3", "least_sites = none"), encoding="utf-8")
    for _ in range(2):
        site.reply(message)
    assert site.policy.least_sites == 4
    assert sum("the policy of before holds on" in line for line in lines) == 1


def test_a_study_by_files_is_answered_and_ended(
    owners: Owners, capsys: pytest.CaptureFixture[str]
) -> None:
    owners.init()
    transport = fs.FileTransport.open(Path("post"), owners.hub)
    coordinator = owners.coordinator(transport)
    study = coordinator.study("visits.toml")
    for step in range(12):
        found = coordinator.run(study)
        for name in TABLES:
            status = run(["site", "answer", name, f"post/{name}"])
            if step == 0:
                assert status == 1
                assert f"fedsplit site approve {name}" in capsys.readouterr().out
                said(capsys, "approve", name, study.hash)
                status = run(["site", "answer", name, f"post/{name}"])
            assert status == 0
        if isinstance(found, fs.StudyResult):
            break
    assert isinstance(found, fs.StudyResult)
    assert "ended, 7 questions" in said(capsys, "status", "west")
    # what is not masked yet is in the site's own folder, and not where files are carried from
    assert {path.suffix for path in Path("post/west").iterdir()} == {".question", ".answer"}
    texts = [path.read_text(encoding="utf-8") for path in Path("west/answers").glob("*.txt")]
    assert sum("before it is masked" in text for text in texts) == 7
    [last] = [text for text in texts if "poisson regression" in text]
    assert "coef" in last


def broken(owners: Owners) -> None:
    """Spoil what the commands below need."""
    Path("empty").mkdir()
    Path("damaged.pem").write_text("no certificate", encoding="utf-8")
    Path("old").mkdir(mode=0o700)
    Path("old/questions.jsonl").touch()
    Path("west/site.toml").write_text('name = "west"\nleast_row = 3\n', encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("init nowhere north.pem --data north.csv", "nowhere: is not the folder of a site"),
        ("init old north.pem --data north.csv", "old: belongs to an earlier fedsplit"),
        ("init south nothing.pem --data south.csv", "nothing.pem: cannot be read"),
        ("init south damaged.pem --data south.csv", "damaged.pem: these are not the three"),
        ("init south north.pem --data south.csv", "north.pem: the certificate that was sent"),
        ("init south south.pem", "site.toml: is not there yet: say which rows"),
        ("init south south.pem --data nothing.csv", "nothing.csv"),
        ("init south south.pem --data *.csv", "a site has one file, this names 3"),
        ("init south south.pem --data south.csv --set least_row=3", "did you mean least_rows"),
        ("init south south.pem --data south.csv --set least_rows=x", "least_rows: expected `int`"),
        ("init south south.pem --data south.csv --set least_rows=0", "least_rows: expected"),
        ("init north north.pem --data south.csv", "north/site.toml: is there already"),
        ("init south south.pem --data south.csv --set rules=lax", "'lax' is none of refuse, warn"),
        ("init south south.pem --data south.csv --set questions_per_day=-1", "`int` >= 0"),
        ("init south south.pem --data south.csv --set name=x", "it is given by the certificate"),
        ("init south south.pem --data south.csv --set data=x", "it is given by --data"),
        ("init south south.pem --data south.csv --set na=. --set na=x", "a key is given twice"),
        ("init south south.pem --data south.csv --url http://a:1", "http://a:1: use https://"),
        ("init south south.pem --data south.csv --url localhost:1", "give https://HOST:PORT"),
        ("init north", "Missing argument 'CERTIFICATE'"),
        ("start north", "server: where is the coordinator?"),
        ("start north --proxy ftp://x", "server: where is"),
        ("start empty", "empty: is not the folder of a site"),
        ("start old", "old: belongs to an earlier fedsplit"),
        ("start south", "south/site.toml: is not there yet: fedsplit site init writes it"),
        ("start west", "did you mean least_rows"),
        ("answer north nowhere", "nowhere: there is no such folder"),
        ("answer north north.csv", "north.csv: there is no such folder"),
        ("answer empty empty", "empty: is not the folder of a site"),
        ("check empty", "empty: is not the folder of a site"),
        ("check north 12345678", "'12345678' is no study of north"),
        ("approve north 1234", "'1234' is no study of north"),
        ("approve north 00000000", "'00000000' is no study of north"),
        ("approve west", "did you mean least_rows"),
        ("decline north", "Missing argument 'HASH'"),
        ("decline north zzzzzzzz", "'zzzzzzzz' is no study of north"),
        ("resume nowhere", "nowhere: is not the folder of a site"),
        ("status nowhere", "nowhere: is not the folder of a site"),
        ("log nowhere", "nowhere: is not the folder of a site"),
        ("audit north --head 7", "--head 7: give a number, a colon and 64"),
        ("audit north --head x:12", "--head x:12: give a number"),
        ("audit nowhere", "nowhere: is not the folder of a site"),
        ("aprove north", "aprove"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    owners: Owners, capsys: pytest.CaptureFixture[str], words: str, what: str
) -> None:
    owners.init("north")
    authority.accept(owners.root / "west", Path("west.pem").read_bytes())
    broken(owners)
    owners.site("north").check()
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(["site", *words.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    [line] = shown.err.splitlines()
    assert line.startswith("fedsplit: error: ")
    assert what in line
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert {path for path in after if ".db" not in path.name} == {
        path for path in before if ".db" not in path.name
    }
    assert all(after[path] == content for path, content in before.items() if ".db" not in str(path))


def test_a_folder_that_others_can_read_and_a_key_of_another_coordinator_are_refused(
    owners: Owners, capsys: pytest.CaptureFixture[str]
) -> None:
    owners.init("north", "south")
    Path("north").chmod(0o755)
    assert run(["site", "status", "north"]) == 2
    assert "other users of this machine may read it" in capsys.readouterr().err
    text = Path("south/site.toml").read_text(encoding="utf-8")
    changed = re.sub(r'coordinator = "..', 'coordinator = "00', text)
    Path("south/site.toml").write_text(changed, encoding="utf-8")
    assert run(["site", "status", "south"]) == 2
    assert "is another key than that of coordinator.crt" in capsys.readouterr().err


def typed(monkeypatch: pytest.MonkeyPatch, *answers: Callable[[], str]) -> list[str]:
    """Have an owner type at the terminal; what is shown there."""
    rest = iter(answers)
    shown: list[str] = []
    monkeypatch.setattr("builtins.input", lambda: next(rest)())
    monkeypatch.setattr("fedsplit.commands.site.say", shown.append)
    monkeypatch.setattr(
        "fedsplit.commands.site.print_error", lambda error: shown.append(f"{error}")
    )
    return shown


def test_a_study_that_was_decided_elsewhere_is_not_decided_again(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners.init()
    digits = owners.propose()

    def elsewhere() -> str:
        owners.site("north").approve(digits)
        return "no"

    shown = typed(monkeypatch, elsewhere)
    [study] = owners.site("north").waiting()
    _ask_about(owners.site("north"), study)
    assert shown == [f"study {digits[:8]} was decided elsewhere"]
    assert owners.site("north").studies()[0].decision == "approved"


def test_after_a_full_disk_the_owner_is_asked_again(
    owners: Owners, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    owners.init()
    digits = owners.propose()
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, most))
        return f"yes {digits[:4]}"

    def mended() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        return f"YES {digits[:4]}"

    try:
        shown = typed(monkeypatch, lambda: "yes", lambda: "y", lambda: "yes 0000", full, mended)
        [study] = owners.site("north").waiting()
        _ask_about(owners.site("north"), study)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert capsys.readouterr().out.count(f'Type "yes {digits[:4]}" to approve') == 5
    first, second = shown
    assert first == "north/copies: the rows cannot be copied (File too large)"
    assert second == f"study {digits[:8]} is approved, and waits for the other sites"


# ---------------------------------------------------------------------- processes


def started(name: str, terminal: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fedsplit", "site", "start", name]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "80"}
    with Path(f"{name}.txt").open("ab") as errors:
        return subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=errors, env=environment
        )


def until(true: Any, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for each in found:
        if each.poll() is None:
            each.kill()
        each.wait(30)


@pytest.mark.slow
def test_a_study_is_decided_at_a_terminal_and_survives_kills_of_a_site(
    owners: Owners,
    processes: list[subprocess.Popen[bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pty = pytest.importorskip("pty")
    with fs.HttpsTransport(owners.hub, HOST, 0) as transport:
        owners.init(url=f"https://{HOST}:{transport.port}")
        coordinator = owners.coordinator(transport, wait=60.0)
        study = coordinator.study("visits.toml")
        outcome: list[Any] = []
        running = threading.Thread(
            target=lambda: outcome.append(coordinator.run(study)), daemon=True
        )
        running.start()
        master, terminal = pty.openpty()
        processes += [started("north", terminal), started("south"), started("west")]
        assert "all 7 questions" in read_until(master, b'or "no":')
        os.write(master, f"yes 0000\nyes {study.hash[:4]}\n".encode())
        west = Path("west.txt")
        until(lambda: "fedsplit site approve west" in west.read_text())
        processes[2].kill()  # approved while nobody answers, and goes on without a question
        said(capsys, "approve", "west", study.hash)
        said(capsys, "approve", "south", study.hash)
        processes.append(started("west"))
        running.join(60)
        [found] = outcome
        assert isinstance(found, fs.StudyResult)
        assert found.questions == 7
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(30) == 143
        # a site whose key was revoked says so, and a supervisor need not try again soon
        authority.revoke(owners.hub, "south")
        assert processes[1].wait(30) == 75
    assert said(capsys, "audit", "west").endswith("OK\n")


def read_until(master: int, end: bytes) -> str:
    """What a process writes to its terminal, until the end is there."""
    found = b""
    stop = time.monotonic() + 60
    ready = select.poll()  # which takes any descriptor, also where many are open
    ready.register(master, select.POLLIN)
    while end not in found:
        assert time.monotonic() < stop, found
        if ready.poll(200):
            found += os.read(master, 65536)
    return found.decode()
