"""What a server answers to requests: five paths, each for clients that may join."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote, unquote

from aiohttp import web

from fedsplit.remote.allowed import AllowedKeys
from fedsplit.remote.certificates import expired
from fedsplit.remote.https import protocol
from fedsplit.remote.https.mailbox import Mailbox, Posted
from fedsplit.remote.https.metrics import Counts
from fedsplit.remote.https.tls import peer_certificate
from fedsplit.remote.keys import check_public_key, fingerprint
from fedsplit.version import __version__

INSTANCE = re.compile(r"[0-9a-f]{32}")

HELD_CHECK_SECONDS = 1.0
"""Seconds after which a request that is held is checked again: its key may have been revoked."""


class _Refusal(Exception):
    """A request that is answered with a status and a line of text."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Service:
    """Answers the requests of clients.

    Parameters
    ----------
    allowed : AllowedKeys or None
        Who may join; None is everybody, under any name that no connected client has.
    largest : int
        The most bytes of a reply.
    counts : Counts

    Attributes
    ----------
    boxes : dict of Mailbox
        By client.
    farewell : str or None
        What clients are told once no more questions will come.
    """

    def __init__(self, allowed: AllowedKeys | None, largest: int, counts: Counts) -> None:
        self.boxes: dict[str, Mailbox] = {}
        self.farewell: str | None = None
        self._allowed = allowed
        self._largest = largest
        self._counts = counts
        self._paths: dict[
            str, Callable[[web.BaseRequest, Mailbox], Awaitable[web.StreamResponse]]
        ] = {
            protocol.JOIN: self._join,
            protocol.NEXT: self._next,
            protocol.BEAT: self._join,
            protocol.REPLY: self._reply,
            protocol.LEAVE: self._leave,
        }

    def box(self, name: str) -> Mailbox:
        """A client's mailbox, whether it has ever been connected or not."""
        if name not in self.boxes:
            self.boxes[name] = Mailbox(name)
        return self.boxes[name]

    def present(self) -> dict[str, Mailbox]:
        """The clients that are connected, and may be."""
        here = {name: box for name, box in sorted(self.boxes.items()) if box.alive}
        return {name: box for name, box in here.items() if self.permits(box)}

    def permits(self, box: Mailbox) -> bool:
        """Whether the key that a client joined with is still among those that may."""
        return self._allowed is None or self._allowed.name(box.key) == box.name

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        try:
            answer = self._paths.get(request.raw_path)
            if answer is None or request.method != "POST":
                raise _Refusal(404)
            self._check_body(request)
            box = self._enter(request)
            try:
                return await answer(request, box)
            finally:
                box.touch()
        except _Refusal as refusal:
            self._counts.refused[refusal.status] += 1
            response = _response(refusal.status, text=refusal.text)
            response.force_close()
            return response

    def _check_body(self, request: web.BaseRequest) -> None:
        """Refuse a body of unknown or excessive size before any of it is read."""
        if "Transfer-Encoding" in request.headers or "Content-Encoding" in request.headers:
            raise _Refusal(411, "a body needs a length, and no encoding")
        if request.content_length and request.raw_path != protocol.REPLY:
            raise _Refusal(413, "this request has no body")

    def _enter(self, request: web.BaseRequest) -> Mailbox:
        """Find the mailbox of the client whose connection brought a request."""
        connection = request.transport
        instance = request.headers.get(protocol.INSTANCE, "")
        if connection is None or not INSTANCE.fullmatch(instance):
            raise _Refusal(400, "this is not a request of fedsplit")
        name, key = self._identity(request)
        box = self.box(name)
        if not box.enter(instance, key, connection):
            raise _Refusal(409, f"another process is connected as {name}")
        return box

    def _identity(self, request: web.BaseRequest) -> tuple[str, str]:
        """The name of a client, and the fingerprint of its key."""
        if self._allowed is None:
            stated = unquote(request.headers.get(protocol.NAME, ""))[:100]
            name = "".join(letter for letter in stated if letter.isprintable())
            if not name:
                raise _Refusal(400, "this client states no name")
            return name, ""
        certificate = peer_certificate(request.transport)
        if certificate is None:
            raise _Refusal(403, "no certificate")
        if expired(certificate):  # since the handshake, which may be weeks ago
            ends = certificate.not_valid_after_utc
            raise _Refusal(401, f"the certificate of this client expired on {ends:%Y-%m-%d}")
        key = fingerprint(check_public_key(certificate.public_key(), "the certificate"))
        known = self._allowed.name(key)
        if known is None:
            raise _Refusal(403, f"the key {key} is not authorised (unknown or revoked)")
        return known, key

    async def _join(self, request: web.BaseRequest, box: Mailbox) -> web.StreamResponse:
        return _response(204)

    async def _leave(self, request: web.BaseRequest, box: Mailbox) -> web.StreamResponse:
        box.left = True
        return _response(204)

    async def _next(self, request: web.BaseRequest, box: Mailbox) -> web.StreamResponse:
        """Deliver the client's question; hold the request while there is none."""
        ends = time.monotonic() + protocol.HOLD_SECONDS
        box.holding += 1
        try:
            while True:
                if not self.permits(box):
                    raise _Refusal(403, f"the key {box.key} is no longer authorised (revoked)")
                if self.farewell is not None:
                    box.told = True
                    return _response(204, {protocol.END: quote(self.farewell)})
                if box.posted is not None and not box.posted.outcome.done():
                    return await self._deliver(request, box.posted)
                left = ends - time.monotonic()
                if left <= 0:
                    return _response(204)
                await box.change(min(HELD_CHECK_SECONDS, left))
        finally:
            box.holding -= 1

    async def _deliver(self, request: web.BaseRequest, posted: Posted) -> web.StreamResponse:
        posted.delivered = True
        response = web.StreamResponse(headers=_headers({protocol.MESSAGE: posted.number}))
        response.content_type = "application/octet-stream"
        response.content_length = len(posted.message)
        await response.prepare(request)
        view = memoryview(posted.message)
        for start in range(0, len(view), protocol.PART_BYTES):
            async with asyncio.timeout(protocol.TRANSFER_SECONDS):
                await response.write(view[start : start + protocol.PART_BYTES])
        await response.write_eof()
        self._counts.questions += 1
        self._counts.sent_bytes += len(view)
        return response

    async def _reply(self, request: web.BaseRequest, box: Mailbox) -> web.StreamResponse:
        """Take the reply to the client's question, if it is still wanted."""
        posted = box.posted
        number = request.headers.get(protocol.MESSAGE, "")
        if posted is None or posted.number != number or posted.outcome.done():
            raise _Refusal(410, "this reply comes too late")
        if protocol.FAILED in request.headers:
            what = unquote(request.headers[protocol.FAILED])[:80]
            posted.settle(None, f"its client failed ({what!r})")
            return _response(204)
        size = request.content_length or 0
        if size > self._largest:
            posted.settle(None, too_large(self._largest))
            raise _Refusal(413, too_large(self._largest))
        reply = await _read(request, posted, size)
        posted.settle(reply)
        self._counts.replies += 1
        self._counts.received_bytes += size
        return _response(204)


def too_large(largest: int) -> str:
    """What is wrong with a reply that has too many bytes."""
    return f"an answer that is too large, of more than {largest:,} bytes"


async def _read(request: web.BaseRequest, posted: Posted, size: int) -> bytes:
    """Read a body of this size, while its question is open."""
    parts = []
    missing = size
    while missing > 0:
        try:
            async with asyncio.timeout(protocol.TRANSFER_SECONDS):
                part = await request.content.read(min(missing, protocol.PART_BYTES))
        except TimeoutError:
            raise _Refusal(408, "this reply takes too long") from None
        if not part or posted.outcome.done():
            raise _Refusal(410, "this reply comes too late")
        missing -= len(part)
        parts.append(part)
    return b"".join(parts)


def _headers(more: dict[str, str] | None = None) -> dict[str, str]:
    own = {protocol.VERSION: __version__, "Server": "fedsplit", "Cache-Control": "no-store"}
    return own | (more or {})


def _response(status: int, more: dict[str, str] | None = None, text: str = "") -> web.Response:
    if status == 204:
        return web.Response(status=status, headers=_headers(more))
    return web.Response(status=status, headers=_headers(more), text=text)
