"""HTTPS with certificates on both sides: one WebSocket per site, opened by the site.

Sites connect out, so that no hospital opens a port. A message travels in frames, each with the
number of the request and the length of the message in eight bytes each, and a piece of it. A reply
has the number of its request, so that one that comes too late is recognised, and states its length
first, so that one that is longer than what was asked for is never held in memory. TLS, frames and
pings are aiohttp's.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import queue
import random
import secrets
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass
from weakref import WeakSet

import aiohttp
from aiohttp import WSMsgType, web
from cryptography import x509

from fedsplit.errors import InputError, NotAuthorised
from fedsplit.federation import authority
from fedsplit.federation.keys import in_groups
from fedsplit.federation.transport import Arrivals

TICKET = 8
"""Bytes of the number of a request, and of the length of a message."""
PIECE = 2**16
"""Bytes of a message in one frame: what a connection holds before it knows what is coming."""
FRAME = PIECE + 2 * TICKET + 1
"""Bytes that a frame must not have."""
NO_REPLY = b"\xff" * TICKET
"""In place of a length: a site has no reply to this request."""
PROTOCOL = "fedsplit"
"""The protocol over the WebSocket, which both sides have to name."""
ENDED, UNEXPECTED, EXPIRED, REVOKED, IN_USE = 1001, 1008, 4401, 4403, 4409
"""Why a connection is closed."""
INSTANCE, NAME = "Fedsplit-Instance", "Fedsplit-Name"
"""Headers, which no page in a browser can set: a random number of a site's process, and, without
TLS, its name."""
NOT_OURS = "is not a coordinator of fedsplit, check the address"

Connection: TypeAlias = "web.WebSocketResponse | aiohttp.ClientWebSocketResponse[bool]"
Status: TypeAlias = Callable[[str], object]

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # anybody can cause errors here: for who adds a handler
log.propagate = False


@dataclass(frozen=True)
class ConnectionLimits:
    """Seconds, and numbers of connections, that no honest site needs more of.

    Attributes
    ----------
    opening : float
        From a connection to its request, with the handshake of TLS.
    prompt : float
        The same, where nobody delays it.
    pending, all_pending : int
        Connections without a request: of more from one address, those that are not prompt are
        given up; of more from all addresses, the oldest of the address that has most.
    heartbeat : float
        Between pings; a connection without a reply in half that time is given up.
    absent, lost : float
        How long an exchange waits for a site that is not there, and for one that has lost its
        connection, or that a coordinator which was just started has not seen yet.
    first_pause, longest_pause : float
        Before a site tries to connect again.
    in_use : float
        Until a site whose name is in use gives up: it is no connection that died.
    """

    opening: float = 10.0
    prompt: float = 1.0
    pending: int = 32
    all_pending: int = 512
    heartbeat: float = 30.0
    absent: float = 2.0
    lost: float = 20.0
    first_pause: float = 0.2
    longest_pause: float = 5.0
    in_use: float = 60.0


class Unexpected(ValueError):
    """A frame that does not belong to any message that is expected."""


@dataclass
class PartialMessage:
    """The message that is arriving on a connection."""

    ticket: bytes = b""
    data: bytearray = field(default_factory=bytearray)

    def add(self, frame: bytes, largest: int) -> bytes | None:
        """Add a frame, and return the message if this was its last one."""
        ticket, length, piece = frame[:TICKET], frame[TICKET : 2 * TICKET], frame[2 * TICKET :]
        size = int.from_bytes(length, "little")
        if ticket != self.ticket:  # what has come of an earlier message is of no use any more
            self.ticket, self.data = ticket, bytearray()
        whole = len(frame) >= 2 * TICKET and len(piece) == min(PIECE, size - len(self.data))
        if size > largest or not whole:
            raise Unexpected(f"{size} bytes where at most {largest} are expected")
        self.data += piece
        if len(self.data) < size:
            return None
        message, self.ticket, self.data = bytes(self.data), b"", bytearray()
        return message


async def send(connection: Connection, ticket: bytes, message: bytes) -> None:
    """Send a message in frames."""
    header = ticket + len(message).to_bytes(TICKET, "little")
    for at in range(0, max(len(message), 1), PIECE):
        # Whoever waits for aiohttp's buffer to drain and is cancelled ends the next sender as well.
        await asyncio.shield(connection.send_bytes(header + message[at : at + PIECE]))


@dataclass
class _Exchange:
    """The exchange that is under way: messages without a reply, and where replies are put."""

    ticket: bytes = b""
    largest: int = 0
    messages: dict[str, bytes] = field(default_factory=dict)
    replies: queue.SimpleQueue[tuple[str, bytes | None]] = field(default_factory=queue.SimpleQueue)
    began: float = field(default_factory=time.monotonic)

    def settle(self, name: str, reply: bytes | None) -> None:
        """Note the reply of a site, or that there will be none; the first end counts."""
        if self.messages.pop(name, None) is not None:
            self.replies.put((name, reply))


@dataclass
class _Peer:
    """A site that is connected.

    Attributes
    ----------
    asked : dict of bytes to int
        Requests on this connection without a reply, with the most bytes of one: nothing else is
        read from it.
    left : bool
        Whether it was stopped, and has said so.
    """

    name: str
    key: bytes
    ends: datetime | None
    instance: str
    connection: web.WebSocketResponse
    transport: asyncio.Transport
    asked: dict[bytes, int] = field(default_factory=dict)
    arrival: PartialMessage = field(default_factory=PartialMessage)
    sending: asyncio.Future[None] | None = None
    left: bool = False

    def read(self, frame: bytes) -> tuple[bytes, bytes | None] | None:
        """Read a frame, and return the request and the reply if this was its last one."""
        ticket = frame[:TICKET]
        if self.arrival.ticket not in (b"", ticket):  # an abandoned reply cannot begin anew
            self.asked.pop(self.arrival.ticket, None)
        if frame[TICKET:] == NO_REPLY and self.asked.pop(ticket, None) is not None:
            return ticket, None
        reply = self.arrival.add(frame, self.asked.get(ticket, -1))
        if reply is None:
            return None
        del self.asked[ticket]
        return ticket, reply


class HttpsTransport:
    """The coordinator's end: listens in a thread of its own while it is entered.

    Parameters
    ----------
    folder : Path or None
        The coordinator's, of ``authority``. Without one there is no TLS and sites state their
        names themselves, which is allowed between processes of one machine alone.
    host, port : str, int
        Where to listen; port 0 chooses a free one, which ``port`` then holds.
    status : callable, optional
        Called with a line when a site connects or disconnects, or a certificate ends soon; in the
        transport's thread.
    limits : ConnectionLimits, optional
    """

    waits = True

    def __init__(
        self,
        folder: Path | None,
        host: str,
        port: int,
        *,
        status: Status | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._folder = folder
        self._host = host
        self.port = port
        self._status = status or log.info
        self._limits = limits or ConnectionLimits()
        self._tls: ssl.SSLContext | None = None
        self._stamp: object = None
        self._peers: dict[str, _Peer] = {}
        self._seen: dict[str, float] = {}  # when a connection ended
        self._current = _Exchange()
        self._pending: dict[asyncio.Task[None], tuple[str, float]] = {}  # by age
        self._opened: defaultdict[object, asyncio.Event] = defaultdict(asyncio.Event)
        self._transports: WeakSet[asyncio.Transport] = WeakSet()
        self._closing: set[asyncio.Task[None]] = set()
        self._warned: date | None = None

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._tls = authority.tls_context(self._folder, "coordinator")
        opened = _listening(self._host, self.port, loopback=self._folder is None)
        self.port = opened.getsockname()[1]
        self._began = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_fault)
        self._thread = threading.Thread(target=self._loop.run_forever, name="https", daemon=True)
        self._thread.start()
        self._run(self._start(opened))
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        self._run(self._stop("the run has ended" if error is None else "the run was stopped"))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def connected(self) -> list[str]:
        """The names of the sites that are connected."""
        return sorted(self._peers)

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        current = _Exchange(secrets.token_bytes(TICKET), largest, dict(messages))
        missing, ends = set(messages), time.monotonic() + seconds
        self._loop.call_soon_threadsafe(self._begin, current)
        try:
            while missing and (left := ends - time.monotonic()) > 0:
                name, reply = current.replies.get(timeout=left)
                missing.discard(name)
                if reply is not None:
                    yield name, reply
        except queue.Empty:
            pass
        finally:  # who connects later is not asked any more, and what comes later is dropped
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(current.messages.clear)

    # -------------------------------------------------- what follows runs in the thread of the loop

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self, opened: socket.socket) -> None:
        self._server = web.Server(
            self._handle, handler_cancellation=True, access_log=None, logger=log, max_headers=32
        )
        self._tasks = [
            self._loop.create_task(self._accept(opened)),
            self._loop.create_task(self._watch()),
        ]

    async def _stop(self, why: str) -> None:
        ending = (*self._tasks, *self._pending)
        for task in ending:
            task.cancel()
        for name in list(self._current.messages):
            self._current.settle(name, None)
        for peer in list(self._peers.values()):
            self._part(peer, ENDED, why)
        await asyncio.gather(*ending, *self._closing, return_exceptions=True)
        await self._server.shutdown(0.1)
        await asyncio.sleep(0.05)  # for the last words to leave
        for transport in list(self._transports):
            transport.abort()
        await asyncio.sleep(0.05)  # for connections to be closed

    async def _accept(self, opened: socket.socket) -> None:
        """Accept connections, with limits on those that have not brought a request yet."""
        with opened:
            while True:
                try:
                    connection, address = await self._loop.sock_accept(opened)
                except OSError:  # no file descriptors, or a connection that is gone already
                    self._give_up(list(self._pending)[:1])
                    await asyncio.sleep(0.1)
                    continue
                task = self._loop.create_task(self._open(connection))
                self._pending[task] = (str(address[0]), time.monotonic())
                task.add_done_callback(partial(self._settled, connection))
                self._limit(str(address[0]))

    def _limit(self, address: str) -> None:
        def of(where: str) -> list[asyncio.Task[None]]:
            return [task for task, (other, _) in self._pending.items() if other == where]

        if len(self._pending) > self._limits.all_pending:
            [(busiest, _)] = Counter(where for where, _ in self._pending.values()).most_common(1)
            self._give_up(of(busiest)[:1])
        slow = time.monotonic() - self._limits.prompt
        many = of(address)[: -self._limits.pending]
        self._give_up([task for task in many if self._pending[task][1] < slow])

    def _give_up(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
            del self._pending[task]  # it ends later, and must not be given up in others' place

    async def _open(self, connection: socket.socket) -> None:
        """Complete the handshake of a connection, and wait for its request."""
        transport, heard = None, None
        try:
            connection.setblocking(False)
            seconds = None if self._tls is None else self._limits.opening
            async with asyncio.timeout(self._limits.opening):
                transport, _ = await self._loop.connect_accepted_socket(
                    self._server,
                    connection,
                    ssl=self._renewed(),
                    ssl_handshake_timeout=seconds,
                    ssl_shutdown_timeout=None if self._tls is None else 2.0,
                )
                self._transports.add(transport)
                heard = self._opened[transport]
                await heard.wait()
        except (OSError, ValueError) as error:  # errors of TLS and of time are of these types
            log.debug("a connection has failed: %s", error)
        finally:
            if transport is not None:
                del self._opened[transport]
                if heard is not None and not heard.is_set():
                    transport.abort()

    def _settled(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._pending.pop(task, None)
        if task.cancelled():  # perhaps before it had begun
            connection.close()

    def _renewed(self) -> ssl.SSLContext | None:
        """Return the context for a handshake, with the certificate that is there now."""
        if self._folder is not None:
            try:
                status = (self._folder / "coordinator.crt").stat()
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._tls = authority.tls_context(self._folder, "coordinator")
            except (InputError, OSError) as error:
                self._status(f"the certificate of before is used on: {error}")
        return self._tls

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one connection of a site, as long as it lasts."""
        transport = request.transport
        self._opened[transport].set()
        connection = web.WebSocketResponse(
            heartbeat=self._limits.heartbeat,
            max_msg_size=FRAME,
            compress=False,
            protocols=(PROTOCOL,),
        )
        instance = request.headers.get(INSTANCE, "")
        asked = connection.can_prepare(request)
        if transport is None or not asked.ok or asked.protocol != PROTOCOL or not instance:
            refusal = web.Response(status=404)
            refusal.force_close()
            return refusal
        peer = self._identified(request, _Peer("", b"", None, instance, connection, transport))
        await connection.prepare(request)
        earlier = self._peers.get(peer.name)
        if objection := self._objection(peer):
            await self._close(peer, *objection)
        elif earlier is not None and earlier.instance != instance:
            await self._close(peer, IN_USE, f"another process is connected as {peer.name}")
        else:
            if earlier is not None:  # of the same process, which knows that it is dead
                self._part(earlier, UNEXPECTED, "another connection took its place")
            await self._serve(peer)
        return connection

    def _identified(self, request: web.BaseRequest, peer: _Peer) -> _Peer:
        """Set whose connection it is: by its certificate, if there is one."""
        end = peer.transport.get_extra_info("ssl_object")
        if end is None:
            peer.name = request.headers.get(NAME, "")
        else:
            certificate = x509.load_der_x509_certificate(end.getpeercert(binary_form=True))
            peer.name, peer.key, peer.ends, _ = authority.Holder.of(certificate)
        return peer

    def _objection(self, peer: _Peer) -> tuple[int, str] | None:
        """Return why a site may not be heard now, as the list of members is now."""
        try:
            authority.check_name(peer.name)
        except InputError as error:
            return REVOKED, str(error)
        if self._folder is None or peer.ends is None:
            return None
        if datetime.now(UTC) > peer.ends:
            return EXPIRED, f"the certificate of {peer.name} expired on {peer.ends:%Y-%m-%d}"
        if not authority.is_member(self._folder, peer.name, peer.key):
            return REVOKED, f"the key {in_groups(peer.key)} is unknown or revoked"
        return None

    async def _serve(self, peer: _Peer) -> None:
        self._peers[peer.name] = peer
        self._status(f"{peer.name} is connected")
        why: tuple[int, str] | None = None
        try:
            await peer.connection.send_str("welcome")
            self._ask(peer)  # who connects late is asked what the others were asked
            while (frame := await peer.connection.receive()).type is WSMsgType.BINARY:
                if (found := peer.read(frame.data)) is None:
                    continue
                if why := self._objection(peer):
                    break
                if found[0] == self._current.ticket:
                    # The name is the connection's, whatever the reply says.
                    self._current.settle(peer.name, found[1])
            if frame.type is WSMsgType.TEXT:
                raise Unexpected
            peer.left = frame.type is WSMsgType.CLOSE and frame.data == ENDED
        except Unexpected:
            why = UNEXPECTED, "a message that nobody asked for, or that is too large"
        except OSError as error:
            log.debug("the connection of %s has failed: %s", peer.name, error)
        finally:
            self._forget(peer)
        if why is not None:
            self._current.settle(peer.name, None)  # it would send the same again
            await self._close(peer, *why)

    def _ask(self, peer: _Peer) -> None:
        current = self._current
        if peer.name not in current.messages:
            return
        if objection := self._objection(peer):
            self._part(peer, *objection)
            return
        if peer.sending is not None:  # frames of two messages must not be mixed
            peer.sending.cancel()
        peer.asked[current.ticket] = current.largest
        # Not awaited: a slow site must not keep the others waiting.
        peer.sending = asyncio.ensure_future(
            send(peer.connection, current.ticket, current.messages[peer.name])
        )
        peer.sending.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _forget(self, peer: _Peer) -> None:
        if peer.sending is not None:
            peer.sending.cancel()
        if self._peers.get(peer.name) is peer:
            del self._peers[peer.name]
            # One that was stopped, and said so, is not waited for.
            self._seen[peer.name] = -self._limits.lost if peer.left else time.monotonic()
            self._status(f"{peer.name} is disconnected")

    def _part(self, peer: _Peer, code: int, why: str) -> None:
        """Close the connection of a site, which is not heard from now on."""
        self._forget(peer)
        if code in (REVOKED, EXPIRED):
            self._current.settle(peer.name, None)
        self._closing.add(task := self._loop.create_task(self._close(peer, code, why)))
        task.add_done_callback(self._closing.discard)

    async def _close(self, peer: _Peer, code: int, why: str) -> None:
        try:
            async with asyncio.timeout(2.0):  # a site that does not read does not delay it
                await peer.connection.close(code=code, message=why.encode()[:123])
        except (OSError, TimeoutError):
            peer.transport.abort()

    def _begin(self, current: _Exchange) -> None:
        self._current = current
        for name in list(current.messages):
            if name in self._peers:
                self._ask(self._peers[name])

    async def _watch(self) -> None:
        """Close connections of sites that were revoked, and do not wait for absent ones."""
        while True:
            current, now = self._current, time.monotonic()
            for peer in list(self._peers.values()):
                if objection := self._objection(peer):
                    self._part(peer, *objection)
            for name in [each for each in current.messages if each not in self._peers]:
                ends = self._seen.get(name, self._began) + self._limits.lost
                if now > max(ends, current.began + self._limits.absent):
                    current.settle(name, None)
            if self._folder is not None and self._warned != date.today():
                self._warned = date.today()
                _say_what_expires(self._folder, "coordinator", self._status)
            await asyncio.sleep(0.5)


