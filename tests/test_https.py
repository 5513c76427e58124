"""Messages over HTTPS: who is let in, what comes back, and what happens when something dies."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("aiohttp")

import fedsplit.remote.https.client as clients
from federation import until
from fedsplit.errors import InputError
from fedsplit.remote import certificates, folder_lock, issuing
from fedsplit.remote.https import exchange, protocol
from fedsplit.remote.https import server as servers
from fedsplit.remote.https import service as services
from fedsplit.remote.https.client import run_client
from fedsplit.remote.https.connection import Connection
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.https.tls import ClientTls
from fedsplit.remote.key_folder import read_authority
from fedsplit.remote.keys import read_private_key

PLAIN: dict[str, Any] = {"insecure": True}


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


@pytest.fixture
def plain() -> Iterator[HttpsServer]:
    """A server that lets anybody in, without TLS."""
    with HttpsServer("127.0.0.1", 0) as server:
        yield server


def backwards(message: bytes) -> bytes:
    return message[::-1]


def keys_of(made: Path, name: str) -> dict[str, Any]:
    ours = made / "ours"
    return {"key": ours / f"clients/{name}.key", "ca": ours / "ca.crt"}


@contextmanager
def running(
    port: int, folder: Path, answer: Callable[[bytes], bytes] = backwards, **options: Any
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
    folder: Path,
    answer: Callable[[bytes], bytes] = backwards,
) -> Iterator[list[str]]:
    """A client that is connected."""
    with running(server.port, folder / name, answer, **keys_of(made, name)) as told:
        until(lambda: name in server.present(), 30)
        yield told


def refusal(port: int, folder: Path, host: str = "127.0.0.1", **options: Any) -> str:
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


def test_messages_go_there_and_back(
    server: HttpsServer, made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = {"ada": b"", "bob": os.urandom(3 * protocol.PART + 1)}
    with joined(server, made, "ada", tmp_path) as told, joined(server, made, "bob", tmp_path):
        assert list(server.present()) == ["ada", "bob"]
        for _ in range(3):
            found = server.send(messages, 60)
            assert {name: reply for name, (reply, _, _) in found.items()} == {
                "ada": b"",
                "bob": messages["bob"][::-1],
            }
    assert told == [f"connected to 127.0.0.1:{server.port}"]
    assert server.present() == {}
    assert capfd.readouterr() == ("", "")


def dated(made: Path, path: Path, shift: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate of bob that was issued some days ago, or in some days."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=shift)

    key = read_private_key(made / "ours/clients/bob.key").public_key()
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Shifted)
        issued = read_authority(made / "ours").issue("bob", key, "client", 2)
    path.write_bytes(certificates.certificate_pem(issued))
    return path


OURS = {"key": "ours/clients/bob.key", "ca": "ours/ca.crt"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({**OURS, "key": "theirs/clients/eve.key"}, "was not issued by "),
        ({**OURS, "certificate": "ours/clients/ada.crt"}, "does not belong to the key"),
        ({**OURS, "certificate": "ours/nosuch.crt"}, "nosuch.crt: is missing"),
        ({**OURS, "key": "ours/server.key"}, "is not the certificate of a client"),
        ({**OURS, "key": "ours/coordinator.key"}, "is not the certificate of a client"),
        ({"ca": "ours/ca.crt"}, "give both --key and --ca"),
        ({"key": "ours/clients/bob.key"}, "give both --key and --ca"),
        (PLAIN, "uses TLS: give --key and --ca"),
        ({**OURS, **PLAIN}, "leave out --key, --ca, or --insecure"),
        (
            {"key": "theirs/clients/eve.key", "ca": "theirs/ca.crt"},
            "a proxy that inspects TLS has to let this address pass",
        ),
        ({**OURS, "key": "ours/ca.crt"}, "ca.crt: is not a private key"),
        ({**OURS, "ca": "ours/server.key"}, "server.key: is not a certificate"),
        ({**OURS, "ca": "ours/nosuch.crt"}, "nosuch.crt: there is no such file"),
        ({**OURS, "key": "ours/nosuch.key"}, "nosuch.key: there is no such file"),
    ],
)
def test_who_has_not_the_right_keys_is_refused_in_one_line(
    server: HttpsServer,
    made: Path,
    tmp_path: Path,
    options: dict[str, Any],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "GRACE", 0.1)
    options = {
        name: made / value if isinstance(value, str) else value for name, value in options.items()
    }
    assert why in refusal(server.port, tmp_path, name="x", **options)
    assert server.present() == {}
    assert server.send({"bob": b"hello"}, 60)["bob"][:2] == (None, "its client is not connected")


@pytest.mark.parametrize(
    ("shift", "why"), [(-30, "expired on"), (30, "is not valid before"), (-62, "expired on")]
)
def test_a_certificate_that_is_not_valid_now_is_refused_before_it_is_used(
    server: HttpsServer,
    made: Path,
    tmp_path: Path,
    shift: int,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = dated(made, tmp_path / "bob.crt", shift, monkeypatch)
    assert why in refusal(server.port, tmp_path, **keys_of(made, "bob"), certificate=own)


@pytest.mark.parametrize("shift", [-30, 30, None])
def test_the_handshake_refuses_what_a_client_should_not_have_sent(
    server: HttpsServer,
    made: Path,
    tmp_path: Path,
    shift: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, key = made / "theirs/clients/eve.crt", made / "theirs/clients/eve.key"
    if shift is not None:
        own, key = (
            dated(made, tmp_path / "bob.crt", shift, monkeypatch),
            keys_of(made, "bob")["key"],
        )
    tls = "fedsplit.remote.https.tls.check_certificate"
    monkeypatch.setattr(tls, lambda path, *_: certificates.read_certificate(path))
    options: dict[str, Any] = {"key": key, "certificate": own, "ca": made / "ours/ca.crt"}
    with running(server.port, tmp_path / "x", **options) as told:
        until(lambda: "the server may not accept this certificate" in "".join(told), 20)
        assert server.present() == {}


def test_an_expiry_is_warned_of_a_month_before(
    server: HttpsServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = dated(made, tmp_path / "bob.crt", 0, monkeypatch)
    with running(server.port, tmp_path, certificate=soon, **keys_of(made, "bob")) as told:
        until(lambda: "bob" in server.present(), 20)
    assert "bob.crt expires on" in told[0]
    assert "ask the coordinator for a new one" in told[0]
    assert server.warning == ""
    issuing.make_keys(tmp_path / "short", ["a"], ["localhost"], 20)
    assert "server.crt expires on" in HttpsServer("127.0.0.1", 0, tmp_path / "short").warning


def test_a_renewed_certificate_and_the_old_one_are_both_accepted(
    server: HttpsServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = dated(made, tmp_path / "bob.crt", 0, monkeypatch)
    for certificate in (None, new):
        options = keys_of(made, "bob") | {"certificate": certificate}
        with running(server.port, tmp_path / "bob", **options):
            until(lambda: "bob" in server.present(), 20)


def test_a_certificate_that_ends_meanwhile_is_named_and_a_new_one_is_used_at_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dated(made, tmp_path / "bob.crt", 0, monkeypatch)
    options = keys_of(made, "bob") | {"certificate": own}
    with ExitStack() as stack, HttpsServer("127.0.0.1", 0, made / "ours") as server:
        told = stack.enter_context(running(server.port, tmp_path / "bob", **options))
        until(lambda: "bob" in server.present(), 20)
        dated(made, own, -30, monkeypatch)
        server._service.boxes["bob"]._connections[0].abort()  # type: ignore[attr-defined]
        until(lambda: "bob.crt: expired on" in told[-1], 20)
        dated(made, own, 0, monkeypatch)
        until(lambda: "bob" in server.present(), 20)


def test_a_certificate_that_expires_on_an_open_connection_is_refused_at_the_next_request(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(server, made, "ada")
    assert hand.post(protocol.JOIN)[0] == 204

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=91)

    monkeypatch.setattr(certificates, "datetime", Later)
    status, _, text = hand.post(protocol.NEXT)
    assert (status, text[:40]) == (401, b"the certificate of this client expired o")
    hand.close()


def test_an_ed25519_key_in_openssh_format_is_accepted(made: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    ours = tmp_path / "ours"
    shutil.copytree(made / "ours", ours)
    text = Ed25519PrivateKey.generate().private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
    )
    (tmp_path / "carl.key").write_bytes(text)
    path, _ = issuing.request_certificate(tmp_path, "carl")
    with HttpsServer("127.0.0.1", 0, ours) as server:
        issuing.sign_request(ours, path, 90)  # while the server runs
        shutil.copy(ours / "clients/carl.crt", tmp_path)
        with running(server.port, tmp_path / "carl", key=tmp_path / "carl.key", ca=ours / "ca.crt"):
            until(lambda: "carl" in server.present(), 20)
            assert server.send({"carl": b"one"}, 30)["carl"][0] == b"eno"


@pytest.mark.parametrize("at_work", [False, True])
def test_a_key_that_is_revoked_shuts_its_client_out_at_once(
    made: Path, tmp_path: Path, at_work: bool
) -> None:
    ours = tmp_path / "ours"
    shutil.copytree(made / "ours", ours)
    go = threading.Event()

    def answer(message: bytes) -> bytes:
        go.wait(20)
        return message

    with (
        HttpsServer("127.0.0.1", 0, ours) as server,
        joined(server, tmp_path, "ada", tmp_path, answer) as told,
        joined(server, tmp_path, "bob", tmp_path),
    ):
        if at_work:
            with sending(server, {"ada": b"one"}) as found:
                until(lambda: server.clients()["ada"].answering, 20)
                issuing.revoke_client(ours, "ada")
            assert found["ada"][:2] == (None, "its key was revoked")
        else:
            issuing.revoke_client(ours, "ada")
        assert list(server.present()) == ["bob"]
        go.set()
        until(lambda: "revoked)" in told[-1], 20)
        assert told[-1].startswith("refused: ")
        assert server.send({"bob": b"one"}, 30)["bob"][0] == b"eno"


def test_a_certificate_for_another_host_is_refused(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    told = refusal(server.port, tmp_path, "localhost", **keys_of(made, "ada"))
    assert "its certificate is not accepted" in told
    assert "localhost" in told


def test_tls_is_not_given_up_for_a_server_without_it(
    plain: HttpsServer, made: Path, tmp_path: Path
) -> None:
    assert "does not use TLS" in refusal(plain.port, tmp_path, **keys_of(made, "ada"))
    assert plain.present() == {}


def test_another_web_server_is_not_taken_for_ours(tmp_path: Path) -> None:
    class Nothing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Nothing) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        told = refusal(other.server_port, tmp_path, name="a", **PLAIN)
        other.shutdown()
    assert "is not a fedsplit server" in told


@pytest.mark.parametrize(
    "server", ["host", "host:", ":80", "host:x", "http://host:80", "host:80/path", "a@host:80", ""]
)
def test_an_address_without_host_or_port_is_refused(server: str) -> None:
    with pytest.raises(InputError, match="give HOST:PORT"):
        Endpoint(server, insecure=True)


def test_a_name_that_nobody_knows_is_said_to_be_one(made: Path, tmp_path: Path) -> None:
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


def test_an_old_answer_and_a_second_one_are_dropped(server: HttpsServer, made: Path) -> None:
    hand = Hand(server, made, "ada")
    assert hand.post(protocol.JOIN)[0] == 204
    with sending(server, {"ada": b"one"}) as first:
        status, number, message = hand.post(protocol.NEXT)
        assert (status, message) == (200, b"one")
        assert hand.post(protocol.REPLY, b"first", Fedsplit_Message=number)[0] == 204
    assert hand.post(protocol.REPLY, b"again", Fedsplit_Message=number)[0] == 410
    hand = Hand(server, made, "ada")  # a refusal closes its connection
    with sending(server, {"ada": b"two"}) as second:
        _, later, _ = hand.post(protocol.NEXT)
        for wrong in (number, "", "x" * 32):
            other = Hand(server, made, "ada")
            assert other.post(protocol.REPLY, b"old", Fedsplit_Message=wrong)[0] == 410
            other.close()
        assert hand.post(protocol.REPLY, b"good", Fedsplit_Message=later)[0] == 204
        assert hand.post(protocol.REPLY, b"bad", Fedsplit_Message=later)[0] == 410
    assert (first["ada"][0], second["ada"][0]) == (b"first", b"good")
    hand.close()


def test_an_answer_that_comes_late_is_dropped(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    go = threading.Event()

    def slow(message: bytes) -> bytes:
        if message == b"one":
            go.wait(20)
        return message

    with joined(server, made, "ada", tmp_path, slow) as told:
        assert server.send({"ada": b"one"}, 0.2)["ada"][:2] == (None, "no answer in time")
        go.set()
        assert server.send({"ada": b"two"}, 30)["ada"][0] == b"two"
    assert len(told) == 1


def test_a_client_that_comes_back_gets_its_message_again(server: HttpsServer, made: Path) -> None:
    first = Hand(server, made, "ada", "a" * 32)
    with sending(server, {"ada": b"one"}) as found:
        _, number, _ = first.post(protocol.NEXT)
        first.close()  # its process died
        until(lambda: "ada" not in server.present(), 10)
        second = Hand(server, made, "ada", "b" * 32)
        status, again, message = second.post(protocol.NEXT)
        assert (status, again, message) == (200, number, b"one")
        assert second.post(protocol.REPLY, b"two", Fedsplit_Message=number)[0] == 204
    assert found["ada"][:2] == (b"two", "")
    second.close()


def test_a_reply_that_was_lost_is_sent_again_and_not_computed_again(
    server: HttpsServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    with joined(server, made, "ada", tmp_path, answer):
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"one"
    assert (asked, len(tried), len(set(tried))) == ([b"one"], 2, 1)


def test_an_answer_that_is_too_large_is_refused(made: Path, tmp_path: Path) -> None:
    sizes = {b"a": 2**20, b"b": 2**20 + 1, b"c": 2**24}
    with (
        HttpsServer("127.0.0.1", 0, made / "ours", largest=2**20) as server,
        joined(server, made, "ada", tmp_path, lambda word: bytes(sizes[word])),
    ):
        for word in (*sizes, b"a"):
            reply, what, _ = server.send({"ada": word}, 30)["ada"]
            assert (reply is None, "too large" in what) == (word != b"a", word != b"a")


def test_a_body_without_a_length_is_refused_before_it_is_read(
    server: HttpsServer, made: Path
) -> None:
    for path, headers, status in [
        (protocol.REPLY, {"Transfer_Encoding": "chunked"}, 411),
        (protocol.REPLY, {"Content_Encoding": "gzip", "Content_Length": "5"}, 411),
        (protocol.JOIN, {"Content_Length": "5"}, 413),
        (protocol.NEXT, {"Content_Length": str(2**40)}, 413),
    ]:
        hand = Hand(server, made, "ada")
        assert hand.post(path, b"", **headers)[0] == status
        hand.close()


def test_a_client_that_fails_says_of_what_kind_only(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    def fails(message: bytes) -> bytes:
        if message == b"disk":
            raise OSError(28, "No space left on device", "/srv/state")
        raise KeyError("a patient's name")

    with joined(server, made, "ada", tmp_path, fails) as told:
        found = server.send({"ada": b"one"}, 30)["ada"]
        assert found[:2] == (None, "its client failed ('KeyError')")
        found = server.send({"ada": b"disk"}, 30)["ada"]
        assert found[:2] == (None, "its client failed ('OSError')")
    assert told[1] == "a question could not be answered (KeyError)"
    assert told[2] == "a question could not be answered (/srv/state: No space left on device)"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_five_paths_is_served(server: HttpsServer, made: Path, method: str) -> None:
    context = ClientTls(**keys_of(made, "ada")).context
    paths = ["/", "/health", "/metrics", "/v1", "/v1/", "//v1/join", "/v1/join/", "/v1/%6aoin"]
    paths += ["/v1/../v1/join", "/v1/join?a=1", "/v1/fleet/pull-messages", "/v1/control/start-run"]
    if method != "POST":
        paths += [protocol.JOIN, protocol.NEXT, protocol.REPLY]
    connection = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=10)
    for path in paths:
        connection.request(method, path, headers={protocol.INSTANCE: "a" * 32})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (404, b""), path
        connection.close()
    assert server.present() == {}


def test_a_client_speaks_for_itself_alone(server: HttpsServer, made: Path, tmp_path: Path) -> None:
    go = threading.Event()

    def answer(message: bytes) -> bytes:
        go.wait(20)
        return message

    with joined(server, made, "bob", tmp_path, answer):
        ada = Hand(server, made, "ada")
        with sending(server, {"bob": b"for bob", "ada": b"for ada"}) as found:
            _, number, message = ada.post(protocol.NEXT, Fedsplit_Name="bob")
            assert message == b"for ada"
            posted = server._service.boxes["bob"].posted
            assert posted is not None
            other = Hand(server, made, "ada")
            assert other.post(protocol.REPLY, b"x", Fedsplit_Message=posted.number)[0] == 410
            ada.post(protocol.REPLY, b"from ada", Fedsplit_Message=number)
            go.set()
        for hand in (ada, other):
            hand.close()
    assert found["bob"][0] == b"for bob"
    assert found["ada"][0] == b"from ada"


def test_without_keys_a_client_has_the_name_that_it_gives_itself(
    plain: HttpsServer, tmp_path: Path
) -> None:
    with (
        running(plain.port, tmp_path / "1", name="St Mary’s", **PLAIN),
        running(plain.port, tmp_path / "2", name="b", **PLAIN),
    ):
        until(lambda: set(plain.present()) == {"St Mary’s", "b"}, 30)
        assert plain.send({"b": b"one", "St Mary’s": b"two"}, 30)["St Mary’s"][0] == b"owt"


def test_a_name_or_key_that_is_in_use_is_not_given_twice(
    plain: HttpsServer,
    server: HttpsServer,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "IN_USE", 0.3)
    with running(plain.port, tmp_path / "a", name="ada", **PLAIN):
        until(lambda: bool(plain.present()), 30)
        told = refusal(plain.port, tmp_path / "other", name="ada", **PLAIN)
        assert "another process is there as ada already: stop it, or choose another --name" in told
        assert list(plain.present()) == ["ada"]
    with joined(server, made, "ada", tmp_path):
        told = refusal(server.port, tmp_path / "other", **keys_of(made, "ada"))
        assert "another process is there as ada already: stop it, or use another key" in told
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
    with joined(server, made, "ada", tmp_path / "new"):  # the process before it is gone
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"


def test_a_client_that_says_nothing_is_given_up_and_another_process_takes_its_place(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Hand(server, made, "ada", "a" * 32)
    assert first.post(protocol.JOIN)[0] == 204
    second = Hand(server, made, "ada", "b" * 32)
    assert second.post(protocol.JOIN)[0] == 409
    monkeypatch.setattr("fedsplit.remote.https.mailbox.SILENCE", 0.05)
    until(lambda: server.present() == {}, 10)
    monkeypatch.undo()
    server._service.boxes["ada"]._seen -= protocol.SILENCE
    second = Hand(server, made, "ada", "b" * 32)
    assert second.post(protocol.JOIN)[0] == 204
    first.close()
    second.close()


def test_one_folder_is_for_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "ENDING", 0.2)
    with (
        folder_lock.alone(tmp_path),
        pytest.raises(InputError, match="is used by another client"),
        folder_lock.alone(tmp_path),
    ):
        pass


def test_who_is_not_there_holds_nobody_up_for_long(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    with joined(server, made, "ada", tmp_path):
        found = server.send({"ada": b"one", "bob": b"two", "eve": b"three"}, 30)
    assert found["ada"][0] == b"eno"
    gone = (None, "its client is not connected")
    assert [found[name][:2] for name in ("bob", "eve")] == [gone] * 2


def test_a_server_says_where_it_cannot_listen_and_which_keys_cannot_be_used(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot listen there"):
        HttpsServer("127.0.0.1", server.port).open()
    with pytest.raises(InputError, match="cannot listen there"):
        HttpsServer("127.0.0.1", 0, metrics=server.port).open()
    folder = tmp_path / "mixed"
    shutil.copytree(made / "ours", folder)
    shutil.copy(made / "theirs/server.key", folder)
    with pytest.raises(InputError, match=r"server.crt: does not belong to the key"):
        HttpsServer("127.0.0.1", 0, folder)
    (folder / "server.key").unlink()
    with pytest.raises(InputError, match=r"server.key: cannot be read"):
        HttpsServer("127.0.0.1", 0, folder)


def test_a_normal_end_does_not_look_like_a_fault(made: Path, tmp_path: Path) -> None:
    with HttpsServer("127.0.0.1", 0, made / "ours") as server:
        port = server.port
        server.farewell = "the run has ended, the model\x1b[31m is done"
        stack = joined(server, made, "ada", tmp_path)
        told = stack.__enter__()
    until(lambda: len(told) == 2, 20)
    with HttpsServer("127.0.0.1", port, made / "ours") as server:
        until(lambda: "ada" in server.present(), 30)
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
        stack.__exit__(None, None, None)
    assert told == [
        f"connected to 127.0.0.1:{port}",
        f"127.0.0.1:{port}: the run has ended, the model[31m is done; waiting for the next one",
        f"connected to 127.0.0.1:{port}",
    ]


def test_clients_are_told_that_a_run_was_stopped(made: Path, tmp_path: Path) -> None:
    def interrupted() -> None:
        with HttpsServer("127.0.0.1", 0, made / "ours") as server:
            told.append(stack.enter_context(joined(server, made, "ada", tmp_path)))
            raise KeyboardInterrupt

    told: list[list[str]] = []
    with ExitStack() as stack:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        until(lambda: "the run was stopped; waiting for the next one" in told[0][-1], 20)


def test_a_server_that_breaks_off_is_reported_once_and_found_again(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "FAREWELL", 0.0)
    monkeypatch.setattr(services.Service, "present", lambda self: {})
    server = HttpsServer("127.0.0.1", 0, made / "ours")
    server.open()
    port = server.port
    with running(port, tmp_path / "ada", **keys_of(made, "ada")) as told:
        until(lambda: bool(told), 20)
        server.farewell = None  # type: ignore[assignment]  # nobody is told
        server.close()
        monkeypatch.undo()
        until(lambda: len(told) > 1, 20)
        with HttpsServer("127.0.0.1", port, made / "ours") as again:
            until(lambda: "ada" in again.present(), 30)
            until(lambda: told[-1].startswith("connected"), 10)
    assert len(told) == len(set(told)) + 1  # it connected twice


def test_health_and_metrics_are_served_on_this_machine_alone(made: Path, tmp_path: Path) -> None:
    with (
        HttpsServer("127.0.0.1", 0, made / "ours", metrics=0) as server,
        joined(server, made, "ada", tmp_path),
    ):
        server.send({"ada": b"one"}, 30)
        base = f"http://127.0.0.1:{server.metrics}"
        assert urlopen(f"{base}/health").read() == b'{"status": "ok", "clients": 1}'
        text = urlopen(f"{base}/metrics").read().decode()
        for line in (
            "fedsplit_questions_total 1",
            "fedsplit_received_bytes_total 3",
            "fedsplit_clients 1",
            'fedsplit_silent_seconds{client="ada"}',
            "fedsplit_certificate_expiry_seconds",
        ):
            assert line in text
        for url, headers in ((base, {}), (f"{base}/metrics", {"Host": "evil.example"})):
            with pytest.raises(OSError, match=r"HTTP Error (404|403)"):
                urlopen(Request(url, headers=headers))
    assert server.metrics != server.port


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
    tmp_path: Path,
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
    with running(server.port, tmp_path, **options):
        until(lambda: "ada" in server.present(), 20)
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
    assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{server.port} ")
    proxy.close()


def test_a_proxy_that_refuses_or_is_away_is_named(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    proxy = Proxy(refuses=True)
    address = f"127.0.0.1:{proxy.port}"  # http:// is understood
    with running(server.port, tmp_path, proxy=address, **keys_of(made, "ada")) as told:
        until(lambda: "the proxy answers 407 Who are you" in "".join(told), 20)
        proxy.close()
        until(lambda: "the proxy cannot be reached: Connection refused" in told[-1], 20)
    for wrong in ("https://proxy:1", "socks5://proxy:1", "http://"):
        told_once = refusal(server.port, tmp_path, proxy=wrong, **keys_of(made, "ada"))
        assert "proxy: give its address as http://HOST:PORT" in told_once


def test_a_proxy_is_not_used_for_hosts_that_are_excepted(
    server: HttpsServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with joined(server, made, "ada", tmp_path):
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"


@pytest.mark.parametrize("kind", ["too much", "a line", "an error", "a redirection"])
def test_a_client_is_not_led_astray_by_a_server(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "LARGEST", 2**20)
    asked: list[str] = []

    class Bad(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            answers: dict[str, tuple[int, dict[str, str], bytes]] = {
                "too much": (200, {protocol.MESSAGE: "1"}, bytes(2**21)),
                "a line": (200, {"X": "x" * 10**5}, b""),
                "an error": (500, {}, b"\x1b[31m"),
                "a redirection": (307, {"Location": "http://192.0.2.1/"}, b""),
            }
            status, headers, body = answers[kind]
            if self.path == protocol.JOIN:
                status, headers, body = 204, {}, b""
            self.send_response(status)
            for name, value in {protocol.VERSION: "1", **headers}.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    answered: list[bytes] = []

    def answer(message: bytes) -> bytes:
        answered.append(message)
        return b""

    with HTTPServer(("127.0.0.1", 0), Bad) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        with running(other.server_port, tmp_path, answer, name="a", **PLAIN) as told:
            until(lambda: any("trying again" in text for text in told), 20)
        other.shutdown()
    assert answered == []
    assert set(asked) <= {protocol.JOIN, protocol.NEXT, protocol.LEAVE}
    assert all(text.isprintable() for text in told)
