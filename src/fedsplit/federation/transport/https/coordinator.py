"""The coordinator's end: who is connected, what each site is asked, and what came back."""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Self

from aiohttp import WSMsgType, web
from cryptography import x509

from fedsplit.errors import InputError
from fedsplit.federation import authority
from fedsplit.federation.keys import in_groups
from fedsplit.federation.transport import Arrivals
from fedsplit.federation.transport.https import wire
from fedsplit.federation.transport.https.listener import Listener, listening
from fedsplit.federation.transport.https.wire import Closing
from fedsplit.files import Stamp


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
    arrival: wire.PartialMessage = field(default_factory=wire.PartialMessage)
    sending: asyncio.Future[None] | None = None
    left: bool = False

    def read(self, frame: bytes) -> tuple[bytes, bytes | None] | None:
        """Read a frame, and return the request and the reply if this was its last one."""
        ticket = frame[: wire.TICKET]
        if self.arrival.ticket not in (b"", ticket):  # an abandoned reply cannot begin anew
            self.asked.pop(self.arrival.ticket, None)
        if frame[wire.TICKET :] == wire.NO_REPLY and self.asked.pop(ticket, None) is not None:
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
        status: wire.Status | None = None,
        limits: wire.ConnectionLimits | None = None,
    ) -> None:
        self._folder = folder
        self._host = host
        self.port = port
        self._status = status or wire.log.info
        self._limits = limits or wire.ConnectionLimits()
        self._tls: ssl.SSLContext | None = None
        self._stamp: Stamp | None = None
        self._peers: dict[str, _Peer] = {}
        self._seen: dict[str, float] = {}  # when a connection ended
        self._current = _Exchange()
        self._closing: set[asyncio.Task[None]] = set()
        self._warned: date | None = None

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._tls = authority.tls_context(self._folder, "coordinator")
        opened = listening(self._host, self.port, loopback=self._folder is None)
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
        current = _Exchange(secrets.token_bytes(wire.TICKET), largest, dict(messages))
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
            self._handle,
            handler_cancellation=True,
            access_log=None,
            logger=wire.log,
            max_headers=32,
        )
        self._listener = Listener(self._server, self._renewed, self._limits)
        self._tasks = [
            self._loop.create_task(self._listener.run(opened)),
            self._loop.create_task(self._watch()),
        ]

    async def _stop(self, why: str) -> None:
        ending = (*self._tasks, *self._listener.pending)
        for task in ending:
            task.cancel()
        for name in list(self._current.messages):
            self._current.settle(name, None)
        for peer in list(self._peers.values()):
            self._part(peer, Closing.ENDED, why)
        await asyncio.gather(*ending, *self._closing, return_exceptions=True)
        await self._server.shutdown(0.1)
        await asyncio.sleep(0.05)  # for the last words to leave
        for transport in list(self._listener.transports):
            transport.abort()
        await asyncio.sleep(0.05)  # for connections to be closed

    def _renewed(self) -> ssl.SSLContext | None:
        """Return the context for a handshake, with the certificate that is there now."""
        if self._folder is not None:
            try:
                stamp = Stamp.of(self._folder / "coordinator.crt")
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._tls = authority.tls_context(self._folder, "coordinator")
            except (InputError, OSError) as error:
                self._status(f"the certificate of before is used on: {error}")
        return self._tls

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one connection of a site, as long as it lasts."""
        transport = request.transport
        self._listener.requested(transport)
        connection = web.WebSocketResponse(
            heartbeat=self._limits.heartbeat,
            max_msg_size=wire.FRAME,
            compress=False,
            protocols=(wire.PROTOCOL,),
        )
        instance = request.headers.get(wire.INSTANCE, "")
        asked = connection.can_prepare(request)
        if transport is None or not asked.ok or asked.protocol != wire.PROTOCOL or not instance:
            refusal = web.Response(status=404)
            refusal.force_close()
            return refusal
        name, key, ends = request.headers.get(wire.NAME, ""), b"", None
        if (tls := transport.get_extra_info("ssl_object")) is not None:  # then it is proved
            certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True))
            name, key, ends, _ = authority.Holder.of(certificate)
        peer = _Peer(name, key, ends, instance, connection, transport)
        await connection.prepare(request)
        earlier = self._peers.get(peer.name)
        if objection := self._objection(peer):
            await self._close(peer, *objection)
        elif earlier is not None and earlier.instance != instance:
            await self._close(peer, Closing.IN_USE, f"another process is connected as {peer.name}")
        else:
            if earlier is not None:  # of the same process, which knows that it is dead
                self._part(earlier, Closing.UNEXPECTED, "another connection took its place")
            await self._serve(peer)
        return connection

    def _objection(self, peer: _Peer) -> tuple[int, str] | None:
        """Return why a site may not be connected now, by the present list of members."""
        try:
            authority.check_name(peer.name)
        except InputError as error:
            return Closing.REVOKED, str(error)
        if self._folder is None or peer.ends is None:
            return None
        if datetime.now(UTC) > peer.ends:
            return (
                Closing.EXPIRED,
                f"the certificate of {peer.name} expired on {peer.ends:%Y-%m-%d}",
            )
        if not authority.is_member(self._folder, peer.name, peer.key):
            return Closing.REVOKED, f"the key {in_groups(peer.key)} is unknown or revoked"
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
                raise wire.Unexpected
            peer.left = frame.type is WSMsgType.CLOSE and frame.data == Closing.ENDED
        except wire.Unexpected:
            why = Closing.UNEXPECTED, "a message that nobody asked for, or that is too large"
        except OSError as error:
            wire.log.debug("the connection of %s has failed: %s", peer.name, error)
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
            wire.send(peer.connection, current.ticket, current.messages[peer.name])
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
        """Close the connection of a site; nothing more is read from it."""
        self._forget(peer)
        if code in (Closing.REVOKED, Closing.EXPIRED):
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
                wire.report_expiring(self._folder, "coordinator", self._status)
            await asyncio.sleep(0.5)


def _log_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong in the loop: mostly broken connections, which are no faults."""
    error = context.get("exception")
    level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
    wire.log.log(level, context["message"], exc_info=error)
