"""Accepting connections, with limits on those whose certificate has not been seen yet."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from fedsplit.errors import InputError
from fedsplit.remote.https.metrics import Counts

HANDSHAKE_SECONDS = 10.0
"""Seconds that a TLS handshake may take."""

SHUTDOWN_SECONDS = 2.0
"""Seconds that the end of a TLS connection may take."""

HEADERS_SECONDS = 10.0
"""Seconds from the handshake to the end of the first request's headers."""

PENDING_HANDSHAKES = 32
"""The connections of one address whose handshake is not complete, and may take its time."""

ALL_PENDING_HANDSHAKES = 512
"""The most such connections of all addresses."""

ADDRESS_CONNECTIONS = 512
"""The most complete connections of one address: clients behind one address have one each."""

PROMPT_SECONDS = 1.0
"""Seconds in which an honest handshake is over, unless this machine has too much to do."""

PAUSE_SECONDS = 0.1
"""Seconds to wait when there are no file descriptors left."""


class _Pending(NamedTuple):
    """A connection whose handshake is not complete: its address, and when it was accepted."""

    address: str
    since: float


class Listener:
    """Accepts connections and completes their handshakes.

    Where one address has many handshakes under way, its oldest one is given up once it is slow;
    where all addresses have too many, the oldest of the address with most of them. So slow
    handshakes keep nobody out, not even from the same address, and hundreds of clients behind one
    address can come at once. Of an address with too many complete connections the oldest is closed
    that has not brought a request.

    Parameters
    ----------
    opened : socket
        That listens.
    factory : callable
        Makes the protocol of a connection.
    context : SSLContext or None
        None for connections without TLS.
    counts : Counts

    Attributes
    ----------
    heard : set of transports
        Of connections that have brought a whole request.
    """

    def __init__(
        self,
        opened: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext | None,
        counts: Counts,
    ) -> None:
        opened.setblocking(False)
        self._socket = opened
        self._factory = factory
        self._context = context
        self._counts = counts
        self.heard: WeakSet[asyncio.BaseTransport] = WeakSet()
        self._open: WeakKeyDictionary[asyncio.Transport, str] = WeakKeyDictionary()  # by age
        self._under_way: dict[asyncio.Task[None], _Pending] = {}  # by age
        self._task = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self._task.cancel()
        for task in list(self._under_way):
            task.cancel()
        for transport in list(self._open):
            transport.abort()
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._socket)
            except OSError:  # no file descriptors, or a connection that is gone already
                self._give_up(list(self._under_way)[:1])
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            task = loop.create_task(self._shake_hands(connection, str(address[0])))
            self._under_way[task] = _Pending(str(address[0]), time.monotonic())
            task.add_done_callback(partial(self._over, connection))
            self._limit(str(address[0]))

    def _over(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if task.cancelled():  # perhaps before it had begun
            connection.close()

    def _limit(self, address: str) -> None:
        """Give up a handshake where there are too many."""
        if len(self._under_way) > ALL_PENDING_HANDSHAKES:
            addresses = Counter(each.address for each in self._under_way.values())
            [(busiest, _)] = addresses.most_common(1)
            self._give_up(self._of(busiest)[:1])
        slow = time.monotonic() - PROMPT_SECONDS
        many = self._of(address)[:-PENDING_HANDSHAKES]
        self._give_up([task for task in many if self._under_way[task].since < slow])

    def _of(self, address: str) -> list[asyncio.Task[None]]:
        return [task for task, each in self._under_way.items() if each.address == address]

    def _give_up(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            self._counts.evicted += 1
            task.cancel()
            del self._under_way[task]  # it ends later, and must not be given up in others' place

    def _expect(self, transport: asyncio.Transport) -> None:
        """Close a connection that has not brought a request."""
        if transport not in self.heard:
            transport.abort()

    def _admit(self, transport: asyncio.Transport, address: str) -> None:
        """Keep a complete connection, and close one without a request where there are too many."""
        self._open[transport] = address
        same = [each for each, where in self._open.items() if where == address]
        same = [each for each in same if not each.is_closing()]
        silent = [each for each in same if each not in self.heard]
        for each in silent[: max(0, len(same) - ADDRESS_CONNECTIONS)]:
            self._counts.evicted += 1
            each.abort()

    async def _shake_hands(self, connection: socket.socket, address: str) -> None:
        """Complete a handshake; a connection that fails to is closed without a word."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._context is None:
                transport, _ = await loop.connect_accepted_socket(self._factory, connection)
            else:
                transport, _ = await loop.connect_accepted_socket(
                    self._factory,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                )
            self._admit(transport, address)
            loop.call_later(HEADERS_SECONDS, self._expect, transport)
        except (OSError, ValueError):  # errors of TLS and of time are of these types
            self._counts.handshakes_failed += 1


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; InputError where that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except socket.gaierror as error:
        raise InputError(f"{host}: is no address of this machine ({error.strerror})") from None
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InputError(f"{host}:{port}: cannot listen there ({why}), choose another") from None
