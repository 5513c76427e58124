"""HTTPS between organisations, at a client: what it says, and how it connects."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from federation import until
from fedsplit.errors import InputError
from fedsplit.remote.https import protocol
from fedsplit.remote.https import server as servers
from fedsplit.remote.https import service as services
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.connection import Connection
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.remote.https.server import HttpsServer
from https_clients import PLAIN, backwards, joined, keys_of, refusal, running


def test_another_web_server_is_not_taken_for_ours() -> None:
    class Nothing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Nothing) as other:
        threading.Thread(target=other.serve_forever, args=(0.01,), daemon=True).start()
        told = refusal(other.server_port, name="a", **PLAIN)
        other.shutdown()
    assert "is not a fedsplit server" in told


@pytest.mark.parametrize(
    "server", ["host", "host:", ":80", "host:x", "http://host:80", "host:80/path", "a@host:80", ""]
)
def test_an_address_without_host_or_port_is_refused(server: str) -> None:
    with pytest.raises(InputError, match="give HOST:PORT"):
        Endpoint(server, insecure=True)


def test_a_name_that_nobody_knows_is_said_to_be_one(made: Path) -> None:
    told: list[str] = []
    stop = threading.Event()

    def status(text: str) -> None:
        told.append(text)
        stop.set()

    endpoint = Endpoint("nosuch.invalid:8000", **keys_of(made, "ada"))
    run_client(endpoint, backwards, status=status, stop=stop)
    [text] = told
    assert text.startswith("no connection to nosuch.invalid:8000 (")
    assert "Unknown error" not in text


def test_a_reply_that_was_lost_is_sent_again_and_not_computed_again(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    tried: list[str] = []
    reply = Connection.reply

    async def broken(self: Connection, number: str, content: bytes) -> None:
        tried.append(number)
        if len(tried) == 1:
            raise ConnectionResetError
        await reply(self, number, content)

    monkeypatch.setattr(Connection, "reply", broken)

    def answer(message: bytes) -> bytes:
        asked.append(message)
        return message

    with joined(server, made, "ada", answer):
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"one"
    assert (asked, len(tried), len(set(tried))) == ([b"one"], 2, 1)


def test_a_client_that_fails_says_of_what_kind_only(server: HttpsServer, made: Path) -> None:
    def fails(message: bytes) -> bytes:
        if message == b"disk":
            raise OSError(28, "No space left on device", "/srv/state")
        raise KeyError("a patient's name")

    with joined(server, made, "ada", fails) as told:
        found = server.send({"ada": b"one"}, 30)["ada"]
        assert found[:2] == (None, "its client failed ('KeyError')")
        found = server.send({"ada": b"disk"}, 30)["ada"]
        assert found[:2] == (None, "its client failed ('OSError')")
    assert told[1] == "a question could not be answered (KeyError)"
    assert told[2] == "a question could not be answered (/srv/state: No space left on device)"


def test_a_normal_end_does_not_look_like_a_fault(made: Path) -> None:
    with HttpsServer("127.0.0.1", 0, made / "ours") as server:
        port = server.port
        server.farewell = "the run has ended, \x1b[31mbye"
        stack = joined(server, made, "ada")
        told = stack.__enter__()
    until(lambda: len(told) == 2, 20)
    with HttpsServer("127.0.0.1", port, made / "ours") as server:
        until(lambda: "ada" in server.present(), 30)
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
        stack.__exit__(None, None, None)
    assert told == [
        f"connected to 127.0.0.1:{port}",
        f"127.0.0.1:{port}: the run has ended, \ufffd[31mbye; waiting for the next one",
        f"connected to 127.0.0.1:{port}",
    ]


def test_clients_are_told_that_a_run_was_stopped(made: Path) -> None:
    def interrupted() -> None:
        with HttpsServer("127.0.0.1", 0, made / "ours") as server:
            told.append(stack.enter_context(joined(server, made, "ada")))
            raise KeyboardInterrupt

    told: list[list[str]] = []
    with ExitStack() as stack:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        until(lambda: "the run was stopped; waiting for the next one" in told[0][-1], 20)


def test_a_server_that_breaks_off_is_reported_once_and_found_again(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "CLOSING_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(services.Service, "present", lambda self: {})
    server = HttpsServer("127.0.0.1", 0, made / "ours")
    server.open()
    port = server.port
    with running(port, **keys_of(made, "ada")) as told:
        until(lambda: bool(told), 20)
        server.farewell = None  # type: ignore[assignment]  # nobody is told
        server.close()
        monkeypatch.undo()
        until(lambda: len(told) > 1, 20)
        with HttpsServer("127.0.0.1", port, made / "ours") as again:
            until(lambda: "ada" in again.present(), 30)
            until(lambda: told[-1].startswith("connected"), 10)
    assert len(told) == len(set(told)) + 1  # it connected twice


CALLS = """
import sys, threading
outside = []

def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        host = address[0] if isinstance(address, tuple) else address
        if host not in ("127.0.0.1", None):
            outside.append((event, str(host)))

