"""HTTPS between a coordinator and its sites: who is heard, what is read, what holds nobody up."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

import aiohttp
import aiohttp.web

from fedsplit.errors import InputError
from fedsplit.federation import authority
from fedsplit.federation.transport.https import coordinator, wire
from fedsplit.federation.transport.https.coordinator import HttpsTransport
from fedsplit.federation.transport.https.site import serve
from fedsplit.federation.transport.https.wire import (
    FRAME,
    INSTANCE,
    NAME,
    PIECE,
    PROTOCOL,
    TICKET,
    Closing,
    ConnectionLimits,
    PartialMessage,
    Unexpected,
    send,
)

HOST = "127.0.0.1"
PROMPT = ConnectionLimits(absent=0.2, lost=0.2, first_pause=0.05, longest_pause=0.2)
"""Nobody waits for long."""


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something holds; it is an error if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a coordinator and of the sites ada and bob, and those of strangers."""
    folder = tmp_path_factory.mktemp("federation")
    for home, names in (("home", ("ada", "bob")), ("theirs", ("eve",))):
        authority.create(folder / home, [HOST], 90)
        for name in names:
            enrol(folder / home, folder / name)
    return folder


def enrol(home: Path, site: Path) -> None:
    pem = authority.sign(home, site.name, authority.request(site, site.name), 90)
    authority.accept(site, pem)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The same, for a test that changes them."""
    return Path(shutil.copytree(made, tmp_path / "federation"))


@pytest.fixture
def transport(made: Path) -> Iterator[HttpsTransport]:
    """A coordinator that waits for nobody who is not there."""
    with HttpsTransport(made / "home", HOST, 0, limits=PROMPT) as transport:
        yield transport


@pytest.fixture
def patient(made: Path) -> Iterator[HttpsTransport]:
    """A coordinator that waits as long as it does elsewhere."""
    with HttpsTransport(made / "home", HOST, 0) as transport:
        yield transport


def backwards(message: bytes) -> bytes:
    return message[::-1]


@contextmanager
def running(
    transport: HttpsTransport | int,
    site: Path | None,
    reply: Callable[[bytes], bytes] = backwards,
    **options: Any,
) -> Iterator[list[str]]:
    """A site in a thread of this process; what it says."""
    said: list[str] = []
    stop = threading.Event()
    port = transport if isinstance(transport, int) else transport.port
    url = f"{'http' if site is None else 'https'}://{HOST}:{port}"
    chosen: dict[str, Any] = {"limits": PROMPT, "status": said.append, "stop": stop} | options

    def work() -> None:
        try:
            serve(reply, site, url, **chosen)
        except InputError as error:
            said.append(f"refused: {error}")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield said
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def joined(
    transport: HttpsTransport,
    site: Path,
    reply: Callable[[bytes], bytes] = backwards,
    **options: Any,
) -> Iterator[list[str]]:
    """A site that is connected."""
    with running(transport, site, reply, **options) as said:
        until(lambda: site.name in transport.connected)
        yield said


def refusal(port: int, site: Path | None, **options: Any) -> str:
    """The line with which a site gives up."""
    with running(port, site, **options) as said:
        until(lambda: any(each.startswith("refused: ") for each in said))
    assert all(each.isprintable() for each in said)
    return said[-1]


def ask(
    transport: HttpsTransport, seconds: float = 60.0, largest: int = 2**20, **messages: bytes
) -> dict[str, bytes]:
    return dict(transport.exchange(messages, seconds, largest))


@contextmanager
def asking(
    transport: HttpsTransport, seconds: float = 60.0, largest: int = 2**20, **messages: bytes
) -> Iterator[dict[str, bytes]]:
    """Ask in another thread; what came back is there at the end."""
    found: dict[str, bytes] = {}
    thread = threading.Thread(
        target=lambda: found.update(ask(transport, seconds, largest, **messages))
    )
    thread.start()
    yield found
    thread.join(60)
    assert not thread.is_alive()


class Hand:
    """A site that does what the test wants, in an event loop of its own."""

    def __init__(self, transport: HttpsTransport, site: Path, **headers: str) -> None:
        self._runner = asyncio.Runner()
        self._site = site
        self._url = f"https://{HOST}:{transport.port}/"
        self._headers = {INSTANCE: os.urandom(8).hex()} | headers

    def __enter__(self) -> Hand:
        self._runner.run(self._open())
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError, aiohttp.ClientError):
            self._runner.run(self._close())
        self._runner.close()

    async def _open(self) -> None:
        context = authority.tls_context(self._site, "site")
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))
        self.socket = await self._session.ws_connect(
            self._url, headers=self._headers, protocols=(PROTOCOL,), max_msg_size=FRAME
        )

    async def _close(self) -> None:
        await self.socket.close()
        await self._session.close()
        await asyncio.sleep(0.05)

    def receive(self) -> aiohttp.WSMessage:
        return self._runner.run(asyncio.wait_for(self.socket.receive(), 30))

    def question(self) -> tuple[bytes, bytes]:
        """The next message, of one frame, and its ticket."""
        while (frame := self.receive()).type is not aiohttp.WSMsgType.BINARY:
            assert frame.type is aiohttp.WSMsgType.TEXT
        return frame.data[:TICKET], frame.data[2 * TICKET :]

    def closed(self) -> int:
        """The code with which the coordinator closes the connection."""
        while (frame := self.receive()).type is not aiohttp.WSMsgType.CLOSE:
            pass
        return int(frame.data)

    def send(self, ticket: bytes, message: bytes) -> None:
        self._runner.run(send(self.socket, ticket, message))

    def frame(self, content: bytes) -> None:
        self._runner.run(self.socket.send_bytes(content))

    def text(self, content: str) -> None:
        self._runner.run(self.socket.send_str(content))


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_messages_go_there_and_back(
    transport: HttpsTransport, made: Path, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    message = os.urandom(size)
    with joined(transport, made / "ada") as said, joined(transport, made / "bob"):
        for _ in range(3):
            found = ask(transport, ada=b"", bob=message)
            assert found == {"ada": b"", "bob": message[::-1]}
        assert transport.connected == ["ada", "bob"]
    assert said == [f"connected to {HOST}:{transport.port}"]
    until(lambda: transport.connected == [])
    assert capfd.readouterr() == ("", "")


def test_a_site_that_connects_late_is_asked_what_the_others_were_asked(
    patient: HttpsTransport, made: Path
) -> None:
    with ExitStack() as stack:
        with asking(patient, ada=b"one", bob=b"two") as found:
            stack.enter_context(joined(patient, made / "ada"))
            stack.enter_context(joined(patient, made / "bob"))
        assert found == {"ada": b"eno", "bob": b"owt"}


def test_a_reply_that_comes_late_is_dropped(transport: HttpsTransport, made: Path) -> None:
    go = threading.Event()

    def slow(message: bytes) -> bytes:
        if message == b"one":
            go.wait(60)
        return message

    with joined(transport, made / "ada", slow) as said:
        assert ask(transport, seconds=0.2, ada=b"one") == {}
        with asking(transport, ada=b"two") as found:
            go.set()
        assert found == {"ada": b"two"}
    assert len(said) == 1


def test_a_reply_to_an_earlier_request_is_not_taken_for_one_to_this(
    transport: HttpsTransport, made: Path
) -> None:
    with Hand(transport, made / "ada") as hand:
        until(lambda: transport.connected == ["ada"])
        assert ask(transport, seconds=0.1, ada=b"one") == {}
        first, _ = hand.question()
        with asking(transport, ada=b"two") as found:
            second, message = hand.question()
            assert (message, first != second) == (b"two", True)
            hand.send(first, b"late")
            hand.send(second, b"good")
        assert found == {"ada": b"good"}


@pytest.mark.parametrize("kind", ["answered", "invented", "text", "short"])
def test_a_site_that_sends_what_nobody_asked_for_is_disconnected(
    transport: HttpsTransport, made: Path, kind: str
) -> None:
    with Hand(transport, made / "ada") as hand, joined(transport, made / "bob"):
        with asking(transport, ada=b"one", bob=b"two") as found:
            ticket, _ = hand.question()
            match kind:
                case "answered":
                    hand.send(ticket, b"first")
                    hand.send(ticket, b"second")
                case "invented":
                    hand.send(bytes(TICKET), b"anything")
                case "text":
                    hand.text("anything")
                case "short":
                    hand.frame(ticket)
            assert hand.closed() == Closing.UNEXPECTED
        assert found.pop("bob") == b"owt"
        assert found == ({"ada": b"first"} if kind == "answered" else {})


def test_a_message_is_received_in_order_and_whole_or_not_at_all() -> None:
    def frame(size: int, piece: bytes, ticket: bytes = b"12345678") -> bytes:
        return ticket + size.to_bytes(TICKET, "little") + piece

    arrival = PartialMessage()
    piece = os.urandom(PIECE)
    assert arrival.add(frame(PIECE + 2, piece), 2**20) is None
    assert arrival.add(frame(PIECE + 2, b"ab"), 2**20) == piece + b"ab"
    assert arrival.add(frame(0, b""), 0) == b""
    for wrong in (
        frame(PIECE + 2, b"ab"),  # pieces are full, but for the last one
        frame(PIECE + 2, piece[1:]),
        frame(3, b"ab"),
        frame(2, b"abc"),
        frame(2**21, piece),
        frame(2**64 - 1, piece),
        b"",
        b"1234",
        b"12345678",
        b"123456789",
    ):
        arrival = PartialMessage()
        with pytest.raises(Unexpected):
            arrival.add(wrong, 2**20)
    arrival = PartialMessage()
    arrival.add(frame(PIECE + 2, piece), 2**20)
    with pytest.raises(Unexpected):  # another length than it began with
        arrival.add(frame(PIECE - 1, b""), 2**20)
    arrival = PartialMessage()
    arrival.add(frame(PIECE + 2, piece, b"abandons"), 2**20)
    assert arrival.add(frame(2, b"ab"), 2**20) == b"ab"


def test_a_site_that_reads_on_is_asked_what_came_after_the_message_it_had_not_read(
    transport: HttpsTransport, made: Path
) -> None:
    with Hand(transport, made / "ada") as slow:
        until(lambda: transport.connected == ["ada"])
        assert ask(transport, seconds=0.5, ada=bytes(2**26)) == {}  # more than sockets hold
        with asking(transport, ada=os.urandom(8 * PIECE)) as found:
            until(lambda: len(transport._peers["ada"].asked) == 2)
            first, _ = slow.question()
            while (ticket := slow.question()[0]) == first:
                pass
            assert [slow.question()[0] for _ in range(7)] == 7 * [ticket]
            slow.send(ticket, b"owt")
        assert found == {"ada": b"owt"}


def test_a_reply_that_is_too_large_is_not_read_and_ends_nobody_elses_exchange(
    transport: HttpsTransport, made: Path
) -> None:
    sizes = {b"a": 2**20, b"b": 2**20 + 1, b"c": 2**25}
    with (
        joined(transport, made / "ada", lambda word: bytes(sizes[word])),
        joined(transport, made / "bob"),
    ):
        for word in (*sizes, b"a"):
            until(lambda: len(transport.connected) == 2)
            found = ask(transport, ada=word, bob=b"bob")
            assert found.pop("bob") == b"bob"
            assert [len(each) for each in found.values()] == ([2**20] if word == b"a" else [])


def test_a_reply_that_was_lost_is_sent_again_and_not_computed_again(
    patient: HttpsTransport, made: Path
) -> None:
    asked: list[bytes] = []
    go = threading.Event()

    def reply(message: bytes) -> bytes:
        asked.append(message)
        go.wait(60)
        return message

    with (
        joined(patient, made / "ada", reply) as said,
        asking(patient, ada=b"one") as found,
    ):
        until(lambda: asked)
        patient._peers["ada"].transport.abort()  # the network breaks
        until(lambda: said.count(said[0]) == 2)
        go.set()
    assert found == {"ada": b"one"}
    assert asked == [b"one"]


def test_a_site_that_fails_says_nothing_else_and_is_not_waited_for(
    transport: HttpsTransport, made: Path
) -> None:
    def fails(message: bytes) -> bytes:
        if message == b"disk":
            raise OSError(28, "No space left on device", "/srv/state")
        if message == b"name":
            raise KeyError("a patient's name")
        return message

    with joined(transport, made / "ada", fails) as said:
        assert ask(transport, ada=b"name") == {}
        assert ask(transport, ada=b"disk") == {}
        assert ask(transport, ada=b"good") == {"ada": b"good"}
    assert said[1:] == [
        "a message could not be replied to (KeyError)",
        "a message could not be replied to (/srv/state: No space left on device)",
    ]


def test_who_is_not_there_holds_nobody_up_for_long(transport: HttpsTransport, made: Path) -> None:
    with joined(transport, made / "ada"):
        began = time.monotonic()
        assert ask(transport, seconds=600, ada=b"one", bob=b"two", eve=b"x") == {"ada": b"eno"}
        assert time.monotonic() - began < 60


def test_one_exchange_is_under_way_and_another_one_ends_it(
    transport: HttpsTransport, made: Path
) -> None:
    with joined(transport, made / "ada"):
        first = transport.exchange({"ada": b"one", "bob": b"two"}, 60, 2**20)
        assert next(first) == ("ada", b"eno")
        first.close()  # type: ignore[attr-defined]  # whoever has enough need not wait
        assert ask(transport, ada=b"three") == {"ada": b"eerht"}


def test_an_exchange_ends_when_its_time_is_over(transport: HttpsTransport, made: Path) -> None:
    go = threading.Event()
    with joined(transport, made / "ada", lambda _: bytes(go.wait(60))):
        began = time.monotonic()
        assert ask(transport, seconds=0.3, ada=b"one") == {}
        assert time.monotonic() - began < 30
        go.set()


def test_a_reply_that_takes_longer_than_a_heartbeat_arrives(made: Path) -> None:
    limits = replace(PROMPT, heartbeat=0.2)
    go = threading.Event()
    with HttpsTransport(made / "home", HOST, 0, limits=limits) as transport:

        def slow(message: bytes) -> bytes:
            go.wait(1.5)
            return message

        with joined(transport, made / "ada", slow, limits=limits) as said:
            assert ask(transport, ada=b"one") == {"ada": b"one"}
        assert len(said) == 1


def test_a_site_that_is_silent_is_given_up(made: Path) -> None:
    limits = replace(PROMPT, heartbeat=0.2)
    with (
        HttpsTransport(made / "home", HOST, 0, limits=limits) as transport,
        Hand(transport, made / "ada"),  # whose loop stands still: no ping is answered
    ):
        until(lambda: transport.connected == ["ada"])
        until(lambda: transport.connected == [])


# ---------------------------------------------------------------------- names


def test_a_site_speaks_for_itself_alone(transport: HttpsTransport, made: Path) -> None:
    with (
        joined(transport, made / "bob"),
        Hand(transport, made / "ada", **{NAME: "bob"}) as ada,
    ):
        until(lambda: transport.connected == ["ada", "bob"])
        with asking(transport, ada=b"for ada", bob=b"for bob") as found:
            ticket, message = ada.question()
            assert message == b"for ada"
            ada.send(ticket, b"bob: from bob")
        assert found == {"ada": b"bob: from bob", "bob": b"bob rof"}


def test_a_name_that_is_in_use_is_not_given_twice(transport: HttpsTransport, made: Path) -> None:
    limits = replace(PROMPT, in_use=0.3)
    with joined(transport, made / "ada"):
        said = refusal(transport.port, made / "ada", limits=limits)
        assert "another process is connected as ada already: stop it first" in said
        assert ask(transport, ada=b"one") == {"ada": b"eno"}
    with joined(transport, made / "ada"):  # the process before it is gone
        assert ask(transport, ada=b"one") == {"ada": b"eno"}


def test_a_connection_of_the_same_process_takes_the_place_of_the_one_before(
    transport: HttpsTransport, made: Path
) -> None:
    same = {INSTANCE: "7"}
    with Hand(transport, made / "ada", **same) as dead:
        until(lambda: transport.connected == ["ada"])
        with (
            asking(transport, ada=b"one") as found,
            Hand(transport, made / "ada", **same) as hand,
        ):
            ticket, message = hand.question()
            hand.send(ticket, message + b"!")
        assert found == {"ada": b"one!"}
        assert dead.closed() == Closing.UNEXPECTED


def test_a_site_that_comes_back_gets_its_message_again(patient: HttpsTransport, made: Path) -> None:
    with asking(patient, ada=b"one") as found:
        with Hand(patient, made / "ada") as first:
            ticket, _ = first.question()
        with Hand(patient, made / "ada") as second:
            again, message = second.question()
            assert (again, message) == (ticket, b"one")
            second.send(again, b"two")
    assert found == {"ada": b"two"}


def test_without_keys_a_site_states_its_name_on_this_machine_alone() -> None:
    with (
        HttpsTransport(None, HOST, 0, limits=PROMPT) as transport,
        running(transport, None, name="north") as said,
        running(transport, None, name="south"),
    ):
        until(lambda: transport.connected == ["north", "south"])
        assert ask(transport, north=b"one", south=b"two") == {"north": b"eno", "south": b"owt"}
        assert "another process is connected as north" in refusal(
            transport.port, None, name="north", limits=replace(PROMPT, in_use=0.1)
        )
        for wrong in ("", "../x", "a b"):
            assert "use letters, digits" in refusal(transport.port, None, name=wrong)
    assert said[0] == f"connected to {HOST}:{transport.port}"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_nobody_listens_for_other_machines(host: str) -> None:
    with pytest.raises(InputError, match=r"cannot listen|only this machine can be served"):
        HttpsTransport(None, host, 0).__enter__()


@pytest.mark.parametrize(
    ("site", "url", "why"),
    [
        (None, "http://192.0.2.1:80", "only this machine can be reached"),
        (None, "http://fit.example.org:80", "only this machine can be reached"),
        (None, "https://127.0.0.1:80", "and http:// without one"),
        ("ada", "http://127.0.0.1:80", "use https:// with a folder of keys"),
        ("ada", "ftp://127.0.0.1:80", "use https:// with a folder of keys"),
        ("ada", "https://host", "give https://HOST:PORT"),
        ("ada", "https://host:x", "give https://HOST:PORT"),
        ("ada", "https://:80", "give https://HOST:PORT"),
        ("ada", "https://host:80/path", "give https://HOST:PORT"),
        ("ada", "https://a@host:80", "give https://HOST:PORT"),
        ("ada", "host:80", "give https://HOST:PORT"),
        ("ada", "", "give https://HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(
    made: Path, site: str | None, url: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        serve(backwards, made / site if site else None, url)


# ---------------------------------------------------------------------- certificates


def dated(home: Path, site: Path, days: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue a site's certificate for two days, some days ago or in some days."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=days)

    with monkeypatch.context() as patch:
        patch.setattr(authority, "datetime", Shifted)
        (site / "site.crt").write_bytes(authority.renew(home, site.name, days=2))


def unchecked(
    certificate: Path, key: Path, ca: Path, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """The TLS of somebody who does not look at the own certificate before it is used."""
    context = ssl.create_default_context(cafile=ca)
    if version is not None:
        context.maximum_version = version
    context.load_cert_chain(certificate, key)
    return context


@pytest.mark.parametrize(
    "kind",
    [
        *("wrong authority", "self-signed", "the coordinator's", "expired", "not yet valid"),
        *("no certificate", "TLS 1.2", "revoked", "another key"),
    ],
)
def test_who_has_not_the_right_certificate_is_not_heard(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ada, version = folder / "home", folder / "ada", None
    certificate, key = ada / "site.crt", ada / "site.key"
    match kind:
        case "wrong authority":
            certificate, key = folder / "eve/site.crt", folder / "eve/site.key"
        case "self-signed":
            authority.create(folder / "self", [HOST])
            shutil.copy(folder / "self/ca.crt", certificate)
            shutil.copy(folder / "self/ca.key", key)
        case "the coordinator's":
            certificate, key = home / "coordinator.crt", home / "coordinator.key"
        case "expired" | "not yet valid":
            dated(home, ada, -30 if kind == "expired" else 30, monkeypatch)
        case "TLS 1.2":
            version = ssl.TLSVersion.TLSv1_2
        case "revoked":
            authority.revoke(home, "ada")
        case "another key":  # ada has another one now; this one was signed, too
            for name in ("site.crt", "site.key"):
                shutil.copy(ada / name, folder / name)
            certificate, key = folder / "site.crt", folder / "site.key"
            authority.revoke(home, "ada")
            (ada / "site.key").unlink()
            enrol(home, ada)
    if kind == "no certificate":
        context = ssl.create_default_context(cafile=home / "ca.crt")
    else:
        context = unchecked(certificate, key, home / "ca.crt", version)
    heads = (
        f"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
        f"Sec-WebSocket-Protocol: {PROTOCOL}\r\n{INSTANCE}: 1\r\n"
        f"{NAME}: bob\r\n\r\n"
    )
    with HttpsTransport(home, HOST, 0, limits=PROMPT) as transport:
        content = b""
        with (
            suppress(OSError),  # by TLS 1.3 this side believes that all is well, until it reads
            socket.create_connection((HOST, transport.port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secret,
        ):
            secret.sendall(heads.encode())
            while received := secret.recv(2**16):
                content += received
        assert b"welcome" not in content
        if kind in ("revoked", "another key"):
            assert b"is unknown or revoked" in content
        else:
            assert content == b""
        assert transport.connected == []
        assert ask(transport, ada=b"one", bob=b"two") == {}


def test_what_is_wrong_is_said_in_one_line(
    transport: HttpsTransport, made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "a proxy that inspects TLS has to let this address pass" in refusal(
        transport.port, made / "eve"
    )
    dated(folder / "home", folder / "ada", -30, monkeypatch)
    assert "it has to be renewed" in refusal(transport.port, folder / "ada")
    shutil.copy(folder / "eve/ca.crt", folder / "bob")
    assert "was not issued by the authority of ca.crt" in refusal(transport.port, folder / "bob")


def test_a_site_whose_certificate_the_coordinator_refuses_says_so(
    transport: HttpsTransport, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(folder / "eve/site.crt", folder / "ada")
    shutil.copy(folder / "eve/site.key", folder / "ada")
    monkeypatch.setattr(authority, "_check", lambda *_: None)
    with running(transport, folder / "ada") as said:
        until(lambda: "may not accept this certificate" in "".join(said))
    assert transport.connected == []


def test_a_coordinator_with_another_key_is_not_replied_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has taken the authority's key can make a certificate, but not for the key accepted."""
    thief = folder / "thief"
    authority.create(thief, [HOST])
    for name in ("ca.crt", "ca.key"):
        shutil.copy(folder / "home" / name, thief)
    shutil.copytree(folder / "home/members", thief / "members", dirs_exist_ok=True)
    authority.renew(thief, "coordinator")
    asked: list[bytes] = []

    def reply(message: bytes) -> bytes:
        asked.append(message)
        return message

    with HttpsTransport(thief, HOST, 0, limits=PROMPT) as transport:
        said = refusal(transport.port, folder / "ada", reply=reply)
        assert "has another key than coordinator.crt" in said
    assert asked == []


