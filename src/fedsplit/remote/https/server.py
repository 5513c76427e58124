"""The server's side: carries messages to clients that are connected, and brings their replies."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from aiohttp import web

from fedsplit.errors import InputError
from fedsplit.remote.allowed import AllowedKeys
from fedsplit.remote.certificates import read_certificate
from fedsplit.remote.https import protocol
from fedsplit.remote.https.exchange import exchange
from fedsplit.remote.https.listener import Listener, listening
from fedsplit.remote.https.logs import log, log_fault
from fedsplit.remote.https.mailbox import Mailbox
from fedsplit.remote.https.metrics import Counts
from fedsplit.remote.https.monitoring import Monitor
from fedsplit.remote.https.service import Service
from fedsplit.remote.https.tls import server_context

IDLE_SECONDS = 20.0
"""Seconds within which a connection has to bring the headers of its next request."""

CLOSING_NOTICE_SECONDS = 2.0
"""Seconds in which clients are told that no more questions will come."""

CLOSING = 5.0
"""Seconds in which the server has to stop."""

SETTLE_SECONDS = 0.05
"""Seconds in which something that is under way on this machine gets done."""

LINE_BYTES = 4096
"""The most bytes of a line of a request, or of a header."""

ENDED = "the run has ended"
STOPPED = "the run was stopped"

Result = TypeVar("Result")
Outcome = tuple[bytes | None, str, float]
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Presence(NamedTuple):
    """A connected client.

    Attributes
    ----------
    since : str
        When it came, in UTC.
    answering : bool
        Whether it is at work on a question.
    silent : float
        Seconds since its last request.
    """

    since: str
    answering: bool
    silent: float


class HttpsServer:
    """Carries messages to the clients that are connected, and brings their replies.

    Parameters
    ----------
    host : str
        Where to listen.
    port : int
        0 takes any free port; see the attribute ``port`` once the server is open.
    keys : Path, optional
        The folder of the federation's keys: the server's certificate, and the clients that may
        join. Without keys there is no TLS, and anybody may join, under any name that no connected
        client has.
    metrics : int, optional
        A port of 127.0.0.1 for ``/health`` and ``/metrics``.
    largest : int
        The most bytes of a reply.

    Attributes
    ----------
    allowed : AllowedKeys or None
        The clients that may join.
    warning : str
        About the server's certificate; mostly empty.
    farewell : str
        What clients are told when the server is closed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        keys: Path | None = None,
        *,
        metrics: int | None = None,
        largest: int = protocol.MESSAGE_BYTES,
    ) -> None:
        self.host = host
        self.port = port
        self.metrics = metrics
        self.allowed: AllowedKeys | None = None
        self.warning = ""
        self.farewell = ENDED
        self._context = None
        self._ends: float | None = None
        if keys is not None:
            self._context, self.warning = server_context(keys)
            self.allowed = AllowedKeys(keys)
            self._ends = read_certificate(keys / "server.crt").not_valid_after_utc.timestamp()
        self._counts = Counts()
        self._service = Service(self.allowed, largest, self._counts)
        self._thread: threading.Thread | None = None
        self._listeners: list[Listener] = []
        self._servers: list[web.Server] = []
        self._turn = threading.Lock()
        self._posted: dict[str, Future[dict[str, Outcome]]] = {}

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        if error is not None:
            self.farewell = STOPPED
        self.close()

    def open(self) -> None:
        """Listen."""
        main = listening(self.host, self.port)
        self.port = main.getsockname()[1]
        local = None
        if self.metrics is not None:
            try:
                local = listening("127.0.0.1", self.metrics)
            except InputError:
                main.close()
                raise
            self.metrics = local.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(log_fault)
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._thread.start()
        self._run(self._listen(main, local))

    def close(self) -> None:
        """Tell the clients, and stop listening, within a few seconds."""
        if self._thread is None:
            return
        for posted in self._posted.values():
            posted.cancel()
        with suppress(TimeoutError):
            self._run(self._shut(), CLOSING_NOTICE_SECONDS + CLOSING)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSING)
        if not self._thread.is_alive():
            self._loop.close()
        self._thread = None

    def present(self) -> dict[str, str]:
        """Return the connected clients by name, each with the time since when, in UTC."""
        return {name: each.since for name, each in self.clients().items()}

    def clients(self) -> dict[str, Presence]:
        """Return what the connected clients do, by name."""
        return self._run(_soon(self._clients))

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, Outcome]:
        """Send messages to clients, and wait for every reply or failure.

        A client that disconnects and comes back gets its message again. One that is not connected
        fails after a moment. Replies that arrive later are dropped. A client with a message that
        was posted replies to that one first.

        Returns
        -------
        dict of str to (bytes or None, str, float)
            By client: its reply, what went wrong, and the seconds until then.
        """
        with self._turn:
            wait([self._posted[name] for name in messages if name in self._posted], timeout)
            return self._run(exchange(self._service, messages, timeout))

    def post(self, messages: Mapping[str, bytes]) -> None:
        """Send a message to each of these clients, in the place of an earlier one."""
        for name, message in messages.items():
            if earlier := self._posted.pop(name, None):
                earlier.cancel()
            work = exchange(self._service, {name: message}, math.inf)
            self._posted[name] = asyncio.run_coroutine_threadsafe(work, self._loop)

    def collect(self, timeout: float) -> dict[str, Outcome]:
        """What came of messages that were posted, as of ``send``.

        Waits until something came of one of them, but not longer than ``timeout`` seconds.
        """
        done, _ = wait(self._posted.values(), timeout, FIRST_COMPLETED)
        names = [name for name, each in self._posted.items() if each in done]
        return {name: self._posted.pop(name).result()[name] for name in names}

    def _run(self, work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        """Carry out work in the server's thread; it ends with the caller."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    async def _listen(self, main: socket.socket, local: socket.socket | None) -> None:
        self._serve(main, self._service.handle, self._context)
        if local is not None:
            monitor = Monitor(self._service, self._counts, self._ends)
            self._serve(local, monitor.handle, None)

    def _serve(self, opened: socket.socket, handler: Handler, context: Any) -> None:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            if request.transport is not None:
                listener.heard.add(request.transport)
            return await handler(request)

        server = web.Server(
            handle,
            handler_cancellation=True,
            access_log=None,
            logger=log,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=CLOSING,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            auto_decompress=False,
        )
        listener = Listener(opened, server, context, self._counts)
        self._servers.append(server)
        self._listeners.append(listener)

    async def _shut(self) -> None:
        self._service.farewell = self.farewell
        boxes = self._service.present().values()
        for box in boxes:
            box.wake()
        ends = time.monotonic() + CLOSING_NOTICE_SECONDS
        while any(box.alive and not box.told for box in boxes) and time.monotonic() < ends:
            await asyncio.sleep(0.02)
        await asyncio.sleep(SETTLE_SECONDS)  # for the last answers to leave
        for server in self._servers:
            await server.shutdown(SETTLE_SECONDS)
        for listener in self._listeners:
            listener.close()
        await asyncio.sleep(SETTLE_SECONDS)  # for connections to be closed

    def _clients(self) -> dict[str, Presence]:
        return {
            name: Presence(box.since, _answering(box), box.silent)
            for name, box in self._service.present().items()
        }


def _answering(box: Mailbox) -> bool:
    return box.posted is not None and box.posted.delivered and not box.posted.outcome.done()


async def _soon(work: Callable[[], Result]) -> Result:
    return work()
