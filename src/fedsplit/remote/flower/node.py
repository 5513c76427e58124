"""A client's end: dials the hub, reads letters, answers them in this process."""

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
from fedsplit.remote.flower.probe import address, probe, tls
from fedsplit.remote.keys import read_key, write_key

BEAT, INTERVAL = 5.0, 10.0
"""Seconds between heartbeats, and what the server is told: it gives a node up after twice that."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between attempts to reach a server that is away."""

IN_USE = 25.0
"""Seconds after which a key or name that is taken belongs to somebody else, not to a process that died."""

ENDING = 5.0
"""Seconds in which a process that has the folder may end."""

UNHELD = 0.05
"""Seconds between requests for letters, to a server that does not hold them."""


class _Taken(Exception):
    """The server has a node with this key or name."""


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
    """Answer the letters of a server until ``stop`` is set; one that is away is dialled again for ever.

    ``InputError`` says what trying again would not mend.

    Parameters
    ----------
    server : str
        HOST:PORT.
    answer : callable
        From a letter to its reply; asked again for the same letter where a reply was lost.
    key : Path, optional
        The client's private key; None for a server that lets anybody in.
    ca : Path, optional
        The certificate that the server's is signed by; None is the system's.
    insecure : bool
        Without TLS.
    folder : Path
        For what the node remembers; used by one process at a time.
    status : callable
        Is told when the server is found or lost.
    stop : Event
        Ends the node, after a second or so.
    name : str
        By which it wants to be known, at a server that lets anybody in.
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
    pause, told, taken_since, known = FIRST_PAUSE, "", time.monotonic(), False
    while not stop.is_set():
        began = time.monotonic()
        try:
            node.join()
            told, known = "", True
            status(f"connected to {node.server}")
            node.serve(answer, stop)
            return
        except _Taken as taken:
            if time.monotonic() - taken_since > IN_USE:
                raise InputError(str(taken)) from None
            trouble = "a process before this one is still known there"
        except httpx.HTTPError as error:
            taken_since = time.monotonic()
            try:
                trouble = node.trouble(error)
            except InputError as refused:
                if not known:  # what worked before may work again
                    raise
                trouble = str(refused)
        if trouble != told:
            status(f"no connection to {node.server} ({trouble}), trying again")
        told = trouble
        pause = FIRST_PAUSE if time.monotonic() - began > 2 * LONGEST_PAUSE else pause
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
        self.server, self._key = server, key
        self._host, self._port = address(server)
        self._context = None if insecure else tls(ca)
        private = read_key(key) if key is not None else _own_key(folder)
        self._public = public_key_to_bytes(private.public_key())
        self._client = _Client(server, self._context, private, name)
        self._id = folder / "node"
        self._node = Node()
        self._name = name

    def join(self) -> None:
        """One attempt to sign on; a predecessor of this folder that died is signed off first."""
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
        with suppress(OSError):  # without it a new process waits until this one is given up
            self._id.write_text(str(activated))

    def _activate(self) -> int:
        try:
            request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=INTERVAL)
            node: int = self._client.ActivateNode(request).node_id
            return node
        except httpx.HTTPStatusError as error:
            if _code(error) == ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
                raise _Taken(
                    f"{self.server}: another process has this key there: stop it, or use another key"
                ) from None
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                raise InputError(
                    f"{self.server}: it does not accept what this client signs: is this machine's clock right?"
                ) from None
            if error.response.status_code == httpx.codes.NOT_FOUND:
                raise InputError(f"{self.server}: is no fedsplit server, check --server") from None
            raise

    def _register(self) -> None:
        """Make oneself known; only a server without keys lets one."""
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
                    f"{self.server}: takes only clients with a key, give yours with --key"
                ) from None
            raise InputError(
                f"{self.server}: does not know the key {self._key}: its public key must be among the server's"
            ) from None

    def serve(self, answer: Callable[[bytes], bytes], stop: threading.Event) -> None:
        """Answer letters while the server is there."""
        quiet = threading.Event()
        threading.Thread(target=self._beat, args=(quiet,), name="heartbeat", daemon=True).start()
        try:
            while not stop.is_set():
                began = time.monotonic()
                letter = self._pull()
                if letter is not None:
                    self._push(_answered(letter, answer))
                elif time.monotonic() - began < UNHELD:
                    stop.wait(UNHELD)
        finally:
            quiet.set()
        with suppress(httpx.HTTPError):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))

    def _beat(self, quiet: threading.Event) -> None:
        while not quiet.wait(BEAT):
            with suppress(httpx.HTTPError):  # the requests for letters see the same trouble
                request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=INTERVAL)
                self._client.SendNodeHeartbeat(request)

    def _pull(self) -> Message | None:
        """The next letter, if there is one."""
        found = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        run, [tree] = found.messages_list[0].metadata.run_id, found.message_object_trees
        try:
            letter = pull_and_inflate_object_from_tree(
                tree,
                make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
                make_confirm_message_received_fn_protobuf(
                    self._client.ConfirmMessageReceived, self._node, run
                ),
                return_type=Message,
                initial_backoff=0.01,
                backoff_cap=0.5,
            )
        except ObjectPullError:  # it was taken back
            return None
        letter.metadata.__dict__["_message_id"] = tree.object_id
        return letter

    def _push(self, reply: Message) -> None:
        """Send a reply, unless it is no longer wanted."""
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
            except ObjectPushError:  # it came too late, or is too large
                pass

    def trouble(self, error: httpx.HTTPError) -> str:
        """What keeps the server from being reached; ``InputError`` where that will stay so."""
        if isinstance(error, httpx.HTTPStatusError):
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                return "it was started anew"
            return f"HTTP status {error.response.status_code}"
        return probe(self._host, self._port, self._context)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


class _Client(FleetHttpClient):  # type: ignore[misc]  # Flower's types are not read
    """Flower's client, straight to the server: without proxies and redirections."""

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


def _answered(letter: Message, answer: Callable[[bytes], bytes]) -> Message:
    try:
        content, nonce = unpack(letter.content)
        return Message(pack(answer(content), nonce), reply_to=letter)
    except Exception as error:  # its kind only: the text may hold data
        return Message(Error(code=0, reason=type(error).__name__), reply_to=letter)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Have the folder for this process; one that is ending is waited for."""
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
                        f"{folder}: another client runs here: stop it, or choose another --folder"
                    ) from None
                time.sleep(0.1)
        yield


def _own_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """A key that is kept in the folder, so that a server without keys knows the node again."""
    path = folder / "node.key"
    if not path.exists():
        path.with_suffix(".pub").unlink(missing_ok=True)
        write_key(path)
    return read_key(path)


def _code(error: httpx.HTTPStatusError) -> int:
    """Flower's number of a refusal."""
    found = FlowerError.from_json(error.response.text)
    return 0 if found is None else found.code
