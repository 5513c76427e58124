"""One client as the server sees it: whether it is connected, and its question."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime

from fedsplit.remote.https.protocol import SILENCE_SECONDS

CONNECTIONS = 4
"""The most connections of one client; the oldest is closed when there are more."""


class Posted:
    """A question on its way, and what has become of it.

    Attributes
    ----------
    number : str
        Random; the reply must repeat it.
    message : bytes
    outcome : Future of (bytes or None, str, float)
        The reply, what went wrong, and the time of either.
    delivered : bool
        Whether the client has had it.
    """

    def __init__(self, message: bytes) -> None:
        self.number = secrets.token_hex(16)
        self.message = message
        self.delivered = False
        self.outcome: asyncio.Future[tuple[bytes | None, str, float]]
        self.outcome = asyncio.get_running_loop().create_future()

    def settle(self, reply: bytes | None, what: str = "") -> None:
        """Note how it ended; the first end is the one that counts."""
        if not self.outcome.done():
            self.outcome.set_result((reply, what, time.monotonic()))


class Mailbox:
    """A client's connections and its question. All of it belongs to the server's event loop.

    Attributes
    ----------
    name : str
    instance : str
        The process of the client that is connected, or was last.
    key : str
        The fingerprint of the key that it used.
    since : str
        When that process connected, in UTC.
    posted : Posted or None
        The question that waits for it or for its reply.
    left : bool
        Whether it has said that it will not come back.
    told : bool
        Whether it knows that no more questions will come.
    holding : int
        How many of its requests for a question are held.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance = ""
        self.key = ""
        self.since = ""
        self.posted: Posted | None = None
        self.left = False
        self.told = False
        self.holding = 0
        self._changed = asyncio.Event()
        self._connections: list[asyncio.BaseTransport] = []
        self._seen = 0.0

    @property
    def alive(self) -> bool:
        """Whether the client's process has a connection, and uses it."""
        open_now = any(not each.is_closing() for each in self._connections)
        return open_now and not self.left and self.silent < SILENCE_SECONDS

    @property
    def silent(self) -> float:
        """Seconds since the last request."""
        if self.holding:
            return 0.0
        return time.monotonic() - self._seen

    def enter(self, instance: str, key: str, connection: asyncio.BaseTransport) -> bool:
        """Note a request; returns False if another process of this client is connected."""
        if instance != self.instance:
            if self.alive:
                return False
            self.instance = instance
            self.since = datetime.now(UTC).isoformat(timespec="seconds")
            self._connections = []
        self.key = key
        self.left = False
        self.touch()
        if connection not in self._connections:
            self._connections = [each for each in self._connections if not each.is_closing()]
            self._connections.append(connection)
            for oldest in self._connections[:-CONNECTIONS]:
                oldest.abort()  # type: ignore[attr-defined]  # every transport of a socket has it
        return True

    def touch(self) -> None:
        """Note that the client has been heard of."""
        self._seen = time.monotonic()

    def post(self, message: bytes) -> Posted:
        """Put a question in, in the place of an earlier one."""
        self.posted = Posted(message)
        self.wake()
        return self.posted

    def clear(self) -> None:
        """Take the question out: a reply that comes later is dropped."""
        self.posted = None

    def wake(self) -> None:
        """Look again at requests that are held."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, seconds: float) -> None:
        """Wait until something may have changed, or until the time is over."""
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass
