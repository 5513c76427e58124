"""The client's side: connects to the server, and answers its messages in this process."""

from __future__ import annotations

import fcntl
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedsplit.errors import InputError
from fedsplit.remote.flower.chunks import NAME_HEADER, pack, unpack
from fedsplit.remote.flower.keys import read_key, write_key
from fedsplit.remote.flower.probe import address, probe, tls

BEAT = 5.0
"""Seconds between heartbeats."""

INTERVAL = 10.0
"""Seconds between heartbeats as the server knows them: it gives up a node after twice that."""

FIRST_PAUSE = 0.2
"""Seconds before a second attempt to reach the server; every further attempt doubles them."""

LONGEST_PAUSE = 5.0
"""The most seconds between attempts."""

IN_USE = 25.0
"""Seconds after which a key or name that is taken belongs to somebody else, not to a process of
this client that died."""

ENDING = 5.0
"""Seconds in which another process that uses the folder may end."""

UNHELD = 0.05
"""Seconds between requests for messages, if the server does not hold them."""


class _Taken(Exception):
    """The server knows another node with this key or name."""


def run_node(
    server: str,
    answer: Callable[[bytes], bytes],
    *,
    key: Path | None = None,
    ca: Path | None = None,
    insecure: bool = False,
    folder: Path,
    status: Callable[[str], object],
    stop: threading.Event,
    name: str = "",
) -> None:
    """Answer the messages of a server until ``stop`` is set; reconnect whenever it is lost.

    Parameters
    ----------
    server : str
        HOST:PORT.
    answer : callable
        From a message to its reply; called again for the same message if a reply was lost.
    key : Path, optional
        The client's private key; None for a server without keys.
    ca : Path, optional
        The certificate of the CA that signed the server's; None for the system's CAs.
    insecure : bool
        Do not use TLS.
    folder : Path
        The node's own files; used by one process at a time.
    status : callable
        Called with a text when the connection is made or lost.
    stop : Event
        Ends the node within about a second.
    name : str
        The client's name, for a server without keys.

    Raises
    ------
    InputError
        If trying again would not help.
    """
    with _alone(folder):
        node = _FleetNode(server, key, ca, insecure, folder, name)
        try:
            _stay(node, answer, status, stop)
        finally:
            node.close()