def serve(
    reply: Callable[[bytes], bytes],
    folder: Path | None,
    url: str,
    *,
    name: str = "",
    proxy: str | None = None,
    largest: int = 2**28,
    status: Status | None = None,
    stop: threading.Event | None = None,
    limits: ConnectionLimits | None = None,
) -> None:
    """Connect a site to its coordinator, and reply to its messages until ``stop`` is set.

    Parameters
    ----------
    reply : callable
        ``Site.reply``; called in a thread of its own, for one message after the other.
    folder : Path or None
        The site's, of ``authority``; None for a coordinator on this machine without TLS.
    url : str
        ``https://HOST:PORT``, or ``http://127.0.0.1:PORT`` without TLS.
    name : str
        Of the site, where there is no TLS: otherwise its certificate says it.
    proxy : str, optional
        ``http://HOST:PORT``; by default that of HTTPS_PROXY, unless NO_PROXY excepts the host.
    largest : int
        The most bytes of a message of the coordinator.
    status : callable, optional
        Called with a line when the connection is made or lost, or a reply fails.
    stop : Event, optional
        Ends this within a moment, once a reply that is being computed is done.
    limits : ConnectionLimits, optional

    Raises
    ------
    NotAuthorised
        If the coordinator has to act before trying again can help.
    InputError
        If trying again would not help at all.
    """
    with ThreadPoolExecutor(1, "reply") as pool:
        end = _SiteEnd(reply, folder, url, name, proxy, largest, limits or ConnectionLimits())
        end.pool, end.status = pool, status or log.info
        asyncio.run(end.run(stop or threading.Event()))


