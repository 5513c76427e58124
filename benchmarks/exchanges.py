"""Measure an echo of 1 kB over HTTPS with 3, 20 and 200 sites."""

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
from contextlib import ExitStack
from pathlib import Path

from fedsplit.federation import authority
from fedsplit.federation.transport.https.coordinator import HttpsTransport
from fedsplit.federation.transport.https.site import serve

HOST = "127.0.0.1"
MESSAGE = os.urandom(1000)


def make(folder: Path, names: list[str]) -> None:
    """Make the keys of all."""
    authority.create(folder / "home", [HOST], 2)
    for name in names:
        site = folder / name
        pem = authority.sign(folder / "home", name, authority.request(site, name), 2)
        authority.accept(site, pem)


def sites(folder: Path, port: int, names: list[str]) -> None:
    """Run sites, each in a thread of this process, until it is ended."""
    for name in names:
        line = bytes, folder / name, f"https://{HOST}:{port}"
        threading.Thread(target=serve, args=line, kwargs={"status": len}, daemon=True).start()
    sys.stdin.read()
    os._exit(0)  # without waiting for anybody


def measure(folder: Path, names: list[str], repeats: int) -> dict[str, float]:
    """Return the milliseconds of an exchange, and the memory of this process (MB)."""
    with ExitStack() as stack:
        transport = stack.enter_context(HttpsTransport(folder / "home", HOST, 0))
        processes = min(4, len(names))
        for number in range(processes):
            line = [sys.executable, __file__, "--sites", "--folder", str(folder)]
            line += ["--port", str(transport.port), "--names", *names[number::processes]]
            process = subprocess.Popen(line, stdin=subprocess.PIPE)
            stack.callback(process.wait)
            stack.callback(process.communicate, b"")
        while len(transport.connected) < len(names):
            time.sleep(0.05)
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            found = transport.exchange(dict.fromkeys(names, MESSAGE), 60, 2**20)
            if sum(reply == MESSAGE for _, reply in found) != len(names):
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
    parser.add_argument("--sites", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--names", nargs="*")
    given = parser.parse_args()
    if given.sites:
        sites(given.folder, given.port, given.names)
    if given.measure:
        print(json.dumps(measure(given.folder, given.names, given.repeats)))
        return
    print(f"{'sites':>5} {'ms per exchange':>16} {'coordinator MB':>15}")
    for count in given.clients:
        with tempfile.TemporaryDirectory() as folder:
            names = [f"s{number}" for number in range(count)]
            make(Path(folder), names)
            line = [sys.executable, __file__, "--measure", "--folder", folder]
            line += ["--repeats", str(given.repeats), "--names", *names]
            done = subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"{count:5} {found['ms']:16.1f} {found['MB']:15.0f}", flush=True)


if __name__ == "__main__":
    main()
