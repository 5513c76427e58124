"""A client's connection to its server, and why it fails."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import secrets
import socket
import ssl
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, unquote

import aiohttp

from fedsplit.errors import InputError, NotAuthorised
from fedsplit.remote.https import protocol
from fedsplit.remote.https.addresses import address
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.remote.https.tls import ClientTls
from fedsplit.texts import one_line

RESET = os.strerror(errno.ECONNRESET)

CONNECT_SECONDS = 10.0
"""Seconds in which a connection has to be made."""

LEAVE_SECONDS = 1.0
"""Seconds in which the server has to hear that a client leaves."""

CLOSE_SECONDS = 0.05
"""Seconds in which a connection on this side is closed."""

SHOWN_CHARACTERS = 300
"""The most characters of a server's or proxy's text that are shown."""

DOUBT = "the connection broke; if this persists, the server may not accept this certificate"
"""A server that refuses a certificate in the handshake closes the connection without a word."""

NOT_OURS = "is not a fedsplit server, check --server"

UNWANTED = (408, 410, 413)
"""The statuses of a reply that took too long, came too late, or is too large."""

INSPECTED = "check --ca and --server; a proxy that inspects TLS has to let this address pass"


class Taken(Exception):
    """Another process of this client is connected."""


class Lost(Exception):
    """The server is not reached, for a reason that may pass."""


class Question(NamedTuple):
    """A question as it arrived.

    Attributes
    ----------
    number : str
        What the reply has to repeat.
    message : bytes
    """

    number: str
    message: bytes


class Ended(NamedTuple):
    """The server has no more questions; ``text`` says why."""

    text: str


class Connection:
    """One connection to a server, made again whenever it is lost.

    Parameters
    ----------
    endpoint : Endpoint
    tls : ClientTls or None
        None for a server without TLS.
    """

    def __init__(self, endpoint: Endpoint, tls: ClientTls | None) -> None:
        self.server = endpoint.server
        self._host, self._port = address(self.server)
        self._tls = tls
        self._proxy = endpoint.through
        self._welcome = False
        self._joined = False
        self._base = f"http://{self.server}"
        encrypted: ssl.SSLContext | bool = False
        if tls is not None:
            self._base = f"https://{self.server}"
            encrypted = tls.context
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=encrypted, limit=1, keepalive_timeout=2 * protocol.HOLD_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=CONNECT_SECONDS,
                sock_read=protocol.HOLD_SECONDS + protocol.TRANSFER_SECONDS,
            ),
            headers={protocol.INSTANCE: secrets.token_hex(16), protocol.NAME: quote(endpoint.name)},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    def refresh(self) -> None:
        """Read this client's certificate again; ``InputError`` unless it can be used now."""
        if self._tls is not None:
            self._tls.refresh()

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()
        await asyncio.sleep(CLOSE_SECONDS)

    async def join(self) -> None:
        """Register this client."""
        async with self._post(protocol.JOIN) as response:
            await self._check(response)
            self._welcome = self._joined = True

    async def leave(self) -> None:
        """Say that this client will not come back, if the server can be reached."""
        with suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(LEAVE_SECONDS), self._post(protocol.LEAVE):
                pass

    async def beat(self) -> None:
        """Say that this client is still at work."""
        async with self._post(protocol.BEAT) as response:
            await self._check(response)

    async def next(self) -> Question | Ended | None:
        """Ask for the next question; None if there is none yet."""
        async with self._post(protocol.NEXT) as response:
            await self._check(response)
            if protocol.END in response.headers:
                return Ended(unquote(response.headers[protocol.END]))
            if response.status == 204:
                return None
            number = response.headers.get(protocol.MESSAGE, "")
            return Question(number, await self._body(response))

    async def reply(self, number: str, reply: bytes) -> None:
        """Send a reply; one that the server no longer wants is dropped."""
        headers = {protocol.MESSAGE: number}
        async with self._post(protocol.REPLY, headers, reply) as response:
            await self._check(response, UNWANTED)

    async def fail(self, number: str, what: str) -> None:
        """Say that there is no reply."""
        headers = {protocol.MESSAGE: number, protocol.FAILED: quote(what)}
        async with self._post(protocol.REPLY, headers) as response:
            await self._check(response, UNWANTED)

    def _post(
        self, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> aiohttp.client._RequestContextManager:
        return self._session.post(
            self._base + path,
            headers=headers,
            data=io.BytesIO(body),  # is sent in parts
            proxy=self._proxy,
            allow_redirects=False,
        )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        parts = []
        size = 0
        async for part in response.content.iter_chunked(protocol.PART_BYTES):
            size += len(part)
            if size > protocol.MESSAGE_BYTES:
                raise Lost(f"a question of more than {protocol.MESSAGE_BYTES:,} bytes")
            parts.append(part)
        return b"".join(parts)

    async def _check(
        self, response: aiohttp.ClientResponse, accepted: Collection[int] = ()
    ) -> None:
        """Raise what a status means, unless it means that all is well, or is accepted too."""
        status = response.status
        ours = protocol.VERSION in response.headers
        if ours and status in {200, 204, *accepted}:
            return
        text = ""
        if ours and status in (400, 401, 403, 409):
            said = (await response.content.read(500)).decode("utf-8", "replace")
            text = one_line(said, SHOWN_CHARACTERS)
        if status == 409 and ours:
            remedy = "stop it, or use another key"
            if self._tls is None:
                remedy = "stop it, or choose another --name"
            raise Taken(f"{self.server}: {text} already: {remedy}")
        if status == 403 and ours:
            raise NotAuthorised(
                f"{self.server}: {text}: ask the coordinator (fedsplit keys DIR --list)"
            )
        if status == 401 and ours:
            raise Lost(text)  # the next attempt reads the certificate's file again
        if not ours and status in (200, 204, 400, 404, 405, 501):
            if self._joined:  # something in front of it answers, perhaps for a moment
                raise Lost(NOT_OURS)
            raise InputError(f"{self.server}: {NOT_OURS}")
        raise Lost(f"HTTP status {status}")

    async def trouble(self, error: Exception) -> str:
        """Return why a request failed; ``InputError`` if trying again would not help."""
        match error:
            case Lost():
                return str(error)
            case aiohttp.ClientHttpProxyError():
                return (
                    f"the proxy answers {error.status} {one_line(error.message, SHOWN_CHARACTERS)}"
                )
            case aiohttp.ClientProxyConnectionError():
                return f"the proxy cannot be reached: {_reason(error.os_error)}"
            case TimeoutError():
                return "no answer"
        if self._tls is None:
            await asyncio.to_thread(self._check_no_tls)
        chain = _causes(error)
        for cause in chain:
            self._check_tls(cause)
        reasons = [text for text in map(_reason, chain) if text]
        welcome, self._welcome = self._welcome, False
        if self._tls is not None and (not reasons or reasons[0] == RESET) and not welcome:
            return DOUBT
        return next(iter(reasons), "the connection broke")

    def _check_tls(self, cause: BaseException) -> None:
        match cause:
            case ssl.SSLCertVerificationError():
                raise InputError(
                    f"{self.server}: its certificate is not accepted ({cause.verify_message}): "
                    f"{INSPECTED}"
                ) from None
            case ssl.SSLError():
                if cause.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
                    raise InputError(
                        f"{self.server}: does not use TLS: check --server, or test on one machine "
                        "with --insecure"
                    ) from None

    def _check_no_tls(self) -> None:
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nothing is sent over this connection
        anyone.check_hostname = False
        anyone.verify_mode = ssl.CERT_NONE
        with (
            suppress(OSError),
            socket.create_connection((self._host, self._port), timeout=5) as plain,
            anyone.wrap_socket(plain),
        ):
            raise InputError(f"{self.server}: uses TLS: give --key and --ca instead of --insecure")


def _causes(error: BaseException | None) -> list[BaseException]:
    """An error and the errors that led to it."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return [each for each in found if not isinstance(each, aiohttp.ClientConnectorError)]


def _reason(error: BaseException) -> str:
    """The system's word for an error; empty if it has none."""
    match error:
        case ssl.SSLError():
            return ""
        case socket.gaierror():
            return error.strerror or "its name is not known"
        case OSError():
            return os.strerror(error.errno) if error.errno else ""
    return ""
