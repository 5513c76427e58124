"""The way in: an exact list of what may be asked, and of how much."""

from __future__ import annotations

import asyncio
import base64
import binascii
from contextlib import suppress
from urllib.parse import unquote

from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedsplit.remote.flower.chunks import NAME_HEADER
from fedsplit.remote.flower.link import State, calls_itself

FLEET = "/v1/fleet/"
OPEN = frozenset(
    FLEET + name
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
)
"""All that can be asked of a hub; without keys a node may also register itself."""

REGISTER, PULL = FLEET + "register-node", FLEET + "pull-messages"

BODY, STRANGERS_BODY = 16 * 2**20, 2**16
"""The most bytes of one request, from a key that is known and from another."""

HOLD, BODY_TIME = 1.0, 30.0
"""Seconds for which a request for letters waits for one, and in which each part of a body has to come."""


class Gate:
    """Lets an exact list of paths through, and holds requests for letters until there is one."""

    def __init__(self, app: ASGIApp, state: State, paths: frozenset[str]) -> None:
        self._app, self._state, self._paths = app, state, paths
        self._bell = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        self._loop = asyncio.get_running_loop()
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        node = self._node(headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode(), b""))
        size, largest = (
            headers.get(b"content-length", b""),
            STRANGERS_BODY if node is None else BODY,
        )
        if scope["method"] != "POST" or scope["path"] not in self._paths:
            await _refuse(send, 404)
        elif not size.isdigit() or int(size) > largest or b"transfer-encoding" in headers:
            await _refuse(send, 413)  # Flower reads a body before it looks at the signature
        else:
            if scope["path"] == PULL and node is not None:
                await self._hold(node)
            name = unquote(headers.get(NAME_HEADER.encode(), b"").decode("ascii", "replace"))[:100]
            calls_itself.set("".join(letter for letter in name if letter.isprintable()))
            await self._app(scope, _in_time(receive), send)

    def _node(self, public_key: bytes) -> int | None:
        """The node that the request says it comes from; Flower checks the signature later."""
        try:
            node: int | None = self._state.get_node_id_by_public_key(
                base64.b64decode(public_key, validate=True)
            )
        except binascii.Error:
            return None
        return node

    async def _hold(self, node: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD):
                while not self.closing and not self._state.waits(node):
                    await self._bell.wait()

    def ring(self) -> None:
        """Wake the requests that are held, from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()


def _in_time(receive: Receive) -> Receive:
    """A body that does not come in time is none."""

    async def bounded() -> Message:
        async with asyncio.timeout(BODY_TIME):
            return await receive()

    return bounded


async def _refuse(send: Send, status: int) -> None:
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})