@pytest.mark.parametrize("at_work", [False, True])
def test_a_site_that_is_revoked_is_shut_out_at_once(folder: Path, at_work: bool) -> None:
    go, busy = threading.Event(), threading.Event()

    def reply(message: bytes) -> bytes:
        busy.set()
        go.wait(60)
        return message

    with (
        HttpsTransport(folder / "home", HOST, 0) as transport,  # which would wait for a minute
        joined(transport, folder / "ada", reply) as said,
        joined(transport, folder / "bob"),
    ):
        if at_work:
            with asking(transport, seconds=600, ada=b"one") as found:
                assert busy.wait(60)
                authority.revoke(folder / "home", "ada")
            assert found == {}
        else:
            authority.revoke(folder / "home", "ada")
            assert ask(transport, ada=b"one") == {}
            assert not busy.is_set()
        until(lambda: transport.connected == ["bob"])
        go.set()
        until(lambda: "unknown or revoked: ask the coordinator" in said[-1])
        assert said[-1].startswith("refused: ")
        assert ask(transport, bob=b"one") == {"bob": b"eno"}


def test_a_site_may_be_added_while_the_coordinator_listens(folder: Path) -> None:
    with HttpsTransport(folder / "home", HOST, 0, limits=PROMPT) as transport:
        enrol(folder / "home", folder / "carl")
        with joined(transport, folder / "carl"):
            assert ask(transport, carl=b"one") == {"carl": b"eno"}


