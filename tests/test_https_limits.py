"""A server under attack by those who have no certificate, or one that was revoked."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from federation import until
from fedsplit.remote.https import listener, mailbox, protocol
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.https.tls import ClientTls
from https_clients import Hand, joined, keys_of, running


def stranger() -> ssl.SSLContext:
    """TLS without a certificate, by somebody who does not care whose server it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def hello() -> bytes:
    """The first message of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    end = stranger().wrap_bio(ssl.MemoryBIO(), outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    return outgoing.read()


def closed(connection: socket.socket) -> bool:
    """Whether the other end has closed a connection; what it has sent is dropped."""
    connection.settimeout(0.01)
    try:
        while connection.recv(2**16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("kind", ["nothing", "half a handshake", "a byte", "no TLS"])
def test_connections_without_a_certificate_keep_nobody_out(
    made: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 1000.0)
    first = {"nothing": b"", "half a handshake": hello(), "a byte": hello()[:1]}
    content = first.get(kind, b"POST /v1/next HTTP/1.1\r\nHost: x\r\n")
    with HttpsServer("127.0.0.1", 0, made / "ours") as server, ExitStack() as stack:
        attack = []
        for _ in range(5 * listener.PENDING_HANDSHAKES):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            attack.append(stack.enter_context(connection))
            try:
                connection.sendall(content)
            except OSError:
                continue  # it is closed already
        with joined(server, made, "ada"):  # from the same address
            assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
            monkeypatch.setattr(listener, "PROMPT_SECONDS", 0.0)  # time has passed
            for _ in range(2):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            until(
                lambda: sum(not closed(each) for each in attack) <= listener.PENDING_HANDSHAKES, 20
            )
        stack.close()
        until(lambda: not server._listeners[0]._under_way, 20)


def test_so_many_connections_that_all_places_are_taken_keep_nobody_out(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ALL_PENDING_HANDSHAKES", 40)
    monkeypatch.setattr(listener, "PROMPT_SECONDS", 1000.0)
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 1000.0)
    with HttpsServer("127.0.0.1", 0, made / "ours") as server, ExitStack() as stack:
        for _ in range(120):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        with joined(server, made, "ada"):
            until(lambda: len(server._listeners[0]._under_way) <= 40, 20)
            assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
        stack.close()  # the server waits for handshakes that are under way


def test_so_many_complete_connections_of_one_address_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "ADDRESS_CONNECTIONS", 8)
    with HttpsServer("127.0.0.1", 0) as server, ExitStack() as stack:  # without certificates
        attack = []
        for _ in range(40):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            attack.append(stack.enter_context(connection))
        until(lambda: sum(not closed(each) for each in attack) <= 8, 20)
        with running(server.port, name="ada", insecure=True):  # from the same address
            until(lambda: "ada" in server.present(), 20)
            for _ in range(40):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"


def test_headers_cannot_be_sent_without_a_certificate(server: HttpsServer, made: Path) -> None:
    with ExitStack() as stack, joined(server, made, "ada"):
        attack = []
        for _ in range(50):
            plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            stack.enter_context(plain)
            try:  # by TLS 1.3 this side believes that all is well
                secret = stranger().wrap_socket(plain, server_hostname="x")
                attack.append(stack.enter_context(secret))
                secret.sendall(b"POST /v1/next HTTP/1.1\r\nHost: x\r\nA: ")
            except OSError:
                continue
        until(lambda: all(map(closed, attack)), 20)
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
        assert server._service.boxes.keys() == {"ada"}


def test_a_handshake_has_a_time(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 0.2)
    with (
        HttpsServer("127.0.0.1", 0, made / "ours") as server,
        socket.create_connection(("127.0.0.1", server.port)) as slow,
    ):
        slow.sendall(hello()[:100])
        until(lambda: closed(slow), 20)
        assert server._counts.handshakes_failed == 1


@pytest.mark.parametrize("revoked", [False, True])
def test_headers_have_a_time_and_a_size(
    made: Path, tmp_path: Path, revoked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HEADERS_SECONDS", 0.3)
    ours = tmp_path / "ours"
    shutil.copytree(made / "ours", ours)
    context = ClientTls(**keys_of(tmp_path, "ada")).context
    if revoked:
        (ours / "clients/ada.pub").unlink()
    with HttpsServer("127.0.0.1", 0, ours) as server, ExitStack() as stack:
        opened = []
        for content in (b"", b"POST /v1/next HTTP/1.1\r\nA: ", b"POST " + b"x" * 10**6):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            secret = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            opened.append(secret)
            try:
                secret.sendall(content)
            except OSError:
                continue
        until(lambda: all(map(closed, opened)), 20)
        assert server.present() == {}


def test_one_client_has_a_few_connections(server: HttpsServer, made: Path) -> None:
    hands = []
    for _ in range(3 * mailbox.CONNECTIONS):
        hand = Hand(server, made, "ada")
        assert hand.post(protocol.JOIN)[0] == 204
        hands.append(hand)
    box = server._service.boxes["ada"]
    assert sum(not each.is_closing() for each in box._connections) <= mailbox.CONNECTIONS
    for hand in hands:
        hand.close()


def test_a_body_has_a_time(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "TRANSFER_SECONDS", 0.3)
    hand = Hand(server, made, "ada")
    found: dict[str, object] = {}
    thread = threading.Thread(target=lambda: found.update(server.send({"ada": b"one"}, 30)))
    thread.start()
    _, number, _ = hand.post(protocol.NEXT)
    status, _, _ = hand.post(
        protocol.REPLY, b"little", Fedsplit_Message=number, Content_Length="1000000"
    )
    assert status == 408
    hand.close()  # as after every refusal of a body
    hand = Hand(server, made, "ada")
    hand.post(protocol.REPLY, Fedsplit_Message=number, Fedsplit_Failed="slow")
    thread.join(20)
    assert found["ada"][0] is None  # type: ignore[index]
    hand.close()


def test_a_flood_of_requests_leaves_nothing_behind(server: HttpsServer, made: Path) -> None:
    for number in range(30):
        hand = Hand(server, made, "ada", f"{number:032x}")
        assert hand.post("/v1/" + "x" * 1000)[0] == 404
        hand.close()
    assert server._service.boxes == {}
