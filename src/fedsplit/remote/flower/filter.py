"""An HTTP filter in front of Flower: an exact list of paths, and limits on their requests."""

from __future__ import annotations

import asyncio
import base64
import binascii
from contextlib import suppress
from urllib.parse import unquote

from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedsplit.remote.flower.chunks import NAME_HEADER
from fedsplit.remote.flower.link import LinkState, stated_name

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
"""The paths that every server has."""

REGISTER = FLEET + "register-node"
"""A path of servers without keys."""

PULL = FLEET + "pull-messages"

BODY = 16 * 2**20
"""The most bytes of a request whose key is known."""

STRANGERS_BODY = 2**16
"""The most bytes of any other request."""

HOLD = 1.0
"""Seconds for which a request for messages is held if there are none."""

BODY_TIME = 30.0
"""Seconds in which each part of a body has to arrive."""


class RequestFilter:
    """Passes on requests for an exact list of paths; holds those for messages until there are any.

    Parameters
    ----------
    app : ASGIApp
        Flower's.
    state : LinkState
    paths : frozenset of str
    """

    def __init__(self, app: ASGIApp, state: LinkState, paths: frozenset[str]) -> None:
        self._app = app
        self._state = state
        self._paths = paths
        # Set, and replaced, when there may be a message for a request that is held.
        self._posted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        self._loop = asyncio.get_running_loop()
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        node = self._node(headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode(), b""))
        size = headers.get(b"content-length", b"")
        largest = STRANGERS_BODY if node is None else BODY
        if scope["method"] != "POST" or scope["path"] not in self._paths:
            await _refuse(send, 404)
        elif not size.isdigit() or int(size) > largest or b"transfer-encoding" in headers:
            await _refuse(send, 413)  # Flower reads a body before it looks at the signature
        else:
            if scope["path"] == PULL and node is not None:
                await self._hold(node)
            name = unquote(headers.get(NAME_HEADER.encode(), b"").decode("ascii", "replace"))[:100]
            stated_name.set("".join(character for character in name if character.isprintable()))
            await self._app(scope, _in_time(receive), send)

    def _node(self, public_key: bytes) -> int | None:
        """Return the node that the request claims to be; Flower checks the signature later."""
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
                    await self._posted.wait()

    def wake(self) -> None:
        """Look again at the requests that are held; may be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        self._posted.set()
        self._posted = asyncio.Event()


def _in_time(receive: Receive) -> Receive:
    """Limit the time that each part of a body may take."""

    async def bounded() -> Message:
        async with asyncio.timeout(BODY_TIME):
            return await receive()

    return bounded


async def _refuse(send: Send, status: int) -> None:
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})
