"""``flwr run`` of ``examples/flower`` with Flower's own SuperLink and SuperNodes, with TLS."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from flwr.app import ConfigRecord, RecordDict

import fedsplit as fs
from fedsplit.errors import InputError
from fedsplit.federation import authority
from fedsplit.federation.transport import flower
from hospitals import people

NAMES = ("north", "south", "west")
PROGRAMS = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"fedsplit": ConfigRecord({})},
        {"fedsplit": ConfigRecord({"message": "text"})},
        {"other": ConfigRecord({"message": b"bytes"})},
    ],
)
def test_what_is_no_message_of_fedsplit_is_refused(content: dict[str, ConfigRecord]) -> None:
    with pytest.raises(InputError, match="not a message of fedsplit"):
        flower.content_of(RecordDict(dict(content)))


def make_node_key(path: Path) -> None:
    """Keys of a SuperNode, in the formats that Flower reads."""
    key = generate_private_key(SECP256R1())
    none = forms.NoEncryption()
    path.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, none))
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)


def make_sites(folder: Path) -> fs.Coordinator:
    """A federation whose coordinator has a study of three sites."""
    hub = folder / "hub"
    authority.create(hub, ["127.0.0.1"], 2)
    tables = people(sizes=(80, 70, 60))
    for name, table in zip(NAMES, tables.values(), strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)
        pem = authority.sign(hub, name, authority.request(folder / name, name), 2)
        (folder / f"{name}.pem").write_bytes(pem)
        fs.Site.create(folder / name, folder / f"{name}.pem", str(folder / f"{name}.csv"))
        make_node_key(folder / f"{name}.node")
    coordinator = fs.Coordinator.open(hub)
    coordinator.propose(
        "visits.toml",
        str(folder / "north.csv"),
        {"title": "visits"},
        formula="visits ~ age",
        family="poisson",
    )
    return coordinator


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


@contextmanager
def running(command: Sequence[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)


@pytest.mark.slow
def test_a_stock_superlink_and_stock_supernodes_carry_a_study_and_its_approvals(
    tmp_path: Path,
) -> None:
    coordinator = make_sites(tmp_path)
    home, out, port = tmp_path / "home", tmp_path / "out", free_port()
    home.mkdir()
    environment = {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(home),
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
    }
    hub, address = tmp_path / "hub", f"127.0.0.1:{port}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n'
        f'[superlink.here]\naddress = "{address}"\nroot-certificates = "{hub}/ca.crt"\n'
    )

    def flwr(*arguments: str) -> str:
        done = subprocess.run(
            [str(PROGRAMS / "flwr"), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with ExitStack() as stack:
        stack.enter_context(
            running(
                [
                    str(PROGRAMS / "flower-superlink"), "--host", "127.0.0.1",
                    "--port", str(port),
                    "--ssl-ca-certfile", f"{hub}/ca.crt",
                    "--ssl-certfile", f"{hub}/coordinator.crt",
                    "--ssl-keyfile", f"{hub}/coordinator.key", "--enable-supernode-auth",
                    "--disable-runtime-dependency-installation",
                ],
                tmp_path / "superlink.log",
                environment,
            )
        )  # fmt: skip
        wait_for(lambda: "Uvicorn running" in (tmp_path / "superlink.log").read_text(), 90)
        for name in NAMES:
            flwr("supernode", "register", f"{tmp_path}/{name}.pub", "here", "--name", name)
            stack.enter_context(
                running(
                    [
                        str(PROGRAMS / "flower-supernode"), "--superlink", address,
                        "--port", str(free_port()),
                        "--root-certificates", f"{hub}/ca.crt",
                        "--auth-supernode-private-key", f"{tmp_path}/{name}.node",
                        "--node-config",
                        f'folder="{tmp_path / name}" disclosed="{tmp_path / name / "d.db"}"',
                    ],
                    tmp_path / f"{name}.log",
                    environment,
                )
            )  # fmt: skip
        flwr("run", "examples/flower", "here", "-c",
             f'folder="{hub}" study="visits.toml" out="{out}"')  # fmt: skip

        def approved() -> bool:
            [run] = json.loads(flwr("list", "here", "--format", "json"))["runs"]
            assert not run["status"].startswith("finished"), run
            sites = [fs.Site.open(tmp_path / name, tmp_path / name / "d.db") for name in NAMES]
            for site in sites:
                for study in site.waiting():
                    site.approve(study.hash)
            return all(site.studies() for site in sites)

        wait_for(approved, 300)
        wait_for((out / "model.json").exists, 600)
    here = fs.fit({n: str(tmp_path / f"{n}.csv") for n in NAMES}, "visits ~ age", family="poisson")
    there = fs.load(out)
    assert (np.abs(here.params - there.params) / here.bse).max() < 1e-9
    again = coordinator.run(coordinator.study("visits.toml"))
    assert isinstance(again, fs.StudyResult)
    assert np.array_equal(again.result.params, there.params)


def wait_for(holds: object, seconds: float) -> None:
    ends = time.monotonic() + seconds
    assert callable(holds)
    while not holds():
        assert time.monotonic() < ends
        time.sleep(2)
