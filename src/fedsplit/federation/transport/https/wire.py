"""What both ends of a connection know: limits, and messages in frames.

A message travels in frames, each with the number of the request and the length of the message in
eight bytes each, and a piece of it. A reply has the number of its request, so that one that comes
too late is recognised, and states its length first, so that one that is longer than what was asked
for is never held in memory.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

import aiohttp
from aiohttp import web

from fedsplit.errors import InputError
from fedsplit.federation import authority

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
INSTANCE, NAME = "Fedsplit-Instance", "Fedsplit-Name"
"""Headers, which no page in a browser can set: a random number of a site's process, and, without
TLS, its name."""


class Closing(IntEnum):
    """Why a connection is closed."""

    ENDED = 1001
    UNEXPECTED = 1008
    EXPIRED = 4401
    REVOKED = 4403
    IN_USE = 4409


Connection: TypeAlias = "web.WebSocketResponse | aiohttp.ClientWebSocketResponse[bool]"
Status: TypeAlias = Callable[[str], object]

log = logging.getLogger("fedsplit.federation.transport.https")
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


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and no other one reaches it by this name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def report_expiring(folder: Path, role: authority.Role, status: Status) -> None:
    """Report certificates in a folder that end soon, or why they cannot be read."""
    try:
        lines = authority.expiring(folder, role)
    except InputError as error:
        lines = [str(error)]
    for line in lines:
        status(line)
