"""Real processes of a federation on loopback: a server, and clients with TLS and keys."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from fedsplit.remote.issuing import make_keys

FEDSPLIT = [sys.executable, "-m", "fedsplit"]

TAMPERED = """
import json, sys, threading
from pathlib import Path
from typing import Self
import numpy as np
from fedsplit.channels.channel import Reply
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.remote.messages import read_reply, write_reply
from fedsplit.clients.question import Answer
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.service import Site
name, data, server, keys, folder, nth = sys.argv[1:]
site, asked = Site(name, data, folder=Path(folder), options=SiteOptions(approve="always")), 0
def answer(message):
    global asked
    out = site.reply(message)
    asked += message.startswith(b"local_model")
    if asked == int(nth) and message.startswith(b"local_model"):
        told = read_reply(out, Answer, 0.0).value
        point = np.full_like(told.rows, np.nan)
        out = write_reply(Reply("answer", told._replace(parts=told.parts | {"point": point})))
    return out
key = Path(keys) / "clients" / f"{name}.key"
endpoint = Endpoint(server, key=key, ca=Path(keys) / "ca.crt")
run_client(endpoint, answer, status=lambda text: None, stop=threading.Event())
"""
"""A node whose nth answer in the rounds is not a number."""


def free_port() -> int:
    """A port where nothing listens, below those that the system gives to outgoing connections.

    One of those may be taken by any connection before the server listens; and a client that knocks
    at it early enough is given the same port for its own end, and holds it, connected with itself.
    """
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8")
    first = int(limits.split()[0])
    while True:
        port = first // 2 + secrets.randbelow(first // 2)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


class Processes:
    """A server's and clients' processes, all of them ended at the end."""

    def __init__(
        self, folder: Path, names: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.port, self.environment = folder, free_port(), environment or ENVIRONMENT
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        self.make_keys(names)

    def make_keys(self, names: Sequence[str]) -> None:
        make_keys(self.folder / "keys", names, ["127.0.0.1"], 2)

    def key(self, name: str) -> Path:
        return self.folder / "keys" / "clients" / f"{name}.key"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._all:
            if process.poll() is None:
                process.terminate()
        for process in self._all:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)

    def start(self, command: Sequence[str], log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=self.environment
            )
        self._all.append(process)
        return process

    def client(self, name: str, data: Path, *more: str) -> None:
        keys = self.folder / "keys"
        self.clients[name] = self.start(
            [
                *FEDSPLIT, "client", "--server", f"127.0.0.1:{self.port}", "--data", str(data),
                "--folder", str(self.kept(name)), "--key", str(self.key(name)),
                "--ca", str(keys / "ca.crt"), "--approve", "always",
                *more,
            ],
            f"{name}.log",
        )  # fmt: skip

    def tampered(self, name: str, data: Path, nth: int) -> None:
        """A client whose nth answer in the rounds is not a number."""
        told = [
            name,
            str(data),
            f"127.0.0.1:{self.port}",
            str(self.folder / "keys"),
            str(self.kept(name)),
            str(nth),
        ]
        self.clients[name] = self.start([sys.executable, "-c", TAMPERED, *told], f"{name}.log")

    def server(self, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                *FEDSPLIT, "server", "--keys", str(self.folder / "keys"), "--host", "127.0.0.1",
                "--port", str(self.port), *more,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment,
        )  # fmt: skip
        self._all.append(process)  # type: ignore[arg-type]  # of text, which makes no difference to its end
        return process

    def kept(self, name: str) -> Path:
        return self.folder / f"kept {name}"

    def asked(self, name: str, question: str = "local_model") -> int:
        """How many such questions a client has answered."""
        log = self.kept(name) / "questions.jsonl"
        if not log.exists():
            return 0
        whole = [
            line
            for line in log.read_text(encoding="utf-8").splitlines(keepends=True)
            if line.endswith("\n")
        ]
        return sum(json.loads(line)["question"] == question for line in whole)

    def kill(self, name: str, with_supervisor: bool) -> None:
        """SIGKILL for a client's working process, and for its supervisor."""
        supervisor = self.clients[name]
        [worker] = children(supervisor.pid)
        if with_supervisor:
            supervisor.kill()
            supervisor.wait(15)
        os.kill(worker, signal.SIGKILL)


ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in text.split()]


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Wait until something holds; it is an error if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} seconds")
        time.sleep(0.02)
