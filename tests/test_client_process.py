"""Clients in processes of their own, and ``fedsplit client`` and ``server`` as users start them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from federation import free_port, until
from fedsplit.commands.app import run
from fedsplit.remote import issuing
from fedsplit.remote.checkpoint import FORMAT
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.messages import HELLO, read_identity
from fedsplit.version import __version__
from test_https import joined
from test_supervisor import SUPERVISOR, started

PROCESS = """
import os, sys, threading, time
from pathlib import Path
from fedsplit.commands.supervisor import lifeline
from fedsplit.errors import InputError
from fedsplit.remote.https.client import run_client

server, key, ca, folder, supervised = sys.argv[1:]
_, stop = lifeline() if supervised == "yes" else (b"", threading.Event())

def answer(message):
    word, _, number = message.partition(b" ")
    if word == b"die" and not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), 9)
    return message[::-1]

try:
    options = dict(key=Path(key), ca=Path(ca), folder=Path(folder), status=print, stop=stop)
    run_client(server, answer, **options)
except InputError as error:
    sys.exit(2)
"""
"""A client in a process of its own, which answers with the message from behind."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of the clients ada and bob, and of a stranger."""
    folder = tmp_path_factory.mktemp("keys")
    issuing.make_keys(folder / "ours", ["ada", "bob"], ["127.0.0.1"], 90)
    issuing.make_keys(folder / "theirs", ["eve"], ["127.0.0.1"], 90)
    return folder


@pytest.fixture
def server(made: Path) -> Iterator[HttpsServer]:
    with HttpsServer("127.0.0.1", 0, made / "ours") as server:
        yield server


def process(
    server: HttpsServer, made: Path, name: str, folder: Path, supervised: bool = False
) -> list[str]:
    """The command of a client in a process of its own."""
    ours = made / "ours"
    arguments = [
        f"127.0.0.1:{server.port}",
        ours / "clients" / f"{name}.key",
        ours / "ca.crt",
        folder / name,
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
        joined(server, made, "bob", tmp_path),
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
            "was not issued by the authority of --ca",
        ),
        (
            ["--key", "{made}/nosuch.key", "--ca", "{made}/ours/ca.crt"],
            "nosuch.key: No such file or directory",
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
            "give --key and --ca, as the server's owner has them, or --insecure for a test "
            "on one machine",
        ),
        (["--insecure", "--ca", "ca.crt"], "leave one of them out"),
        (["--insecure", "--max-rounds", "0"], "max_rounds must be"),
        (["--insecure", "--name", "../up"], "client '../up'"),
    ],
)
def test_the_command_refuses_what_cannot_be_meant(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["client", "--server", "127.0.0.1:9", "--data", "x.csv", *options]) == 2
    assert why in capsys.readouterr().err


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
