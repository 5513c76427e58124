"""A small federation of processes that can be killed, stopped and starved: for faults.py.

All processes are forked from one that has imported everything, so that a run takes a second.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedsplit as fs
from fedsplit.channels.folder_lock import alone
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.remote import certificates, issuing
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.messages import MessageChannel
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.service import Site

NAMES = ("north", "south", "west")
FORMULA = "visits ~ age + ward"
FAMILY = "poisson"

ANSWER = 0.02
"""Seconds that every answer takes, so that a fault has something to hit."""

COMING = 15.0
"""Seconds that clients have to come."""

LOST = 3
"""Exit status of a process whose end nobody has thought of."""


def forked(work: Callable[[], int], log: Path) -> int:
    """Do work in a child, whose words go to a file; returns the child's id."""
    if pid := os.fork():
        return pid
    status = LOST
    try:
        words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(words, 1)
        os.dup2(words, 2)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        status = work()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)


def ended(pid: int, seconds: float) -> int | None:
    """The exit status of a child, negative for a signal; None if it does not end in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def make_data(folder: Path) -> dict[str, Path]:
    """Three files of patients."""
    rng = np.random.default_rng(0)
    paths = {}
    for at, name in enumerate(NAMES):
        n = 120 + 30 * at
        age = rng.normal(50.0, 12.0, n).round(1)
        ward = rng.choice(["a", "b", "c"], n)
        mean = np.exp(0.2 + 0.01 * age + 0.3 * (ward == "b"))
        frame = pd.DataFrame({"visits": rng.poisson(mean), "age": age, "ward": ward})
        paths[name] = folder / f"{name}.csv"
        frame.to_csv(paths[name], index=False)
    return paths


class Federation:
    """The processes of one run, in a folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.port = port
        self.keys = folder / "keys"
        self.data = make_data(folder)
        self.pids: dict[str, int] = {}
        issuing.make_keys(self.keys, NAMES, ["127.0.0.1"], 90)
        # as at a hospital, where nobody else deletes them
        shutil.copytree(self.keys / "clients", folder / "own")

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self.pids):
            self.kill(name)

    def client(
        self,
        name: str,
        *,
        as_process: str = "",
        limit: int | None = None,
        shift: float = 0.0,
        proxy: int | None = None,
        certificate: Path | None = None,
        strict: bool = False,
    ) -> int:
        """Start a client: with a small disk, a wrong clock, a proxy, a certificate or rules."""
        called = as_process or name

        def work() -> int:
            _starve(limit)
            shift_clock(shift)
            url = None
            if proxy is not None:
                url = f"http://127.0.0.1:{proxy}"
            kept = self.folder / f"kept {called}"
            try:
                with alone(kept):
                    site = Site(
                        name,
                        str(self.data[name]),
                        folder=kept,
                        options=SiteOptions(strict=strict),
                        watch=lambda event: _say(event.text),
                    )
                    endpoint = Endpoint(
                        f"127.0.0.1:{self.port}",
                        key=self.folder / "own" / f"{name}.key",
                        certificate=certificate,
                        ca=self.keys / "ca.crt",
                        proxy=url,
                    )
                    run_client(endpoint, _slowly(site.reply), status=_say, stop=threading.Event())
            except fs.InputError as error:
                _say(f"error: {error}")
                return 2
            return 0

        self.pids[called] = forked(work, self.folder / f"{called}.log")
        return self.pids[called]

    def clients(self, **options: Any) -> None:
        """Start all clients."""
        for name in NAMES:
            self.client(name, **options)

    def server(
        self, *, limit: int | None = None, least: int | None = None, give_up: float = 12.0
    ) -> int:
        """Start a server, which goes on with what an earlier one has left."""
        checkpoint = fs.Checkpoint(
            self.folder / "kept", resume=(self.folder / "kept/checkpoint.json").exists()
        )

        def work() -> int:
            _starve(limit)
            try:
                with HttpsServer("127.0.0.1", self.port, self.keys) as server:
                    who = self._gathered(server, least)
                    options = FitOptions(
                        None,
                        FORMULA,
                        family=FAMILY,
                        patience=fs.Patience(8.0, give_up, least),
                        checkpoint=checkpoint,
                    )
                    model = fit_over(MessageChannel(server, who), options)
                np.savez(
                    self.result,
                    coef=model.params,
                    clients=np.array(list(model.clients.index)),
                )
            except (fs.InputError, fs.TooFewClients, OSError) as error:
                _say(f"error: {error}")
                return 2
            return 0

        self.pids["server"] = forked(work, self.folder / "server.log")
        return self.pids["server"]

    def _gathered(self, server: HttpsServer, least: int | None) -> Sequence[str]:
        end = time.monotonic() + COMING
        wanted = least or len(NAMES)
        while len(server.present()) < len(NAMES) and time.monotonic() < end:
            time.sleep(0.02)
            if len(server.present()) >= wanted and time.monotonic() > end - COMING + 2.0:
                break
        return sorted(server.present())

    @property
    def result(self) -> Path:
        return self.folder / "result.npz"

    def answered(self, name: str) -> int:
        """How many questions a client has answered."""
        log = self.folder / f"kept {name}" / "questions.jsonl"
        if not log.exists():
            return 0
        return log.read_bytes().count(b"\n")

    def words(self, name: str) -> str:
        """What a process has said."""
        path = self.folder / f"{name}.log"
        if not path.exists():
            return ""
        return path.read_text(encoding="utf-8")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a process, and wait until it is gone."""
        pid = self.pids.pop(name)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def finish(self, name: str, seconds: float) -> int | None:
        """Wait for the end of a process; None if it hangs."""
        status = ended(self.pids[name], seconds)
        if status is not None:
            del self.pids[name]
        return status


def reference(data: Sequence[Path]) -> fs.Model:
    """The same fit in one process."""
    return fs.fit([str(path) for path in data], FORMULA, family=FAMILY)


def start_proxy(port: int, log: Path) -> int:
    """An HTTP proxy in a process of its own, which knows CONNECT alone."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await reader.read(2**16):
                writer.write(part)
                await writer.drain()
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        host, _, to = head.split()[1].decode().rpartition(":")
        try:
            other = await asyncio.open_connection(host, int(to))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, other[1]), pipe(other[0], writer))

    async def serve() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", port)
        await server.serve_forever()

    def work() -> int:
        asyncio.run(serve())
        return 0

    return forked(work, log)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _slowly(answer: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def slow(message: bytes) -> bytes:
        time.sleep(ANSWER)
        return answer(message)

    return slow


def _starve(limit: int | None) -> None:
    """Let no file grow beyond so many bytes, which is what a full disk looks like."""
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def shift_clock(seconds: float) -> None:
    """Set the clock of this process by which certificates are judged."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]  # not Self
            return datetime.now(tz) + timedelta(seconds=seconds)

    if seconds:
        certificates.datetime = Shifted  # type: ignore[attr-defined]  # an import of that module
