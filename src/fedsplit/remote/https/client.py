"""The client's side: connects to the server, and answers its messages in this process."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import aiohttp

from fedsplit.errors import InputError
from fedsplit.remote.https import protocol
from fedsplit.remote.https.connection import (
    SHOWN_CHARACTERS,
    Connection,
    Ended,
    Lost,
    Question,
    Taken,
)
from fedsplit.remote.https.endpoint import Endpoint
from fedsplit.texts import one_line

FIRST_PAUSE = 0.2
"""Seconds before a second attempt to reach the server; every further attempt doubles them."""

LONGEST_PAUSE = 5.0
"""The most seconds between attempts."""

IN_USE = 30.0
"""Seconds after which a key or name that is taken belongs to somebody else, not to a process of
this client that died."""

STOP_CHECK_SECONDS = 0.1
"""Seconds between looks at whether the client has to stop."""

FAILURES = (aiohttp.ClientError, OSError, Lost)
"""What a request may raise when the server is lost; an error of time is an OSError."""


def run_client(
    endpoint: Endpoint,
    answer: Callable[[bytes], bytes],
    *,
    status: Callable[[str], object],
    stop: threading.Event,
) -> None:
    """Answer the messages of a server until ``stop`` is set; reconnect whenever it is lost.

    Parameters
    ----------
    endpoint : Endpoint
        The server.
    answer : callable
        From a message to its reply; called again for the same message only if this process is
        started again meanwhile.
    status : callable
        Called with a text when the connection is made or lost, or an answer fails.
    stop : Event
        Ends the client within about a second, once an answer that is being computed is done.

    Raises
    ------
    NotAuthorised
        If the coordinator has to act before trying again can help.
    InputError
        If trying again would not help at all.
    """
    tls = endpoint.tls()
    with ThreadPoolExecutor(1, "answer") as pool:
        if tls is not None and tls.warning:
            status(tls.warning)

        async def run() -> None:
            connection = Connection(endpoint, tls)
            try:
                await _until(stop, _Client(connection, answer, status, pool).stay())
                await connection.leave()
            finally:
                await connection.close()

        asyncio.run(run())


async def _until(stop: threading.Event, work: object) -> None:
    """Carry out work until it ends or ``stop`` is set."""
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine
    while not task.done() and not stop.is_set():
        await asyncio.wait([task], timeout=STOP_CHECK_SECONDS)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class _Client:
    """Asks for questions, has them answered, and says what happens."""

    def __init__(
        self,
        connection: Connection,
        answer: Callable[[bytes], bytes],
        status: Callable[[str], object],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._connection = connection
        self._answer = answer
        self._status = status
        self._pool = pool
        self._said: set[str] = set()  # of the present outage
        self._joined = False
        self._ended = False
        self._last: tuple[str, bytes] | None = None  # a reply that may not have arrived

    async def stay(self) -> None:
        """Join, answer, and join again when the server is lost."""
        pause = FIRST_PAUSE
        taken_since = time.monotonic()
        while True:
            began = time.monotonic()
            try:
                self._refresh()
                await self._connection.join()
                self._connected()
                await self._serve()
            except Taken as taken:
                if time.monotonic() - taken_since > IN_USE:
                    raise InputError(str(taken)) from None
                self._report("an earlier process of this client is still registered there")
            except FAILURES as error:
                taken_since = time.monotonic()
                self._report(await self._trouble(error))
            if time.monotonic() - began > 2 * LONGEST_PAUSE:  # it was connected in between
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # not all clients at once
            pause = min(2 * pause, LONGEST_PAUSE)

    def _refresh(self) -> None:
        try:
            self._connection.refresh()
        except InputError as error:
            if not self._joined:
                raise
            raise Lost(str(error)) from None  # until there is a new certificate

    def _connected(self) -> None:
        self._said.clear()
        self._joined = True
        self._ended = False
        self._status(f"connected to {self._connection.server}")

    def _report(self, trouble: str) -> None:
        """Say what is wrong, once; after the end of a run a server that is gone is no trouble."""
        if trouble not in self._said and not self._ended:
            self._status(f"no connection to {self._connection.server} ({trouble}), trying again")
        self._said.add(trouble)

    async def _trouble(self, error: Exception) -> str:
        try:
            return await self._connection.trouble(error)
        except InputError as refused:
            if not self._joined:  # what worked before may work again
                raise
            return str(refused)

    async def _serve(self) -> None:
        """Answer questions until the server says that no more will come."""
        while True:
            found = await self._connection.next()
            match found:
                case Ended():
                    self._ended = True
                    server = self._connection.server
                    text = one_line(found.text, SHOWN_CHARACTERS)
                    self._status(f"{server}: {text}; waiting for the next one")
                    return
                case Question():
                    await self._reply(found)

    async def _reply(self, question: Question) -> None:
        number, message = question
        if self._last is None or self._last[0] != number:
            try:
                self._last = number, await self._answered(message)
            except Exception as error:  # only its type leaves: the text may contain data
                self._status(f"a question could not be answered ({_described(error)})")
                await self._connection.fail(number, type(error).__name__)
                return
        await self._connection.reply(*self._last)
        self._last = None

    async def _answered(self, message: bytes) -> bytes:
        """Have a message answered in another thread; meanwhile send heartbeats."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._pool, self._answer, message)
        while not work.done():
            await asyncio.wait([work], timeout=protocol.HEARTBEAT_SECONDS)
            if not work.done():
                with suppress(*FAILURES, InputError, Taken):  # the reply will meet it, too
                    await self._connection.beat()
        return work.result()


def _described(error: Exception) -> str:
    """An error for the client's owner."""
    match error:
        case OSError():
            return f"{error.filename or 'this machine'}: {error.strerror or error}"
    return type(error).__name__