class _Lost(Exception):
    """The coordinator is not reached, for a reason that may pass."""


class _InUse(_Lost):
    """Another process of this site is connected."""


class _SiteEnd:
    """Connects, replies, and connects again when the coordinator is lost."""

    pool: ThreadPoolExecutor
    status: Status

    def __init__(
        self,
        reply: Callable[[bytes], bytes],
        folder: Path | None,
        url: str,
        name: str,
        proxy: str | None,
        largest: int,
        limits: ConnectionLimits,
    ) -> None:
        self._reply = reply
        self._folder = folder
        self._name = name
        self._largest = largest
        self._limits = limits
        self.server, self._url = address_of(url, folder is None)
        self._proxy = None if folder is None else _proxy_of(self.server, proxy)
        self._instance = secrets.token_hex(16)
        self._welcome = False  # at the last attempt
        self._joined = False  # ever
        self._said: set[str] = set()  # of the present outage
        self._last: tuple[bytes, Future[bytes]] | None = None
        self._ended = False  # and the coordinator has said so
        self._waiting: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()

    async def run(self, stop: threading.Event) -> None:
        """Stay connected until ``stop`` is set."""
        task = asyncio.create_task(self._stay())
        warned: date | None = None
        while not task.done() and not stop.is_set():
            if self._folder is not None and self._joined and warned != date.today():
                warned = date.today()
                _say_what_expires(self._folder, "site", self.status)
            await asyncio.wait([task], timeout=0.1)
        task.cancel()
        if self._last is not None:  # a reply that is being computed is recorded, and sent next time
            await asyncio.wait([asyncio.wrap_future(self._last[1])])
        with suppress(asyncio.CancelledError):
            await task

    async def _stay(self) -> None:
        pause, free = self._limits.first_pause, time.monotonic()
        while True:
            began = time.monotonic()
            try:
                await self._connect()
            except (aiohttp.ClientError, OSError, _Lost) as error:
                why = self._trouble(error)
                if not isinstance(error, _InUse):
                    free = time.monotonic()
                elif time.monotonic() - free > self._limits.in_use:
                    raise InputError(f"{self.server}: {why} already: stop it first") from None
                if why not in self._said and not self._ended:
                    self.status(f"no connection to {self.server} ({why}), trying again")
                self._said.add(why)
            if time.monotonic() - began > 2 * self._limits.longest_pause:  # it was connected
                pause = self._limits.first_pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # not all sites at once
            pause = min(2 * pause, self._limits.longest_pause)

    async def _connect(self) -> None:
        self._welcome = False
        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(_refuse_redirection)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context() or True, limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
        ) as session:
            async with asyncio.timeout(self._limits.opening):
                connection = await session.ws_connect(
                    self._url,
                    proxy=self._proxy,
                    headers={INSTANCE: self._instance, NAME: self._name},
                    protocols=(PROTOCOL,),
                    heartbeat=self._limits.heartbeat,
                    max_msg_size=FRAME,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                )
            code = UNEXPECTED
            answering = asyncio.create_task(self._answer(connection))
            try:
                await self._listen(connection)
            except asyncio.CancelledError:
                code = ENDED
                raise
            finally:
                answering.cancel()
                await connection.close(code=code)
                await session.close()
                await asyncio.sleep(0.05)  # for the connection to be closed

    def _context(self) -> ssl.SSLContext | None:
        """Return the context with the certificate that is there now: it may have been renewed."""
        if self._folder is None:
            return None
        try:
            return authority.tls_context(self._folder, "site")
        except InputError as error:
            if not self._joined:
                raise
            raise _Lost(str(error)) from None  # until there is a new one

    async def _listen(self, connection: aiohttp.ClientWebSocketResponse[bool]) -> None:
        if connection.protocol != PROTOCOL:
            self._give_up(NOT_OURS)
        end = connection.get_extra_info("ssl_object")
        if self._folder is not None:
            found = x509.load_der_x509_certificate(end.getpeercert(binary_form=True))
            known = authority.read_certificate(self._folder / "coordinator.crt")
            if authority.Holder.of(found).key != known.key:
                self._give_up("has another key than coordinator.crt, which this site has accepted")
        arrival = PartialMessage()
        while True:
            frame = await connection.receive()
            if frame.type is WSMsgType.TEXT and not self._welcome:
                self._welcome = self._joined = True
                self._ended = False
                self._said.clear()
                self.status(f"connected to {self.server}")
            elif frame.type is WSMsgType.BINARY and self._welcome:
                try:
                    message = arrival.add(frame.data, self._largest)
                except Unexpected as error:
                    raise _Lost(f"it sends {error}") from None
                if message is not None:
                    while not self._waiting.empty():  # nobody waits for the reply to an older one
                        self._waiting.get_nowait()
                    self._waiting.put_nowait((frame.data[:TICKET], message))
            elif frame.type is WSMsgType.CLOSE:
                self._closed(frame.data, _shown(frame.extra or ""))
                return
            else:
                raise _Lost("the connection broke")

    def _closed(self, code: int, why: str) -> None:
        match code:
            case 1001:
                self._ended = True
                self.status(f"{self.server}: {why}; waiting for the next one")
            case 4403:
                raise NotAuthorised(f"{self.server}: {why}: ask the coordinator")
            case 4409:
                raise _InUse(why)
            case _:
                raise _Lost(why or "the connection broke")

    async def _answer(self, connection: aiohttp.ClientWebSocketResponse[bool]) -> None:
        """Reply to one message after the other; pings are answered meanwhile."""
        with suppress(aiohttp.ClientError, OSError):  # whoever listens notices it as well
            while True:
                ticket, message = await self._waiting.get()
                if self._last is None or self._last[0] != ticket:
                    if self._last is not None:
                        self._last[1].cancel()
                    self._last = ticket, self.pool.submit(self._reply, message)
                # Of a connection that breaks, the reply goes over the next one.
                work = asyncio.wrap_future(self._last[1])
                try:
                    reply = await asyncio.shield(work)
                except Exception as error:  # nothing of it leaves: the text may contain data
                    self._last = None
                    self.status(f"a message could not be replied to ({_described(error)})")
                    await connection.send_bytes(ticket + NO_REPLY)
                else:
                    await send(connection, ticket, reply)

    def _give_up(self, why: str) -> NoReturn:
        """Raise InputError; if it worked before, it may work again."""
        if self._joined:
            raise _Lost(why)
        raise InputError(f"{self.server}: {why}")

    def _trouble(self, error: Exception) -> str:
        """Return why there is no connection; InputError if trying again would not help."""
        match error:
            case _Lost():
                return str(error)
            case aiohttp.ClientHttpProxyError():
                return f"the proxy answers {error.status} {_shown(error.message)}"
            case aiohttp.ClientProxyConnectionError():
                return f"the proxy cannot be reached: {_reason(error.os_error)}"
            case TimeoutError():
                return "no answer"
            case aiohttp.WSServerHandshakeError() if error.status < 500:
                self._give_up(NOT_OURS)
            case aiohttp.ClientResponseError():
                return f"HTTP status {error.status}"
        causes = _causes(error)
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                self._give_up(
                    f"its certificate is not accepted ({cause.verify_message}): check the address; "
                    "a proxy that inspects TLS has to let this address pass"
                )
            if isinstance(cause, ssl.SSLError) and cause.reason in (
                "WRONG_VERSION_NUMBER",
                "RECORD_LAYER_FAILURE",
            ):
                self._give_up("does not use TLS")
        reasons = [text for text in map(_reason, causes) if text]
        if self._folder is None:
            return reasons[0] if reasons else "the connection broke; does it use TLS?"
        if not self._welcome and (not reasons or reasons[0] == os.strerror(errno.ECONNRESET)):
            # a handshake that refuses a certificate ends without a word
            return (
                "the connection broke; if this persists, the coordinator may not accept this "
                "certificate"
            )
        return reasons[0] if reasons else "the connection broke"