def test_a_renewed_certificate_and_the_old_one_are_both_accepted(folder: Path) -> None:
    with HttpsTransport(folder / "home", HOST, 0, limits=PROMPT) as transport:
        with joined(transport, folder / "ada"):
            sent = authority.renew(folder / "home", "ada", days=5)
            assert ask(transport, ada=b"one") == {"ada": b"eno"}
        with joined(transport, folder / "ada"):
            assert ask(transport, ada=b"one") == {"ada": b"eno"}
        authority.accept(folder / "ada", sent)
        with joined(transport, folder / "ada"):
            assert ask(transport, ada=b"one") == {"ada": b"eno"}


def served(transport: HttpsTransport, home: Path, host: str = HOST) -> bytes:
    """The certificate that the coordinator shows at the next handshake."""
    context = ssl.create_default_context(cafile=home / "ca.crt")
    with (
        socket.create_connection((HOST, transport.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host) as secret,
    ):
        found = secret.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_a_renewed_certificate_of_the_coordinator_is_used_without_a_restart(folder: Path) -> None:
    home = folder / "home"
    said: list[str] = []
    with (
        HttpsTransport(home, HOST, 0, limits=PROMPT, status=said.append) as transport,
        joined(transport, folder / "ada"),
    ):
        before = served(transport, home)
        assert served(transport, home) == before
        renewed = authority.renew(home, "coordinator", days=100)
        after = served(transport, home)
        assert ssl.DER_cert_to_PEM_cert(after).encode() == renewed
        assert transport.connected == ["ada"]  # on the connection of before
        with joined(transport, folder / "bob"):
            assert ask(transport, ada=b"one", bob=b"two") == {"ada": b"eno", "bob": b"owt"}
        (home / "coordinator.crt").write_text("nothing")
        assert served(transport, home) == after
        assert "the certificate of before is used on" in said[-1]


def test_the_host_of_a_running_coordinator_can_change(folder: Path) -> None:
    home = folder / "home"
    with HttpsTransport(home, HOST, 0, limits=PROMPT) as transport:
        with pytest.raises(ssl.SSLCertVerificationError):
            served(transport, home, "localhost")
        authority.renew(home, "coordinator", ["localhost"])
        served(transport, home, "localhost")
        told = refusal(transport.port, folder / "ada")
        assert "its certificate is not accepted" in told
        authority.renew(home, "coordinator", [HOST, "localhost"])
        with joined(transport, folder / "ada"):
            assert ask(transport, ada=b"one") == {"ada": b"eno"}


def test_a_certificate_that_ends_on_an_open_connection_is_refused_until_there_is_a_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ada = folder / "home", folder / "ada"

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=91)

    with (
        HttpsTransport(home, HOST, 0, limits=PROMPT) as transport,
        joined(transport, ada) as said,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(coordinator, "datetime", Later)
            until(lambda: "the certificate of ada expired on" in "".join(said))
            assert transport.connected == []
        until(lambda: transport.connected == ["ada"])  # by the clock of now it is valid again
        dated(home, ada, -30, monkeypatch)
        transport._peers["ada"].transport.abort()
        until(lambda: "it has to be renewed" in said[-1])
        authority.accept(ada, authority.renew(home, "ada"))
        until(lambda: transport.connected == ["ada"])
        assert ask(transport, ada=b"one") == {"ada": b"eno"}


def test_an_end_within_a_month_is_said_at_both_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dated(folder / "home", folder / "bob", 0, monkeypatch)
    at_home: list[str] = []
    with (
        HttpsTransport(folder / "home", HOST, 0, status=at_home.append) as transport,
        joined(transport, folder / "bob") as said,
        joined(transport, folder / "ada"),
    ):
        until(lambda: any("site.crt ends on" in each for each in said))
        until(lambda: len(at_home) >= 3)
    assert [each for each in at_home if "ends on" in each] == [at_home[0]]
    assert "bob.crt ends on" in at_home[0]


def test_a_coordinator_says_which_keys_cannot_be_used_and_where_it_cannot_listen(
    transport: HttpsTransport, folder: Path
) -> None:
    with pytest.raises(InputError, match="cannot listen there"):
        HttpsTransport(folder / "home", HOST, transport.port).__enter__()
    shutil.copy(folder / "theirs/coordinator.key", folder / "home")
    with pytest.raises(InputError, match=r"coordinator.crt: does not belong to the key"):
        HttpsTransport(folder / "home", HOST, 0).__enter__()
    (folder / "home/coordinator.key").unlink()
    with pytest.raises(InputError, match=r"coordinator.key: cannot be read"):
        HttpsTransport(folder / "home", HOST, 0).__enter__()


def test_tls_is_not_given_up_for_a_coordinator_without_it(made: Path) -> None:
    with HttpsTransport(None, HOST, 0) as transport:
        assert "does not use TLS" in refusal(transport.port, made / "ada")
        assert transport.connected == []


def test_a_site_without_keys_does_not_reach_a_coordinator_with_them(
    transport: HttpsTransport,
) -> None:
    with running(transport, None, name="ada") as said:
        until(lambda: "does it use TLS?" in "".join(said))
    assert transport.connected == []


# ---------------------------------------------------------------------- floods


def stranger() -> ssl.SSLContext:
    """TLS without a certificate, by somebody who does not care whose coordinator it is."""
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
def test_connections_without_a_certificate_keep_nobody_out(made: Path, kind: str) -> None:
    limits = replace(PROMPT, opening=1000.0, prompt=0.0, pending=8)
    first = {"nothing": b"", "half a handshake": hello(), "a byte": hello()[:1]}
    content = first.get(kind, b"GET / HTTP/1.1\r\nHost: x\r\n")
    with HttpsTransport(made / "home", HOST, 0, limits=limits) as transport, ExitStack() as stack:
        attack = []
        for _ in range(5 * limits.pending):
            connection = socket.create_connection((HOST, transport.port), timeout=30)
            attack.append(stack.enter_context(connection))
            with suppress(OSError):  # it is closed already
                connection.sendall(content)
        with joined(transport, made / "ada"):  # from the same address
            assert ask(transport, ada=b"one") == {"ada": b"eno"}
            until(lambda: sum(not closed(each) for each in attack) <= limits.pending)
        stack.close()
        until(lambda: not transport._listener.pending)


def test_many_prompt_connections_of_one_address_are_all_served(made: Path) -> None:
    limits = replace(PROMPT, prompt=1000.0, pending=2)
    with HttpsTransport(made / "home", HOST, 0, limits=limits) as transport, ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection((HOST, transport.port))) for _ in range(10)
        ]
        for name in ("ada", "bob"):
            stack.enter_context(joined(transport, made / name))
        assert not any(map(closed, silent))
        assert len(ask(transport, ada=b"one", bob=b"two")) == 2


