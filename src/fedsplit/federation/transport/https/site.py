"""A site's end: connects to the coordinator, replies, and connects again when it is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from aiohttp import WSMsgType
from cryptography import x509

from fedsplit.errors import InputError, NotAuthorised
from fedsplit.federation import authority
from fedsplit.federation.transport.https import wire
from fedsplit.federation.transport.https.wire import Closing
from fedsplit.texts import one_line

NOT_OURS = "is not a coordinator of fedsplit, check the address"


def serve(
    reply: Callable[[bytes], bytes],
    folder: Path | None,
    url: str,
    *,
    name: str = "",
    proxy: str | None = None,
    largest: int = 2**28,
    status: wire.Status | None = None,
    stop: threading.Event | None = None,
    limits: wire.ConnectionLimits | None = None,
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
    status, limits = status or wire.log.info, limits or wire.ConnectionLimits()
    with ThreadPoolExecutor(1, "reply") as pool:
        end = _SiteEnd(reply, folder, url, name, proxy, largest, status, limits, pool)
        asyncio.run(end.run(stop or threading.Event()))


class _Lost(Exception):
    """The coordinator is not reached, for a reason that may pass."""


class _InUse(_Lost):
    """Another process of this site is connected."""


@dataclass
class _SiteEnd:
    """What ``serve`` takes, and a thread for replies."""

    reply: Callable[[bytes], bytes]
    folder: Path | None
    url: str
    name: str
    proxy: str | None
    largest: int
    status: wire.Status
    limits: wire.ConnectionLimits
    pool: ThreadPoolExecutor

    def __post_init__(self) -> None:
        self.server, self.url = address_of(self.url, self.folder is None)
        self.proxy = None if self.folder is None else _proxy_of(self.server, self.proxy)
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
            if self.folder is not None and self._joined and warned != date.today():
                warned = date.today()
                wire.report_expiring(self.folder, "site", self.status)
            await asyncio.wait([task], timeout=0.1)
        task.cancel()
        if self._last is not None:  # a reply that is being computed is recorded, and sent next time
            await asyncio.wait([asyncio.wrap_future(self._last[1])])
        with suppress(asyncio.CancelledError):
            await task

    async def _stay(self) -> None:
        pause, free = self.limits.first_pause, time.monotonic()
        while True:
            began = time.monotonic()
            try:
                await self._connect()
            except (aiohttp.ClientError, OSError, _Lost) as error:
                why = self._trouble(error)
                if not isinstance(error, _InUse):
                    free = time.monotonic()
                elif time.monotonic() - free > self.limits.in_use:
                    raise InputError(f"{self.server}: {why} already: stop it first") from None
                if why not in self._said and not self._ended:
                    self.status(f"no connection to {self.server} ({why}), trying again")
                self._said.add(why)
            if time.monotonic() - began > 2 * self.limits.longest_pause:  # it was connected
                pause = self.limits.first_pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # not all sites at once
            pause = min(2 * pause, self.limits.longest_pause)

    async def _connect(self) -> None:
        self._welcome = False
        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(_refuse_redirection)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context() or True, limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
        ) as session:
            async with asyncio.timeout(self.limits.opening):
                connection = await session.ws_connect(
                    self.url,
                    proxy=self.proxy,
                    headers={wire.INSTANCE: self._instance, wire.NAME: self.name},
                    protocols=(wire.PROTOCOL,),
                    heartbeat=self.limits.heartbeat,
                    max_msg_size=wire.FRAME,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                )
            code = Closing.UNEXPECTED
            answering = asyncio.create_task(self._answer(connection))
            try:
                await self._listen(connection)
            except asyncio.CancelledError:
                code = Closing.ENDED
                raise
            finally:
                answering.cancel()
                await connection.close(code=code)
                await session.close()
                await asyncio.sleep(0.05)  # for the connection to be closed

    def _context(self) -> ssl.SSLContext | None:
        """Return the context with the certificate that is there now: it may have been renewed."""
        if self.folder is None:
            return None
        try:
            return authority.tls_context(self.folder, "site")
        except InputError as error:
            if not self._joined:
                raise
            raise _Lost(str(error)) from None  # until there is a new one

    async def _listen(self, connection: aiohttp.ClientWebSocketResponse[bool]) -> None:
        if connection.protocol != wire.PROTOCOL:
            self._give_up(NOT_OURS)
        end = connection.get_extra_info("ssl_object")
        if self.folder is not None:
            found = x509.load_der_x509_certificate(end.getpeercert(binary_form=True))
            known = authority.read_certificate(self.folder / "coordinator.crt")
            if authority.Holder.of(found).key != known.key:
                self._give_up("has another key than coordinator.crt, which this site has accepted")
        arrival = wire.PartialMessage()
        while True:
            frame = await connection.receive()
            if frame.type is WSMsgType.TEXT and not self._welcome:
                self._welcome = self._joined = True
                self._ended = False
                self._said.clear()
                self.status(f"connected to {self.server}")
            elif frame.type is WSMsgType.BINARY and self._welcome:
                try:
                    message = arrival.add(frame.data, self.largest)
                except wire.Unexpected as error:
                    raise _Lost(f"it sends {error}") from None
                if message is not None:
                    while not self._waiting.empty():  # nobody waits for the reply to an older one
                        self._waiting.get_nowait()
                    self._waiting.put_nowait((frame.data[: wire.TICKET], message))
            elif frame.type is WSMsgType.CLOSE:
                self._closed(frame.data, one_line(frame.extra or ""))
                return
            else:
                raise _Lost("the connection broke")

    def _closed(self, code: int, why: str) -> None:
        match code:
            case Closing.ENDED:
                self._ended = True
                self.status(f"{self.server}: {why}; waiting for the next one")
            case Closing.REVOKED:
                raise NotAuthorised(f"{self.server}: {why}: ask the coordinator")
            case Closing.IN_USE:
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
                    self._last = ticket, self.pool.submit(self.reply, message)
                # Of a connection that breaks, the reply goes over the next one.
                work = asyncio.wrap_future(self._last[1])
                try:
                    reply = await asyncio.shield(work)
                except Exception as error:  # nothing of it leaves: the text may contain data
                    self._last = None
                    self.status(f"a message could not be replied to ({_described(error)})")
                    await connection.send_bytes(ticket + wire.NO_REPLY)
                else:
                    await wire.send(connection, ticket, reply)

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
                return f"the proxy answers {error.status} {one_line(error.message)}"
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
        if self.folder is None:
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
    if plain and not wire.is_loopback(host):
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