async def _refuse_redirection(*_: object) -> None:
    raise _Lost(NOT_OURS)


def _causes(error: BaseException | None) -> list[BaseException]:
    """Return an error and the errors that led to it."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return [each for each in found if not isinstance(each, aiohttp.ClientConnectorError)]


def _reason(error: BaseException) -> str:
    """Return the system's word for an error; empty if it has none."""
    match error:
        case ssl.SSLError():
            return ""
        case socket.gaierror():
            return error.strerror or "its name is not known"
        case OSError():
            return os.strerror(error.errno) if error.errno else ""
    return ""


def _described(error: Exception) -> str:
    """Describe an error for the owner of a site."""
    if isinstance(error, OSError):
        return f"{error.filename or 'this machine'}: {error.strerror or error}"
    return type(error).__name__


def _shown(text: str) -> str:
    """Return a text of the other side in one line, without what controls a terminal."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)[:300]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(url: str, plain: bool = False) -> tuple[str, str]:
    """Return HOST:PORT of a coordinator, and its URL."""
    wrong = f"{url!r}: give https://HOST:PORT, such as https://fit.example.org:8000"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError(wrong) from None
    if not host or not port or parts.path not in ("", "/") or "@" in parts.netloc:
        raise InputError(wrong)
    if parts.scheme != ("http" if plain else "https"):
        raise InputError(f"{url}: use https:// with a folder of keys, and http:// without one")
    if plain and not _is_loopback(host):
        raise InputError(f"{url}: without keys, only this machine can be reached: 127.0.0.1")
    return parts.netloc, f"{parts.scheme}://{parts.netloc}/"


def _proxy_of(server: str, given: str | None) -> str | None:
    """Return the proxy to use: the one that is given, or the environment's; None for none."""
    if given is None:
        given = getproxies_environment().get("https")
        if not given or proxy_bypass(server):
            return None
    if "://" not in given:
        given = f"http://{given}"
    with suppress(ValueError):
        parts = urlsplit(given)
        if parts.scheme == "http" and parts.hostname and parts.port != 0:
            return given
    raise InputError("proxy: give its address as http://HOST:PORT")


def _listening(host: str, port: int, loopback: bool) -> socket.socket:
    """Return a socket that listens; InputError where that is not possible or allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{host}:{port}: cannot listen there ({why}), choose another") from None
    opened.setblocking(False)
    if loopback and not _is_loopback(opened.getsockname()[0]):
        opened.close()
        raise InputError(f"{host}: without keys, only this machine can be served: use 127.0.0.1")
    return opened


def _say_what_expires(folder: Path, role: authority.Role, status: Status) -> None:
    try:
        lines = authority.expiring(folder, role)
    except InputError as error:
        lines = [str(error)]
    for line in lines:
        status(line)


def _log_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong in the loop: mostly broken connections, which are no faults."""
    error = context.get("exception")
    level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
    log.log(level, context["message"], exc_info=error)