def test_so_many_connections_that_all_places_are_taken_keep_nobody_out(made: Path) -> None:
    limits = replace(PROMPT, opening=1000.0, prompt=1000.0, all_pending=10)
    with HttpsTransport(made / "home", HOST, 0, limits=limits) as transport, ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection((HOST, transport.port)))
        with joined(transport, made / "ada"):
            until(lambda: len(transport._listener.pending) <= 10)
            assert ask(transport, ada=b"one") == {"ada": b"eno"}


@pytest.mark.parametrize("kind", ["a handshake", "a request", "headers", "a long line"])
def test_a_handshake_and_a_request_have_a_time_and_a_size(made: Path, kind: str) -> None:
    limits = replace(PROMPT, opening=0.5)
    contents = {"headers": b"GET / HTTP/1.1\r\nA: ", "a long line": b"GET /" + b"x" * 10**6}
    with HttpsTransport(made / "home", HOST, 0, limits=limits) as transport, ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection((HOST, transport.port)))
        if kind == "a handshake":
            plain.sendall(hello()[:100])
            until(lambda: closed(plain))
        else:
            context = authority.tls_context(made / "ada", "site")
            secret = stack.enter_context(context.wrap_socket(plain, server_hostname=HOST))
            with suppress(OSError):
                secret.sendall(contents.get(kind, b""))
            until(lambda: closed(secret))
        assert transport.connected == []
        until(lambda: not transport._listener.pending)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_the_websocket_is_served(
    transport: HttpsTransport, made: Path, method: str
) -> None:
    context = authority.tls_context(made / "ada", "site")
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "A" * 22 + "=="}
    own = {INSTANCE: "1", "Sec-WebSocket-Protocol": PROTOCOL}
    for headers in ({}, own, upgrade | own, upgrade | key, upgrade | key | {INSTANCE: "1"}):
        connection = HTTPSConnection(HOST, transport.port, context=context, timeout=30)
        connection.request(method, "/", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 404
        assert answer.getheader("Connection") == "close"
        connection.close()
    assert transport.connected == []


@pytest.mark.parametrize("kind", ["a large frame", "fragments", "a compressed frame", "garbage"])
def test_a_frame_that_is_too_large_or_wrong_ends_one_connection(
    transport: HttpsTransport, made: Path, kind: str
) -> None:
    header = b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(4)  # masked, of a terabyte
    contents = {
        "a large frame": [header],
        "fragments": [b"\x02\xfe\xff\xff" + bytes(4 + 65535)] * 40,
        "a compressed frame": [b"\xc2\x80" + bytes(4)],
        "garbage": [os.urandom(1000)],
    }[kind]

    async def write(hand: Hand) -> None:
        raw = hand.socket.get_extra_info("ssl_object")
        assert raw is not None
        assert hand.socket._response.connection is not None
        transport = hand.socket._response.connection.transport
        assert transport is not None
        for content in contents:
            transport.write(content)  # to nowhere, once the other side has had enough
            await asyncio.sleep(0)

    with joined(transport, made / "bob"), Hand(transport, made / "ada") as hand:
        until(lambda: transport.connected == ["ada", "bob"])
        with asking(transport, ada=b"one", bob=b"two") as found:
            hand.question()
            hand._runner.run(write(hand))
            until(lambda: transport.connected == ["bob"])
        assert found == {"bob": b"owt"}


def test_a_slow_site_holds_no_more_than_was_asked_for_and_nobody_up(
    transport: HttpsTransport, made: Path
) -> None:
    with Hand(transport, made / "ada") as slow, joined(transport, made / "bob"):
        until(lambda: transport.connected == ["ada", "bob"])
        with asking(transport, seconds=1.0, ada=b"one", bob=b"two") as found:
            ticket, _ = slow.question()
            slow.frame(ticket + (2**20).to_bytes(TICKET, "little") + bytes(PIECE))
        assert found == {"bob": b"owt"}
        assert len(transport._peers["ada"].arrival.data) == PIECE
        with asking(transport, ada=b"three") as found:
            again, _ = slow.question()
            slow.send(again, b"good")
        assert found == {"ada": b"good"}


def test_a_site_that_does_not_read_holds_nobody_up(transport: HttpsTransport, made: Path) -> None:
    with Hand(transport, made / "ada"), joined(transport, made / "bob"):
        until(lambda: transport.connected == ["ada", "bob"])
        large = bytes(2**24)
        for _ in range(5):
            assert ask(transport, seconds=0.5, ada=large, bob=b"two") == {"bob": b"owt"}


# ---------------------------------------------------------------------- the end, and coming back


def test_a_normal_end_does_not_look_like_a_fault(made: Path) -> None:
    with HttpsTransport(made / "home", HOST, 0, limits=PROMPT) as transport:
        port = transport.port
        stack = joined(transport, made / "ada")
        said = stack.__enter__()
    until(lambda: len(said) == 2)
    with HttpsTransport(made / "home", HOST, port, limits=PROMPT) as transport:
        until(lambda: transport.connected == ["ada"])
        assert ask(transport, ada=b"one") == {"ada": b"eno"}
        stack.__exit__(None, None, None)
    assert said == [
        f"connected to {HOST}:{port}",
        f"{HOST}:{port}: the run has ended; waiting for the next one",
        f"connected to {HOST}:{port}",
    ]


def test_sites_hear_that_a_run_was_stopped(made: Path) -> None:
    with ExitStack() as stack:

        def interrupted() -> None:
            with HttpsTransport(made / "home", HOST, 0, limits=PROMPT) as transport:
                heard.append(stack.enter_context(joined(transport, made / "ada")))
                raise KeyboardInterrupt

        heard: list[list[str]] = []
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        until(lambda: "the run was stopped; waiting for the next one" in heard[0][-1])


def test_a_fault_of_the_coordinator_itself_is_logged(
    transport: HttpsTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "handle", records.append)
    # the logger passes nothing on to others: who wants to see it adds a handler
    monkeypatch.setattr(wire.log, "handlers", [handler])
    transport._loop.call_soon_threadsafe(lambda: 1 / 0)
    until(lambda: bool(records))
    [record] = records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_an_exchange_ends_with_its_transport(made: Path) -> None:
    with HttpsTransport(made / "home", HOST, 0) as transport:
        thread = threading.Thread(target=ask, args=(transport,), kwargs={"ada": b"one"})
        thread.start()
        until(lambda: transport._current.messages)
    thread.join(60)
    assert not thread.is_alive()


def test_a_coordinator_that_breaks_off_is_reported_once_and_found_again(made: Path) -> None:
    transport = HttpsTransport(made / "home", HOST, 0, limits=PROMPT)
    transport.__enter__()
    with joined(transport, made / "ada") as said:
        port = transport.port
        transport._part = lambda *_: None  # type: ignore[method-assign]  # nobody is told
        transport.__exit__(None, None, None)
        until(lambda: "Connection refused" in said[-1])
        with HttpsTransport(made / "home", HOST, port, limits=PROMPT) as again:
            until(lambda: again.connected == ["ada"])
            until(lambda: said[-1].startswith("connected"))
            assert ask(again, ada=b"one") == {"ada": b"eno"}
    assert len(said) == len(set(said)) + 1  # it connected twice


def test_a_site_that_was_stopped_is_not_waited_for(patient: HttpsTransport, made: Path) -> None:
    with joined(patient, made / "ada"):
        pass
    until(lambda: patient.connected == [])
    began = time.monotonic()
    assert ask(patient, seconds=600, ada=b"one") == {}
    assert time.monotonic() - began < ConnectionLimits().lost / 2


# ---------------------------------------------------------------------- proxies and other servers


class Proxy:
    """An HTTP proxy that knows CONNECT, and what it was asked for."""

    def __init__(self, refuses: bool = False) -> None:
        self._refuses = refuses
        self._socket = socket.create_server((HOST, 0))
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
                connection.sendall(b"HTTP/1.1 407 Who \x1bare you\r\nContent-Length: 0\r\n\r\n")
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
def test_a_site_connects_through_a_proxy_end_to_end(
    transport: HttpsTransport, made: Path, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy()
    url = f"http://{HOST}:{proxy.port}"
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    if not given:
        monkeypatch.setenv("HTTPS_PROXY", url)
    with joined(transport, made / "ada", proxy=url if given else None):
        assert ask(transport, ada=b"one") == {"ada": b"eno"}
    assert proxy.asked[0].startswith(f"CONNECT {HOST}:{transport.port} ")
    proxy.close()


def test_a_proxy_that_refuses_or_is_away_is_named(transport: HttpsTransport, made: Path) -> None:
    proxy = Proxy(refuses=True)
    address = f"{HOST}:{proxy.port}"  # http:// is understood
    with running(transport, made / "ada", proxy=address) as said:
        until(lambda: "the proxy answers 407 Who " in "".join(said))
        proxy.close()
        until(lambda: "the proxy cannot be reached: Connection refused" in said[-1])
    assert all(each.isprintable() for each in said)
    for wrong in ("https://proxy:1", "socks5://proxy:1", "http://", "http://proxy:x"):
        with pytest.raises(InputError, match="proxy: give its address as http://HOST:PORT"):
            serve(backwards, made / "ada", "https://host:1", proxy=wrong)


def test_a_proxy_is_not_used_for_hosts_that_are_excepted(
    transport: HttpsTransport, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:9")
    monkeypatch.setenv("NO_PROXY", HOST)
    with joined(transport, made / "ada"):
        assert ask(transport, ada=b"one") == {"ada": b"eno"}


def test_a_name_that_nobody_knows_is_said_to_be_one(made: Path) -> None:
    said: list[str] = []
    stop = threading.Event()

    def status(text: str) -> None:
        said.append(text)
        stop.set()

    serve(backwards, made / "ada", "https://nosuch.invalid:8000", status=status, stop=stop)
    assert said[0].startswith("no connection to nosuch.invalid:8000 (")
    assert "Unknown error" not in said[0]


@pytest.mark.parametrize("status", [200, 204, 404, 307, 503])
def test_another_web_server_is_not_taken_for_a_coordinator(status: int) -> None:
    asked: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # as the base class names it
            asked.append(self.path)
            self.send_response(status, "\x1b[31m")
            if status == 307:
                self.send_header("Location", f"http://{self.headers['Host']}/in")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer((HOST, 0), Other) as other:
        threading.Thread(target=other.serve_forever, args=(0.01,), daemon=True).start()
        with running(other.server_port, None, name="ada") as said:
            until(lambda: said)
        other.shutdown()
    assert set(asked) == {"/"}
    assert ("HTTP status 503" if status == 503 else "is not a coordinator of fedsplit") in said[0]
    assert said[0].startswith("refused") == (status not in (307, 503))


class Crooked:
    """A coordinator that sends what it likes, to sites without keys."""

    def __init__(self, frames: list[bytes | str], protocol: str = PROTOCOL) -> None:
        self._frames = frames
        self._protocol = protocol

    def __enter__(self) -> int:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await asyncio.sleep(0.05)  # for connections to be closed

    async def _start(self) -> int:
        self._runner = aiohttp.web.ServerRunner(
            aiohttp.web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = aiohttp.web.TCPSite(self._runner, HOST, 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _handle(self, request: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        connection = aiohttp.web.WebSocketResponse(protocols=(self._protocol,), timeout=0.1)
        await connection.prepare(request)
        for frame in self._frames:
            if isinstance(frame, str):
                await connection.send_str(frame)
            else:
                await connection.send_bytes(frame)
        async for _ in connection:
            pass
        return connection


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (["welcome", bytes(TICKET) + (2**21).to_bytes(8, "little") + bytes(PIECE)], "at most"),
        (["welcome", bytes(2 * PIECE)], "the connection broke"),
        (["welcome", b"short"], "it sends"),
        (["welcome", "welcome"], "the connection broke"),
        ([bytes(2 * TICKET)], "the connection broke"),
    ],
)
def test_a_site_is_not_led_astray_by_its_coordinator(frames: list[bytes | str], why: str) -> None:
    asked: list[bytes] = []

    def reply(message: bytes) -> bytes:
        asked.append(message)
        return message

    with (
        Crooked(frames) as port,
        running(port, None, reply, name="ada", largest=2**20) as said,
    ):
        until(lambda: any(why in each and "trying again" in each for each in said))
    assert asked == []


def test_a_websocket_of_something_else_is_not_a_coordinator() -> None:
    with Crooked([], "chat") as port:
        assert "is not a coordinator of fedsplit" in refusal(port, None, name="ada")


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
from fedsplit.federation import authority
from fedsplit.federation.transport.https.coordinator import HttpsTransport
from fedsplit.federation.transport.https.site import serve

home, ada = Path(sys.argv[1]) / "home", Path(sys.argv[1]) / "ada"
authority.create(home, ["127.0.0.1"])
authority.accept(ada, authority.sign(home, "ada", authority.request(ada, "ada")))
stop = threading.Event()
with HttpsTransport(home, "127.0.0.1", 0) as transport:
    url = f"https://127.0.0.1:{transport.port}"
    options = dict(status=print, stop=stop)
    thread = threading.Thread(target=serve, args=(bytes.upper, ada, url), kwargs=options)
    thread.start()
    print(list(transport.exchange({"ada": b"one"}, 60, 100)))
    stop.set()
    thread.join()
print(outside)
"""


def test_nothing_is_called_but_the_coordinator_and_nothing_left_behind(tmp_path: Path) -> None:
    home = tmp_path / "user"
    home.mkdir()
    proxies = {"HTTPS_PROXY": "http://192.0.2.1:9", "NO_PROXY": HOST}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(tmp_path / "keys")],
        env={**os.environ, **proxies, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    connected, reply, outside = done.stdout.splitlines()
    assert connected.startswith("connected")
    assert (reply, outside, done.stderr) == ("[('ada', b'ONE')]", "[]", "")
    assert list(home.iterdir()) == []