def _stay(
    node: _FleetNode,
    answer: Callable[[bytes], bytes],
    status: Callable[[str], object],
    stop: threading.Event,
) -> None:
    """Join, answer, and join again when the server is lost."""
    pause = FIRST_PAUSE
    reported = ""
    joined = False
    taken_since = time.monotonic()
    while not stop.is_set():
        began = time.monotonic()
        try:
            node.join()
            reported = ""
            joined = True
            status(f"connected to {node.server}")
            node.serve(answer, stop)
            return
        except _Taken as taken:
            if time.monotonic() - taken_since > IN_USE:
                raise InputError(str(taken)) from None
            trouble = "an earlier process of this client is still registered there"
        except httpx.HTTPError as error:
            taken_since = time.monotonic()
            try:
                trouble = node.trouble(error)
            except InputError as refused:
                if not joined:  # what worked before may work again
                    raise
                trouble = str(refused)
        if trouble != reported:
            status(f"no connection to {node.server} ({trouble}), trying again")
        reported = trouble
        if time.monotonic() - began > 2 * LONGEST_PAUSE:  # it was connected in between
            pause = FIRST_PAUSE
        stop.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class _FleetNode:
    """One node of Flower's Fleet protocol; it never asks for code."""

    def __init__(
        self,
        server: str,
        key: Path | None,
        ca: Path | None,
        insecure: bool,
        folder: Path,
        name: str,
    ) -> None:
        self.server = server
        self._key = key
        self._host, self._port = address(server)
        self._context = None if insecure else tls(ca)
        private = _own_key(folder) if key is None else read_key(key)
        self._public = public_key_to_bytes(private.public_key())
        self._client = _Client(server, self._context, private, name)
        self._id = folder / "node"
        self._node = Node()
        self._name = name

    def join(self) -> None:
        """Try once to sign on; an earlier process of this folder that died is signed off first."""
        with suppress(OSError, ValueError, httpx.HTTPStatusError):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=int(self._id.read_text())))
        try:
            activated = self._activate()
        except httpx.HTTPStatusError as error:
            if _code(error) != ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
                raise
            self._register()
            activated = self._activate()
        self._node = Node(node_id=activated)
        with suppress(OSError):  # without this file the next process has to wait for a timeout
            self._id.write_text(str(activated))

    def _activate(self) -> int:
        try:
            request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=INTERVAL)
            node: int = self._client.ActivateNode(request).node_id
            return node
        except httpx.HTTPStatusError as error:
            if _code(error) == ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
                raise _Taken(
                    f"{self.server}: another process uses this key: stop it, or use another key"
                ) from None
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                raise InputError(
                    f"{self.server}: does not accept this client's signature: "
                    "is this machine's clock right?"
                ) from None
            if error.response.status_code == httpx.codes.NOT_FOUND:
                raise InputError(
                    f"{self.server}: is not a fedsplit server, check --server"
                ) from None
            raise

    def _register(self) -> None:
        """Register this node, which only a server without keys allows."""
        try:
            self._client.RegisterNode(RegisterNodeFleetRequest(public_key=self._public))
        except httpx.HTTPStatusError as error:
            if _code(error) == ApiErrorCode.SUPERNODE_ALREADY_IN_FEDERATION:
                raise _Taken(
                    f"{self.server}: has another client {self._name}, choose another --name"
                ) from None
            if error.response.status_code != httpx.codes.NOT_FOUND:
                raise
            if self._key is None:
                raise InputError(
                    f"{self.server}: only accepts clients with a key, give yours with --key"
                ) from None
            raise InputError(
                f"{self.server}: does not know the key {self._key}: "
                "its public key must be among the server's"
            ) from None

    def serve(self, answer: Callable[[bytes], bytes], stop: threading.Event) -> None:
        """Answer messages until ``stop`` is set; raises an HTTP error when the server is lost."""
        done = threading.Event()
        threading.Thread(target=self._beat, args=(done,), name="heartbeat", daemon=True).start()
        try:
            while not stop.is_set():
                began = time.monotonic()
                message = self._pull()
                if message is not None:
                    self._push(_answered(message, answer))
                elif time.monotonic() - began < UNHELD:
                    stop.wait(UNHELD)
        finally:
            done.set()
        with suppress(httpx.HTTPError):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))

    def _beat(self, done: threading.Event) -> None:
        while not done.wait(BEAT):
            with suppress(httpx.HTTPError):  # requests for messages fail in the same way
                request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=INTERVAL)
                self._client.SendNodeHeartbeat(request)

    def _pull(self) -> Message | None:
        """Fetch the next message, if there is one."""
        found = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        run = found.messages_list[0].metadata.run_id
        [tree] = found.message_object_trees
        try:
            message = pull_and_inflate_object_from_tree(
                tree,
                make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
                make_confirm_message_received_fn_protobuf(
                    self._client.ConfirmMessageReceived, self._node, run
                ),
                return_type=Message,
                initial_backoff=0.01,
                backoff_cap=0.5,
            )
        except ObjectPullError:  # the server has deleted it
            return None
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def _push(self, reply: Message) -> None:
        """Send a reply, if the server still wants it."""
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            bare = message_to_proto(
                remove_content_from_message(reply) if reply.has_content() else reply
            )
            try:
                wanted = self._client.PushMessages(
                    PushMessagesRequest(
                        node=self._node,
                        messages_list=[bare],
                        message_object_trees=[get_object_tree(reply)],
                    )
                )
                run = reply.metadata.run_id
                push = make_push_object_fn_protobuf(
                    self._client.PushObject, self._node, run, wanted.session_id
                )
                push_objects(
                    get_all_nested_objects(reply),
                    push,
                    object_ids_to_push=set(wanted.objects_to_push),
                )
            except ObjectPushError:  # too late, or too large
                pass

    def trouble(self, error: httpx.HTTPError) -> str:
        """Return why the server is not reached; ``InputError`` if trying again would not help."""
        if isinstance(error, httpx.HTTPStatusError):
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                return "it was restarted"
            return f"HTTP status {error.response.status_code}"
        return probe(self._host, self._port, self._context)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class _Client(FleetHttpClient):  # type: ignore[misc]  # Flower's types are not read
    """Flower's client, with a direct connection: no proxies, no redirects."""

    def __init__(
        self,
        server: str,
        context: ssl.SSLContext | None,
        key: ec.EllipticCurvePrivateKey,
        name: str,
    ) -> None:
        url = f"{'http' if context is None else 'https'}://{server}"
        verify = True if context is None else context
        super().__init__(
            url, interceptors=[NodeAuthHttpInterceptor(key, key.public_key())], verify=verify
        )
        self._client: httpx.Client
        self._client.close()
        self._client = httpx.Client(
            verify=verify,
            timeout=httpx.Timeout(30, connect=10),
            headers={NAME_HEADER: quote(name)},
            trust_env=False,
        )


def _answered(message: Message, answer: Callable[[bytes], bytes]) -> Message:
    try:
        content, nonce = unpack(message.content)
        return Message(pack(answer(content), nonce), reply_to=message)
    except Exception as error:  # only its type: the text may contain data
        return Message(Error(code=0, reason=type(error).__name__), reply_to=message)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; wait for a process that is about to end."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        until = time.monotonic() + ENDING
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(
                        f"{folder}: is used by another client: stop it, or choose another --folder"
                    ) from None
                time.sleep(0.1)
        yield


def _own_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """Return the folder's own key, by which a server without keys recognises the node."""
    path = folder / "node.key"
    if not path.exists():
        path.with_suffix(".pub").unlink(missing_ok=True)
        write_key(path)
    return read_key(path)


def _code(error: httpx.HTTPStatusError) -> int:
    """Return Flower's error code of a refusal, 0 if there is none."""
    found = FlowerError.from_json(error.response.text)
    if found is None:
        return 0
    code: int = found.code
    return code
