"""Clients in processes of their own, and ``fedsplit client`` and ``server`` as users start them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from federation import free_port, until
from fedsplit.channels.checkpoint import FORMAT
from fedsplit.commands.app import run
from fedsplit.commands.client_options import ClientNetwork, Privacy
from fedsplit.commands.client_process import Configuration, status_of
from fedsplit.commands.studies import keep_study, signed_study
from fedsplit.commands.supervisor import BAD_INPUT, NOT_AUTHORISED
from fedsplit.data.reading import PLAIN
from fedsplit.regression.options import FitOptions
from fedsplit.remote import issuing
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.messages import HELLO, read_identity
from fedsplit.version import __version__
from https_clients import joined
from test_supervisor import SUPERVISOR, started

PROCESS = """
import os, sys, threading, time
from pathlib import Path
from fedsplit.commands.supervisor import lifeline
from fedsplit.errors import InputError
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.endpoint import Endpoint

server, key, ca, folder, supervised = sys.argv[1:]
_, stop = lifeline() if supervised == "yes" else (b"", threading.Event())

def answer(message):
    word, _, number = message.partition(b" ")
    if word == b"die" and not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), 9)
    return message[::-1]

try:
    run_client(Endpoint(server, key=Path(key), ca=Path(ca)), answer, status=print, stop=stop)
except InputError as error:
    sys.exit(2)
