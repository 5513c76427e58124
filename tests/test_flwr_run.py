"""``flwr run`` of ``examples/flower`` with Flower's own SuperLink and SuperNodes, with TLS."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

import fedsplit as fs
from federation import ENVIRONMENT, Processes, free_port

SITES = {f"site{j}": Path(f"examples/randhie/site{j}.csv").absolute() for j in (3, 4)}
FORMULA = "mdvis ~ disea"
PROGRAMS = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}


def make_node_key(path: Path) -> None:
    """Keys of a SuperNode, in the formats that Flower reads."""
    key = generate_private_key(SECP256R1())
    private = key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
    )
    path.write_bytes(private)
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)


@pytest.mark.slow
def test_a_stock_superlink_and_stock_supernodes_give_the_bits_of_one_process(
    tmp_path: Path,
) -> None:
    keys, home, out = tmp_path / "keys", tmp_path / "home", tmp_path / "out"
    home.mkdir()
    environment = {
        **ENVIRONMENT,
        **QUIET,
        "FLWR_HOME": str(home),
        "PATH": f"{PROGRAMS}:{ENVIRONMENT['PATH']}",
    }

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

    with Processes(tmp_path, list(SITES), environment) as federation:
        for name in SITES:
            make_node_key(keys / "clients" / f"{name}.key")
        address = f"127.0.0.1:{federation.port}"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n'
            f'[superlink.here]\naddress = "{address}"\nroot-certificates = "{keys}/ca.crt"\n'
        )
        federation.start(
            [
                str(PROGRAMS / "flower-superlink"), "--host", "127.0.0.1",
                "--port", str(federation.port),
                "--ssl-ca-certfile", f"{keys}/ca.crt", "--ssl-certfile", f"{keys}/server.crt",
                "--ssl-keyfile", f"{keys}/server.key", "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
            ],
            "superlink.log",
        )  # fmt: skip
        end = time.monotonic() + 60
        while not (tmp_path / "superlink.log").read_text().count("Uvicorn running"):
            assert time.monotonic() < end
            time.sleep(0.2)
        for name, data in SITES.items():
            flwr("supernode", "register", f"{keys}/clients/{name}.pub", "here", "--name", name)
            federation.start(
                [
                    str(PROGRAMS / "flower-supernode"), "--superlink", address,
                    "--port", str(free_port()),
                    "--root-certificates", f"{keys}/ca.crt",
                    "--auth-supernode-private-key", f"{keys}/clients/{name}.key",
                    "--node-config",
                    f'name="{name}" data="{data}" folder="{federation.kept(name)}"',
                ],
                f"{name}.log",
            )  # fmt: skip
        flwr(
            "run",
            "examples/flower",
            "here",
            "-c",
            f'formula="{FORMULA}" clients={len(SITES)} out="{out}"',
        )
        end = time.monotonic() + 900
        while not (out / "model.json").exists():
            [run] = json.loads(flwr("list", "here", "--format", "json"))["runs"]
            assert not run["status"].startswith("finished") or (out / "model.json").exists(), run
            assert time.monotonic() < end
            time.sleep(3)
    here, there = fs.fit(list(SITES.values()), FORMULA), fs.load(out)
    assert np.array_equal(here.params, there.params)
    assert here.llf == there.llf
    assert there.converged
    assert not there.run.incidents
