"""The server's side: Flower's Fleet interface in this process."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import NamedTuple, Self

import uvicorn
from fastapi import FastAPI
from flwr.app import Metadata
from flwr.app.message import make_message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.supercore.constant import NodeStatus
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from fedsplit.errors import InputError
from fedsplit.remote.channel import SILENT
from fedsplit.remote.flower.chunks import NONCE, pack, unpack
from fedsplit.remote.flower.filter import OPEN, REGISTER, RequestFilter
from fedsplit.remote.flower.keys import public_pem
from fedsplit.remote.flower.link import LinkState

GRACE = 2.0
"""Seconds for which a message waits for a node that is not connected."""

POLL = 0.05
"""Seconds after which the server looks for replies even if none was announced."""

STARTING = 10.0
"""Seconds in which the server has to listen."""

CLOSING = 5.0
"""Seconds in which the server has to stop, before and after it is forced to."""

TTL = 12 * 3600.0
"""Seconds after which Flower itself drops a message."""


class _Sent(NamedTuple):
    """A message on its way.

    Attributes
    ----------
    message_id : str
        Flower's.
    nonce : bytes
        What the reply must repeat.
    since : str
        Since when its node is connected, in UTC.
    """

    message_id: str
    nonce: bytes
    since: str


class FleetServer:
    """Carries messages to the clients that are connected, and brings their replies.

    Parameters
    ----------
    host : str
        Where to listen.
    port : int
        0 takes any free port; see the attribute ``port`` once the server is open.
    certificate, private_key : Path, optional
        The server's, for TLS.
    public_keys : dict of str to bytes, optional
        By client, its public key (PEM or OpenSSH): only these clients may join. Without keys,
        anybody may, under any name that no connected client has.
    largest : int
        The most bytes of a reply.
    """

    def __init__(
        self,
        host: str,
        port: int,
        certificate: Path | None = None,
        private_key: Path | None = None,
        public_keys: Mapping[str, bytes] | None = None,
        *,
        largest: int = 256 * 2**20,
    ) -> None:
        if public_keys is not None and certificate is None:
            raise InputError("clients' keys need TLS: give the server's certificate and key too")
        self.host = host
        self.port = port
        self._largest = largest
        self._state = LinkState(largest)
        keys = {
            name: public_pem(key, f"client {name}") for name, key in (public_keys or {}).items()
        }
        if len(set(keys.values())) < len(keys):
            raise InputError("two clients have the same key, each needs its own")
        for name, key in keys.items():
            self._state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0, name=name)
        self._run = self._state.start()
        app = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            middleware=[
                Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
                Middleware(ProtobufTranslationMiddleware),
                Middleware(NodeAuthMiddleware),
            ],
        )
        app.state.linkstate_factory = SimpleNamespace(state=lambda: self._state)
        app.state.enable_supernode_auth = public_keys is not None
        app.include_router(router)
        paths = OPEN
        if public_keys is None:
            paths |= {REGISTER}
        self._filter = RequestFilter(app, self._state, paths)
        self._server = uvicorn.Server(self._config(certificate, private_key))
        self._thread = threading.Thread(target=self._serve, name="fleet server", daemon=True)
        self._socket: socket.socket | None = None
        self._turn = threading.Lock()

    def _config(self, certificate: Path | None, private_key: Path | None) -> uvicorn.Config:
        config = uvicorn.Config(
            self._filter,
            ssl_certfile=certificate,
            ssl_keyfile=private_key,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
        )
        try:
            config.load()
        except OSError as error:  # an SSLError is one
            why = error.strerror or "the two do not belong together"
            raise InputError(
                f"{error.filename or certificate}: cannot be used for TLS ({why})"
            ) from None
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        return config

    def _serve(self) -> None:
        assert self._socket is not None
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Listen."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            self._socket = socket.create_server((self.host, self.port), family=family, backlog=1024)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                f"{self.host}:{self.port}: cannot listen there ({why}), choose another"
            ) from None
        self.port = self._socket.getsockname()[1]
        self._thread.start()
        until = time.monotonic() + STARTING
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the server does not listen")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop listening, within a few seconds."""
        self._server.should_exit = True
        self._filter.closing = True
        self._filter.wake()
        self._thread.join(CLOSING)
        self._server.force_exit = True
        self._thread.join(CLOSING)
        if self._socket is not None:
            self._socket.close()

    def present(self) -> dict[str, str]:
        """Return the connected clients by name, each with the time since when, in UTC."""
        online = self._state.get_node_info(statuses=[NodeStatus.ONLINE])
        return {
            node.name: node.last_activated_at for node in sorted(online, key=lambda node: node.name)
        }

    def send(
        self, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        """Send messages to clients, and wait for every reply or failure.

        A client that disconnects and comes back gets its message again. One that is not connected
        fails after a moment. Replies that arrive later are dropped.

        Returns
        -------
        dict of str to (bytes or None, str, float)
            By client: its reply, what went wrong, and the seconds until then.
        """
        with self._turn:
            try:
                return self._exchange(messages, timeout)
            finally:
                self._state.clear(self._run)

    def _exchange(
        self, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        began = time.monotonic()
        found: dict[str, tuple[bytes | None, str, float]] = {}
        under_way: dict[str, _Sent] = {}
        last_here = dict.fromkeys(messages, began)
        while True:
            self._state.news.clear()
            online = {
                node.name: node for node in self._state.get_node_info(statuses=[NodeStatus.ONLINE])
            }
            now = time.monotonic()
            for name in [name for name in messages if name not in found]:
                node = online.get(name)
                sent = under_way.get(name)
                if node is not None:
                    last_here[name] = now
                outcome = None if sent is None else self._outcome(sent)
                if outcome is not None and sent is not None:
                    self._state.forget(sent.message_id)
                elif now - last_here[name] > GRACE:
                    what = "its node is not connected" if sent is None else "its node disconnected"
                    outcome = None, what
                elif now - began >= timeout:
                    outcome = None, SILENT.text
                elif node is not None and (sent is None or sent.since != node.last_activated_at):
                    if sent is not None:
                        self._state.forget(sent.message_id)
                    under_way[name] = self._post(
                        node.node_id, node.last_activated_at, messages[name]
                    )
                if outcome is not None:
                    found[name] = (*outcome, now - began)
            if len(found) == len(messages):
                return {name: found[name] for name in messages}
            self._state.news.wait(min(POLL, max(0.0, timeout - (now - began))))

    def _post(self, node: int, since: str, message: bytes) -> _Sent:
        nonce = os.urandom(NONCE)
        metadata = Metadata(
            run_id=self._run,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=node,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=TTL,
            message_type="query",
        )
        message_id = self._state.post(self._run, make_message(metadata, pack(message, nonce)))
        self._filter.wake()
        return _Sent(message_id, nonce, since)

    def _outcome(self, sent: _Sent) -> tuple[bytes | None, str] | None:
        """Return the reply to a message, or what is wrong with it; None until there is one."""
        too_large = None, f"an answer that is too large, of more than {self._largest:,} bytes"
        if sent.message_id in self._state.too_large:
            return too_large
        parts = self._state.reply(sent.message_id)
        if parts is None:
            return None
        try:
            message = inflate_object_from_contents(list(parts)[-1], parts)
            if message.has_error():
                return None, f"its client failed ({message.error.reason[:80]!r})"
            reply, nonce = unpack(message.content)
        except Exception as error:  # a client may send anything
            return None, f"an answer that cannot be read ({type(error).__name__})"
        if nonce != sent.nonce:
            return None, "an answer to another message"
        if len(reply) > self._largest:
            return too_large
        return reply, ""