"""
"""A client in a process of its own, which answers with the message from behind."""


def process(
    server: HttpsServer, made: Path, name: str, folder: Path, supervised: bool = False
) -> list[str]:
    """The command of a client in a process of its own."""
    ours = made / "ours"
    arguments = [
        f"127.0.0.1:{server.port}",
        ours / "clients" / f"{name}.key",
        ours / "ca.crt",
        folder,
    ]
    return [sys.executable, "-c", PROCESS, *map(str, arguments), "yes" if supervised else "no"]


@pytest.mark.slow
def test_a_client_that_is_killed_is_started_again_and_asked_again(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    command = process(server, made, "ada", tmp_path, supervised=True)
    with started([sys.executable, "-c", SUPERVISOR, *command], stdout=subprocess.PIPE) as child:
        until(lambda: "ada" in server.present(), 60)
        assert server.send({"ada": b"one"}, 60)["ada"][0] == b"eno"
        assert server.send({"ada": b"die"}, 60)["ada"][0] == b"eid"
        assert server.send({"ada": b"two"}, 60)["ada"][0] == b"owt"
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=30)
    assert child.returncode == 143
    assert "its process ended (signal 9), starting it again" in out


@pytest.mark.slow
def test_a_client_that_is_killed_for_good_holds_nobody_up_for_long(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    with (
        started(process(server, made, "ada", tmp_path), stdout=subprocess.DEVNULL),
        joined(server, made, "bob"),
    ):
        until(lambda: "ada" in server.present(), 60)
        found = server.send({"ada": b"die", "bob": b"one"}, 600)
    assert found["bob"][0] == b"eno"
    assert found["ada"][:2] == (None, "its client disconnected")
    assert found["ada"][2] < 40


@pytest.mark.slow
def test_two_processes_answer_over_tls(server: HttpsServer, made: Path, tmp_path: Path) -> None:
    names = ("ada", "bob")
    with (
        started(process(server, made, "ada", tmp_path), stdout=subprocess.DEVNULL),
        started(process(server, made, "bob", tmp_path), stdout=subprocess.DEVNULL),
    ):
        until(lambda: len(server.present()) == 2, 60)
        for number in range(20):
            message = f"message {number}".encode()
            found = server.send(dict.fromkeys(names, message), 60)
            assert [found[name][0] for name in names] == [message[::-1]] * 2


@pytest.mark.slow
def test_the_command_says_what_leaves_and_answers(
    made: Path, tmp_path: Path, files: list[str]
) -> None:
    ours, home = made / "ours", {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with HttpsServer("127.0.0.1", 0, ours) as server:
        arguments = [
            "--server",
            f"127.0.0.1:{server.port}",
            "--data",
            files[0],
            "--ca",
            str(ours / "ca.crt"),
        ]
        command = [
            sys.executable,
            "-m",
            "fedsplit",
            "client",
            *arguments,
            "--key",
            str(ours / "clients/ada.key"),
        ]
        with started(command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            until(lambda: "ada" in server.present(), 60)
            message = server.send({"ada": HELLO}, 60)["ada"][0]
            assert message is not None
            assert read_identity(message).name == "ada"
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=30)
        assert child.returncode == 143
        assert server.present() == {}
    assert "Rows never leave" in out
    assert err == f"fedsplit client: connected to 127.0.0.1:{server.port}\n"
    assert (tmp_path / "state/fedsplit/ada").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ["--key", "{made}/theirs/clients/eve.key", "--ca", "{made}/ours/ca.crt"],
            "was not issued by ",
        ),
        (
            ["--key", "{made}/nosuch.key", "--ca", "{made}/ours/ca.crt"],
            "nosuch.key: there is no such file",
        ),
        (["--insecure", "--data", "nosuch.csv"], "nosuch.csv"),
    ],
)
def test_the_command_gives_up_in_one_line(
    server: HttpsServer, made: Path, tmp_path: Path, files: list[str], options: list[str], why: str
) -> None:
    arguments = [
        "--server",
        f"127.0.0.1:{server.port}",
        "--data",
        files[0],
        "--folder",
        str(tmp_path / "state"),
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "fedsplit",
            "client",
            *arguments,
            *(each.format(made=made) for each in options),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("fedsplit: error: ")
    assert done.stderr.count("\n") == 1
    assert why in done.stderr


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"format": 1}, f"has format 1, this version reads format {FORMAT}"),
        ({"run": {"clients": ["ada"], "formula": "z ~ x"}}, "belongs to another run"),
    ],
)
def test_a_checkpoint_that_cannot_be_resumed_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: dict[str, Any], why: str
) -> None:
    about = {"format": FORMAT, "version": __version__, "run": {"clients": ["ada"]}, **header}
    kept = {"checkpoint.json": json.dumps(about).encode(), "answers": b"what was answered"}
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    options = ["--host", "127.0.0.1", "--port", str(free_port()), "--wait", "0.1"]
    options += ["--out", str(tmp_path / "out")]
    model = ["--formula", "y ~ x", "--family", "poisson", "--clients", "ada"]
    assert run(["server", "--insecure", *options, *model, "--resume", str(tmp_path)]) == 2
    assert why in capsys.readouterr().err
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            [],
            "give both --key and --ca, or --insecure for a test on one machine",
        ),
        (["--insecure", "--ca", "ca.crt"], "leave out --ca, or --insecure"),
        (["--insecure", "--key", "x.key"], "leave out --key, or --insecure"),
        (["--insecure", "--proxy", "foo"], "leave out --proxy, or --insecure"),
        (["--insecure", "--server", "http://localhost:8000"], "such as fit.example.org:8000"),
        (["--insecure", "--policy", "no.toml"], "no.toml: there is no such file"),
        (["--key", "no.key", "--ca", "no.crt"], "--key {here}/no.key: there is no such file"),
        (["--insecure", "--max-rounds", "0"], "max_rounds must be"),
        (["--insecure", "--name", "../up"], "client '../up'"),
    ],
)
def test_the_command_refuses_what_cannot_be_meant(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["client", "--server", "127.0.0.1:9", "--data", "x.csv", *options]) == 2
    assert why.format(here=Path.cwd()) in capsys.readouterr().err


def test_a_client_that_the_coordinator_has_not_authorised_may_be_started_again_later(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "carl.key"
    issuing.request_certificate(tmp_path, "carl")
    options = ["--server", "127.0.0.1:9", "--key", str(own), "--ca", str(made / "ours/ca.crt")]
    assert run(["client", "--data", "nosuch.csv", *options]) == NOT_AUTHORISED
    told = capsys.readouterr()
    assert "carl.crt: is missing" in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)  # no row was read, nothing was printed


@pytest.fixture
def chosen(made: Path, tmp_path: Path, files: list[str]) -> Configuration:
    """The client ada of a federation in tmp_path."""
    ours = tmp_path / "ours"
    shutil.copytree(made / "ours", ours)
    shutil.copytree(ours / "clients", tmp_path / "own")
    network = ClientNetwork(key=tmp_path / "own/ada.key", ca=ours / "ca.crt")
    folder = tmp_path / "state"
    privacy = Privacy(approve="always")
    return Configuration("127.0.0.1:9", files[0], "ada", folder, PLAIN, network, privacy, False)


def test_what_a_process_is_told_arrives_as_it_was(chosen: Configuration) -> None:
    assert Configuration.read(chosen.line()) == chosen
    assert Configuration.read(chosen.line(restarted=True)) == replace(chosen, restarted=True)


def test_a_revoked_client_has_the_same_exit_status(
    chosen: Configuration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    issuing.revoke_client(tmp_path / "ours", "ada")
    with HttpsServer("127.0.0.1", 0, tmp_path / "ours") as server:
        here = replace(chosen, server=f"127.0.0.1:{server.port}")
        assert status_of(here, threading.Event()) == NOT_AUTHORISED
    assert "is not authorised (unknown or revoked): ask the coor" in capsys.readouterr().err


@pytest.mark.parametrize("broken", ["fedsplit.remote.https.client", "fedsplit.sites.service"])
def test_a_package_that_cannot_be_imported_is_named_and_no_restart_is_tried(
    chosen: Configuration,
    broken: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, broken, None)
    assert status_of(chosen, threading.Event()) == BAD_INPUT
    told = capsys.readouterr().err
    assert f"cannot be imported (import of {broken} halted" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "give the folder made by fedsplit keys with --keys, or --insecure"),
        (["--keys", "nokeys", "--insecure"], "leave out --keys, or --insecure"),
        (["--keys", "nokeys"], "make them with fedsplit keys nokeys --clients NAME"),
        (["--insecure", "--port", "0"], "--port must be a port"),
        (["--insecure", "--wait", "0"], "wait must be"),
        (["--insecure", "--min-clients", "5"], "--min-clients 5 is more than the 2 of --clients"),
    ],
)
def test_the_server_refuses_what_cannot_be_meant_before_it_listens(
    options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    common = ["--clients", "2", "--out", str(out), "--formula", "y ~ x"]
    assert run(["server", *common, *options]) == 2
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1
    assert not out.exists()


def test_a_run_that_is_resumed_with_another_option_names_it_before_it_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = FitOptions(None, "y ~ x")
    study, _ = signed_study(options, ["ada"], None, None)
    keep_study(study, tmp_path, resumed=False)
    about = {"format": FORMAT, "version": __version__, "run": {"clients": ["ada"]}}
    (tmp_path / "checkpoint.json").write_text(json.dumps(about), encoding="utf-8")
    command = ["server", "--insecure", "--clients", "ada", "--out", str(tmp_path)]
    command += ["--port", str(free_port()), "--formula", "y ~ x", "--ridge", "2"]
    assert run([*command, "--resume", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "the run had another study (ridge changed)" in told
    assert "clients 0 of 1" not in told


@pytest.mark.parametrize("missing", ["aiohttp", "cryptography"])
def test_without_the_extra_every_command_says_how_to_get_it(
    missing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == missing else find_spec(name)
    )
    assert run(["client", "--server", "127.0.0.1:9", "--data", "x.csv", "--insecure"]) == 2
    assert run(["server", "--clients", "2", "--out", "x", "--insecure"]) == 2
    assert run(["keys", "folder", "--clients", "a"]) == 2
    assert capsys.readouterr().err.count("pip install 'fedsplit[sites]'") == 3
