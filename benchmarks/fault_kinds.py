"""What may go wrong in a federation: each a run with one fault, and how it ended."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable

import numpy as np

import fedsplit as fs
from fault_processes import NAMES, Federation, ended, shift_clock, start_proxy
from fedsplit.remote import issuing
from fedsplit.remote.certificates import certificate_pem
from fedsplit.remote.key_folder import read_authority
from fedsplit.remote.keys import read_private_key

QUESTIONS = 9
"""That a client answers in an undisturbed run, about: faults come at a random one of them."""

HUNG_SECONDS = 90.0
"""Seconds after which a run counts as hung."""

TOLERANCE = 1e-6
"""In standard errors."""

BITS, CLOSE, WITHOUT, LINE = "same bits", "to the tolerance", "without the client", "one line"
OUTCOMES = (BITS, CLOSE, WITHOUT, LINE, "wrong", "hung")

PORTS = 20000, 30000

rng = random.Random(0)


class Wrong(Exception):
    """A run that ended in a way that nobody wants."""


def free_port() -> int:
    """A port below those of outgoing connections, where nothing listens."""
    while True:
        port = rng.randrange(*PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def until_listening(port: int) -> None:
    """Wait until there is a server."""
    end = time.monotonic() + HUNG_SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return


def some_time(federation: Federation, name: str = "", least: int = 0) -> None:
    """Wait for a random moment of a run, from before its first question to after its last.

    With ``least``, this client has answered as many questions.
    """
    name = name or rng.choice(NAMES)
    wanted = rng.randint(least, QUESTIONS)
    end = time.monotonic() + HUNG_SECONDS
    while federation.answered(name) < wanted and time.monotonic() < end:
        if federation.result.exists():
            return
        time.sleep(0.002)
    time.sleep(rng.uniform(0.0, 0.03))


def one_line(federation: Federation, name: str, part: str) -> str:
    """Check that the last words of a process are one line with this in it."""
    words = federation.words(name).splitlines()
    if not words or part not in words[-1] or "Traceback" in "".join(words):
        raise Wrong(f"{name} said {words[-3:]}")
    return LINE


def result(federation: Federation, gone: str = "") -> str:
    """Wait for the server, and compare what it has found."""
    status = federation.finish("server", HUNG_SECONDS)
    if status is None:
        return "hung"
    if status != 0:
        raise Wrong(f"status {status}: {federation.words('server')[-300:]}")
    return compared(federation, gone)


def compared(federation: Federation, gone: str = "") -> str:
    """Compare what a server has found with the fit in one process of the same clients."""
    found = np.load(federation.result)
    members = frozenset(found["clients"].tolist())
    if members not in (frozenset(NAMES), frozenset(NAMES) - {gone}):
        raise Wrong(f"the clients of the table are {sorted(members)}")
    model = EXPECTED[members]
    if np.abs((found["coef"] - model.params) / model.estimates.errors).max() > TOLERANCE:
        raise Wrong(f"other numbers: {found['coef']} for {model.params}")
    if len(members) < len(NAMES):
        return WITHOUT
    if np.array_equal(found["coef"], model.params):
        return BITS
    return CLOSE


EXPECTED: dict[frozenset[str], fs.Model] = {}
"""By who takes part, the model."""


def kill_server(federation: Federation) -> str:
    """kill -9 of the server, up to three times; it is resumed."""
    federation.clients()
    for _ in range(rng.randint(1, 3)):
        pid = federation.server()
        some_time(federation)
        if ended(pid, 0.01) is not None:
            break
        federation.kill("server")
        federation.result.unlink(missing_ok=True)  # it may be half written
    federation.pids.pop("server", None)
    if federation.result.exists():
        return compared(federation)
    federation.server()
    return result(federation)


def kill_client(federation: Federation) -> str:
    """kill -9 of a client, which is started again."""
    federation.clients()
    federation.server()
    some_time(federation)
    name = rng.choice(NAMES)
    federation.kill(name)
    federation.client(name)
    return result(federation)


def kill_all(federation: Federation) -> str:
    """kill -9 of everybody at once, as when a machine loses its power."""
    federation.clients()
    federation.server()
    some_time(federation)
    for name in list(federation.pids):
        federation.kill(name)
    federation.result.unlink(missing_ok=True)  # it may be half written
    federation.clients()
    federation.server()
    return result(federation)


def kill_for_good(federation: Federation) -> str:
    """kill -9 of a client that does not return; two are enough."""
    federation.clients()
    federation.server(least=2, give_up=3.0)
    some_time(federation)
    name = rng.choice(NAMES)
    federation.kill(name)
    return result(federation, name)


def stop_client(federation: Federation) -> str:
    """SIGSTOP of a client for a while."""
    federation.clients()
    federation.server()
    some_time(federation)
    return _stopped(federation, rng.choice(NAMES))


def stop_server(federation: Federation) -> str:
    """SIGSTOP of the server for a while."""
    federation.clients()
    federation.server()
    some_time(federation)
    return _stopped(federation, "server")


def _stopped(federation: Federation, name: str) -> str:
    os.kill(federation.pids[name], signal.SIGSTOP)
    time.sleep(rng.uniform(0.1, 3.0))
    os.kill(federation.pids[name], signal.SIGCONT)
    return result(federation)


def kill_proxy(federation: Federation) -> str:
    """kill -9 of the proxy between clients and server, which is started again."""
    port = free_port()
    federation.pids["proxy"] = start_proxy(port, federation.folder / "proxy.log")
    federation.clients(proxy=port)
    federation.server()
    some_time(federation)
    federation.kill("proxy")
    time.sleep(rng.uniform(0.0, 0.5))
    federation.pids["proxy"] = start_proxy(port, federation.folder / "proxy.log")
    return result(federation)


def full_server(federation: Federation) -> str:
    """A full disk at the server, which is resumed once there is room."""
    federation.clients()
    federation.server(limit=rng.randrange(100, 20_000))
    status = federation.finish("server", HUNG_SECONDS)
    if status is None:
        return "hung"
    if status == 0:
        return compared(federation)
    one_line(federation, "server", "error: ")
    federation.server()
    return result(federation)


def full_client(federation: Federation) -> str:
    """A full disk at a client, which says so; it is started again once there is room."""
    name = rng.choice(NAMES)
    for each in NAMES:
        federation.client(each, limit=rng.randrange(2000, 6000) if each == name else None)
    federation.server(give_up=60.0)
    end = time.monotonic() + 20.0
    while not federation.result.exists() and time.monotonic() < end:
        if "too large" in federation.words(name) or "cannot be written" in federation.words(name):
            break
        time.sleep(0.02)
    else:
        return result(federation)  # it had room enough
    federation.kill(name)
    federation.client(name)
    return result(federation)


def clock(federation: Federation) -> str:
    """The clocks of clients are wrong, by seconds to most of a day."""
    for name in NAMES:
        federation.client(name, shift=rng.choice([-1, 1]) * rng.choice([5, 305, 3600, 80_000]))
    federation.server()
    return result(federation)


def far_clock(federation: Federation) -> str:
    """The clock of a client is wrong by years, so that its certificate is not valid."""
    name = rng.choice(NAMES)
    federation.client(name, shift=rng.choice([-1, 1]) * 3e8)
    if federation.finish(name, HUNG_SECONDS) != 2:
        raise Wrong("a client with that clock was not refused")
    words = federation.words(name)
    return one_line(federation, name, "expired on" if "expired" in words else "by the clock of")


def changed_file(federation: Federation) -> str:
    """The file of a strict client changes, and the client is started again."""
    federation.clients(strict=True)
    federation.server()
    name = rng.choice(NAMES)
    some_time(federation, name, least=1)
    with federation.data[name].open("a", encoding="utf-8") as file:
        file.write("3,51.5,a\n" * rng.randint(1, 2))  # too few rows for a new snapshot
    federation.kill(name)
    federation.client(name, strict=True)
    return result(federation)


def port_in_use(federation: Federation) -> str:
    """A second server on the same port."""
    federation.clients()
    federation.server()
    first = federation.pids.pop("server")
    until_listening(federation.port)
    folder = federation.folder / "second"
    folder.mkdir()
    before, federation.folder = federation.folder, folder
    federation.server()
    status = federation.finish("server", HUNG_SECONDS)
    one_line(federation, "server", "cannot listen there (Address already in use)")
    federation.folder = before
    federation.pids["server"] = first
    if status != 2:
        raise Wrong(f"status {status}")
    return result(federation)


def same_key(federation: Federation) -> str:
    """A second process with the key of a client; the first goes on."""
    federation.clients()
    federation.server()
    some_time(federation)
    federation.client(rng.choice(NAMES), as_process="twin")
    return result(federation)


def revoked(federation: Federation) -> str:
    """The key of a client is revoked in the middle of a run; two are enough."""
    federation.clients()
    federation.server(least=2, give_up=3.0)
    some_time(federation)
    name = rng.choice(NAMES)
    issuing.revoke_client(federation.keys, name)
    found = result(federation, name)
    end = time.monotonic() + 10.0
    while time.monotonic() < end and "revoked" not in federation.words(name):
        if found == BITS:
            return found  # it was over
        time.sleep(0.05)
    one_line(federation, name, "revoked")
    return found


def expired(federation: Federation) -> str:
    """The certificate of a client has expired."""
    name = rng.choice(NAMES)
    key = read_private_key(federation.keys / f"clients/{name}.key").public_key()
    path = federation.folder / "old.crt"
    if pid := os.fork():
        os.waitpid(pid, 0)
    else:  # a process of its own, whose clock is wrong
        shift_clock(-86400.0 * 400)
        issued = read_authority(federation.keys).issue(name, key, "client", 30)
        path.write_bytes(certificate_pem(issued))
        os._exit(0)
    federation.client(name, certificate=path)
    if federation.finish(name, HUNG_SECONDS) != 2:
        raise Wrong("an expired certificate was not refused")
    return one_line(federation, name, "expired on")


KINDS: dict[Callable[[Federation], str], int] = {
    kill_server: 60,
    kill_client: 60,
    kill_all: 20,
    kill_for_good: 8,
    stop_client: 25,
    stop_server: 20,
    kill_proxy: 30,
    full_server: 25,
    full_client: 20,
    clock: 20,
    far_clock: 8,
    changed_file: 20,
    port_in_use: 8,
    same_key: 15,
    revoked: 15,
    expired: 8,
}
"""The faults, with the number of runs."""