sys.addaudithook(hook)
from pathlib import Path
from fedsplit.remote import issuing
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.endpoint import Endpoint

folder = Path(sys.argv[1])
issuing.make_keys(folder, ["ada"], ["127.0.0.1"], 90)
stop = threading.Event()
with HttpsServer("127.0.0.1", 0, folder) as server:
    address = f"127.0.0.1:{server.port}"
    endpoint = Endpoint(address, key=folder / "clients/ada.key", ca=folder / "ca.crt")
    options = dict(status=print, stop=stop)
    thread = threading.Thread(target=run_client, args=(endpoint, bytes.upper), kwargs=options)
    thread.start()
    while not server.present():
        stop.wait(0.05)
    print(server.send({"ada": b"one"}, 30)["ada"][0])
    stop.set()
    thread.join()
print(outside)
"""


def test_nothing_is_called_but_the_server_and_nothing_left_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    proxies = {"HTTPS_PROXY": "http://192.0.2.1:9", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(tmp_path / "keys")],
        env={**os.environ, **proxies, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    connected, reply, outside = done.stdout.splitlines()
    assert connected.startswith("connected")
    assert (reply, outside, done.stderr) == ("b'ONE'", "[]", "")
    assert list(home.iterdir()) == []


class Proxy:
    """An HTTP proxy that knows CONNECT, and what it was asked for."""

    def __init__(self, refuses: bool = False) -> None:
        self._refuses = refuses
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.asked: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(2**12)
            self.asked.append(head.decode().splitlines()[0])
            if self._refuses:
                connection.sendall(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as other:
                connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                back = threading.Thread(target=self._pass, args=(other, connection))
                back.start()
                self._pass(connection, other)
                back.join()

    @staticmethod
    def _pass(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while content := one.recv(2**16):
                other.sendall(content)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("given", [True, False])
def test_a_client_connects_through_a_proxy_end_to_end(
    server: HttpsServer,
    made: Path,
    given: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = Proxy()
    url = f"http://127.0.0.1:{proxy.port}"
    options = keys_of(made, "ada")
    if given:
        options["proxy"] = url
    else:
        monkeypatch.setenv("HTTPS_PROXY", url)
    with running(server.port, **options):
        until(lambda: "ada" in server.present(), 20)
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
    assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{server.port} ")
    proxy.close()


def test_a_proxy_that_refuses_or_is_away_is_named(server: HttpsServer, made: Path) -> None:
    proxy = Proxy(refuses=True)
    address = f"127.0.0.1:{proxy.port}"  # http:// is understood
    with running(server.port, proxy=address, **keys_of(made, "ada")) as told:
        until(lambda: "the proxy answers 407 Who are you" in "".join(told), 20)
        proxy.close()
        until(lambda: "the proxy cannot be reached: Connection refused" in told[-1], 20)
    for wrong in ("https://proxy:1", "socks5://proxy:1", "http://"):
        told_once = refusal(server.port, proxy=wrong, **keys_of(made, "ada"))
        assert "proxy: give its address as http://HOST:PORT" in told_once


def test_a_proxy_is_not_used_for_hosts_that_are_excepted(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with joined(server, made, "ada"):
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"


def bad_server(kind: str, asked: list[str]) -> type[BaseHTTPRequestHandler]:
    """A server that a client may join, and that answers nonsense afterwards."""
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {
        "too much": (200, {protocol.MESSAGE: "1"}, bytes(2**21)),
        "a line": (200, {"X": "x" * 10**5}, b""),
        "an error": (500, {}, b"\x1b[31m"),
        "a redirection": (307, {"Location": "http://192.0.2.1/"}, b""),
        "no reply wanted": (410, {}, b"a question?"),
        "a proxy": (404, {}, b""),
    }

    class Bad(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            status, headers, body = answers[kind]
            if kind != "a proxy":
                headers = {protocol.VERSION: "1", **headers}
            if self.path == protocol.JOIN:
                status, headers, body = 204, {protocol.VERSION: "1"}, b""
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Bad


@pytest.mark.parametrize(
    "kind", ["too much", "a line", "an error", "a redirection", "no reply wanted", "a proxy"]
)
def test_a_client_is_not_led_astray_by_a_server(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MESSAGE_BYTES", 2**20)
    asked: list[str] = []
    answered: list[bytes] = []

    def answer(message: bytes) -> bytes:
        answered.append(message)
        return b""

    with HTTPServer(("127.0.0.1", 0), bad_server(kind, asked)) as other:
        threading.Thread(target=other.serve_forever, args=(0.01,), daemon=True).start()
        with running(other.server_port, answer, name="a", **PLAIN) as told:
            until(lambda: any("trying again" in text for text in told), 20)
        other.shutdown()
    assert answered == []
    assert set(asked) <= {protocol.JOIN, protocol.NEXT, protocol.LEAVE}
    assert all(text.isprintable() for text in told)
