"""Measure an echo of 1 kB over HTTPS with 3, 20 and 200 sites, beside `remote.https`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fedsplit.federation import authority
from fedsplit.federation.transport.https import HttpsTransport, serve
from fedsplit.remote import issuing
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.remote.https.server import HttpsServer

HOST = "127.0.0.1"
MESSAGE = os.urandom(1000)


def make(folder: Path, names: list[str]) -> None:
    """Make the keys of both."""
    issuing.make_keys(folder / "before", names, [HOST], 2)
    authority.create(folder / "home", [HOST], 2)
    for name in names:
        site = folder / name
        pem = authority.sign(folder / "home", name, authority.request(site, name), 2)
        authority.accept(site, pem)


def sites(which: str, folder: Path, port: int, names: list[str]) -> None:
    """Run sites, each in a thread of this process, until it is ended."""

    def before(name: str) -> None:
        key, ca = folder / "before/clients" / f"{name}.key", folder / "before/ca.crt"
        endpoint = Endpoint(f"{HOST}:{port}", key=key, ca=ca)
        run_client(endpoint, bytes, status=len, stop=threading.Event())

    def now(name: str) -> None:
        serve(bytes, folder / name, f"https://{HOST}:{port}", status=len)

    for name in names:
        work = before if which == "remote" else now
        threading.Thread(target=work, args=(name,), daemon=True).start()
    sys.stdin.read()
    os._exit(0)  # without waiting for anybody


def measure(which: str, folder: Path, names: list[str], repeats: int) -> dict[str, float]:
    """Return the milliseconds of an exchange, and the memory of this process (MB)."""
    with ExitStack() as stack:
        exchange: Callable[[], int]
        connected: Callable[[], int]
        if which == "remote":
            server = stack.enter_context(HttpsServer(HOST, 0, folder / "before"))
            port = server.port

            def connected() -> int:
                return len(server.present())

            def exchange() -> int:
                found = server.send(dict.fromkeys(names, MESSAGE), 60)
                return sum(reply == MESSAGE for reply, _, _ in found.values())
        else:
            transport = stack.enter_context(HttpsTransport(folder / "home", HOST, 0))
            port = transport.port

            def connected() -> int:
                return len(transport.connected)

            def exchange() -> int:
                found = transport.exchange(dict.fromkeys(names, MESSAGE), 60, 2**20)
                return sum(reply == MESSAGE for _, reply in found)

        processes = min(4, len(names))
        for number in range(processes):
            line = [sys.executable, __file__, "--sites", which, "--folder", str(folder)]
            line += ["--port", str(port), "--names", *names[number::processes]]
            process = subprocess.Popen(line, stdin=subprocess.PIPE)
            stack.callback(process.wait)
            stack.callback(process.communicate, b"")
        while connected() < len(names):
            time.sleep(0.05)
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            if exchange() != len(names):
                raise RuntimeError("a site has not replied")
            seconds.append(time.perf_counter() - began)
        return {"ms": 1000 * statistics.median(seconds[1:]), "MB": memory()}


def memory() -> float:
    """Return the memory that this process has in use (MB)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    [line] = [each for each in lines if each.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def main() -> None:
    """Print the table; every figure is of a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[3, 20, 200])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--sites")
    parser.add_argument("--measure")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--names", nargs="*")
    given = parser.parse_args()
    if given.sites:
        sites(given.sites, given.folder, given.port, given.names)
    if given.measure:
        print(json.dumps(measure(given.measure, given.folder, given.names, given.repeats)))
        return
    print(f"{'sites':>5} {'transport':>10} {'ms per exchange':>16} {'coordinator MB':>15}")
    for count in given.clients:
        with tempfile.TemporaryDirectory() as folder:
            names = [f"s{number}" for number in range(count)]
            make(Path(folder), names)
            for which in ("remote", "federation"):
                line = [sys.executable, __file__, "--measure", which, "--folder", folder]
                line += ["--repeats", str(given.repeats), "--names", *names]
                done = subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True)
                found = json.loads(done.stdout.splitlines()[-1])
                print(f"{count:5} {which:>10} {found['ms']:16.1f} {found['MB']:15.0f}", flush=True)


if __name__ == "__main__":
    main()
