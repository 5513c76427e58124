"""Connections that have not brought a request yet: a flood of them holds up nobody for long."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from weakref import WeakSet

from aiohttp import web

from fedsplit.errors import InputError
from fedsplit.federation.transport.https import wire


def listening(host: str, port: int, loopback: bool) -> socket.socket:
    """Return a socket that listens; InputError where that is not possible or allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{host}:{port}: cannot listen there ({why}), choose another") from None
    opened.setblocking(False)
    if loopback and not wire.is_loopback(opened.getsockname()[0]):
        opened.close()
        raise InputError(f"{host}: without keys, only this machine can be served: use 127.0.0.1")
    return opened


class Listener:
    """Accepts connections, and gives up those that bring no request.

    The handler of ``server`` calls ``requested``; ``tls`` returns a context for TLS, or None.

    Attributes
    ----------
    pending : dict of Task to (str, float)
        The connections without a request, the oldest first: from which address, and since when.
    transports : set of Transport
        The connections that are open.
    """

    def __init__(
        self,
        server: web.Server,
        tls: Callable[[], ssl.SSLContext | None],
        limits: wire.ConnectionLimits,
    ) -> None:
        self.pending: dict[asyncio.Task[None], tuple[str, float]] = {}
        self.transports: WeakSet[asyncio.Transport] = WeakSet()
        self._server = server
        self._tls = tls
        self._limits = limits
        self._requests: dict[object, asyncio.Event] = {}  # by transport

    async def run(self, opened: socket.socket) -> None:
        """Accept connections of a socket until it is cancelled."""
        loop = asyncio.get_running_loop()
        with opened:
            while True:
                try:
                    connection, address = await loop.sock_accept(opened)
                except OSError:  # no file descriptors, or a connection that is gone already
                    self._give_up(list(self.pending)[:1])
                    await asyncio.sleep(0.1)
                    continue
                task = loop.create_task(self._open(connection))
                self.pending[task] = (str(address[0]), time.monotonic())
                task.add_done_callback(partial(self._settled, connection))
                self._limit(str(address[0]))

    def requested(self, transport: asyncio.Transport | None) -> None:
        """Note that a connection has brought its request."""
        self._request(transport).set()

    def _request(self, transport: object) -> asyncio.Event:
        return self._requests.setdefault(transport, asyncio.Event())

    def _limit(self, address: str) -> None:
        def of(where: str) -> list[asyncio.Task[None]]:
            return [task for task, (other, _) in self.pending.items() if other == where]

        if len(self.pending) > self._limits.all_pending:
            [(busiest, _)] = Counter(where for where, _ in self.pending.values()).most_common(1)
            self._give_up(of(busiest)[:1])
        slow = time.monotonic() - self._limits.prompt
        many = of(address)[: -self._limits.pending]
        self._give_up([task for task in many if self.pending[task][1] < slow])

    def _give_up(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
            del self.pending[task]  # it ends later, and must not be given up in others' place

    async def _open(self, connection: socket.socket) -> None:
        """Complete the handshake of a connection, and wait for its request."""
        transport, tls = None, self._tls()
        try:
            connection.setblocking(False)
            async with asyncio.timeout(self._limits.opening):
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    self._server,
                    connection,
                    ssl=tls,
                    ssl_handshake_timeout=None if tls is None else self._limits.opening,
                    ssl_shutdown_timeout=None if tls is None else 2.0,
                )
                self.transports.add(transport)
                await self._request(transport).wait()
        except (OSError, ValueError) as error:  # errors of TLS and of time are of these types
            wire.log.debug("a connection has failed: %s", error)
        finally:
            if transport is not None and not self._requests.pop(transport).is_set():
                transport.abort()

    def _settled(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self.pending.pop(task, None)
        if task.cancelled():  # perhaps before it had begun
            connection.close()
