"""Clients in threads of this process, and one that does what a test wants."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from federation import until
from fedsplit.errors import InputError
from fedsplit.remote.https import protocol
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.https.tls import ClientTls

PLAIN: dict[str, Any] = {"insecure": True}


def backwards(message: bytes) -> bytes:
    return message[::-1]


def keys_of(made: Path, name: str) -> dict[str, Any]:
    ours = made / "ours"
    return {"key": ours / f"clients/{name}.key", "ca": ours / "ca.crt"}


@contextmanager
def running(
    port: int, answer: Callable[[bytes], bytes] = backwards, **options: Any
) -> Iterator[list[str]]:
    """A client in a thread of this process; what it says."""
    told: list[str] = []
    stop = threading.Event()

    def work() -> None:
        try:
            endpoint = Endpoint(f"127.0.0.1:{port}", **options)
            run_client(endpoint, answer, status=told.append, stop=stop)
        except InputError as error:
            told.append(f"refused: {error}")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


@contextmanager
def joined(
    server: HttpsServer,
    made: Path,
    name: str,
    answer: Callable[[bytes], bytes] = backwards,
) -> Iterator[list[str]]:
    """A client that is connected."""
    with running(server.port, answer, **keys_of(made, name)) as told:
        until(lambda: name in server.present(), 30)
        yield told


def refusal(port: int, host: str = "127.0.0.1", **options: Any) -> str:
    """The line with which a client gives up."""
    stop = threading.Event()
    timer = threading.Timer(30, stop.set)
    timer.start()
    try:
        with pytest.raises(InputError) as refused:
            run_client(Endpoint(f"{host}:{port}", **options), backwards, status=print, stop=stop)
    finally:
        timer.cancel()
    assert "\n" not in str(refused.value)
    return str(refused.value)


class Hand:
    """A client that does what the test wants: requests over one connection."""

    def __init__(
        self, server: HttpsServer, made: Path, name: str, instance: str = "a" * 32
    ) -> None:
        context = ClientTls(**keys_of(made, name)).context
        self._connection = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
        self._instance = instance

    def post(self, path: str, body: bytes = b"", **headers: str) -> tuple[int, str, bytes]:
        """The status, the number of the question, and the body of an answer."""
        sent = {each.replace("_", "-"): value for each, value in headers.items()}
        self._connection.request("POST", path, body, {protocol.INSTANCE: self._instance} | sent)
        answer = self._connection.getresponse()
        return answer.status, answer.headers.get(protocol.MESSAGE, ""), answer.read()

    def close(self) -> None:
        self._connection.close()


@contextmanager
def sending(
    server: HttpsServer, messages: dict[str, bytes], timeout: float = 30
) -> Iterator[dict[str, Any]]:
    """Send in another thread; what came back is there at the end."""
    found: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: found.update(server.send(messages, timeout)))
    thread.start()
    yield found
    thread.join(60)
    assert not thread.is_alive()
