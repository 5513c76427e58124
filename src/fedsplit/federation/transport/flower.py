"""Studies in a Flower federation that exists: ``flwr run examples/flower``.

The bundle that ``flwr run`` sends names ``server_app`` and ``client_app`` and has no code of its
own: they are those of the fedsplit that is installed with the SuperLink and the SuperNodes. Flower
carries messages; studies, approvals, signatures and records are those of any other transport.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsplit.channels.patience import Patience
from fedsplit.errors import InputError, TooFewClients
from fedsplit.federation import authority
from fedsplit.federation.coordinator import Coordinator, StudyResult
from fedsplit.federation.keys import SigningKey
from fedsplit.federation.messages import ENVELOPE, Ending, read_response, write_message
from fedsplit.federation.site.site import Site
from fedsplit.federation.transport import Arrivals

POLL = 0.1
"""Seconds between looks for replies."""

client_app = ClientApp()
server_app = ServerApp()


@client_app.query("fedsplit")  # type: ignore[untyped-decorator]  # Flower has no types
def reply(message: Message, context: Context) -> Message:
    """Reply for the site that the node's configuration names.

    As in ``--node-config 'folder="/srv/north" disclosed="/srv/disclosed.db"'``.
    """
    node = context.node_config
    site = Site.open(str(node["folder"]), str(node["disclosed"]), watch=print)
    return Message(_packed(site.reply(content_of(message.content))), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]  # Flower has no types
def serve(grid: Grid, context: Context) -> None:
    """Run the study that the run's configuration names, and write its result."""
    chosen = context.run_config
    folder = Path(str(chosen["folder"]))
    coordinator = Coordinator.open(
        folder,
        GridTransport.open(grid, folder),
        patience=Patience(float(chosen["round-timeout"]), float(chosen["give-up"])),
        wait=float(chosen["wait"]),
        watch=print,
    )
    found = coordinator.run(coordinator.study(str(chosen["study"])))
    if not isinstance(found, StudyResult):
        raise TooFewClients(f"exchange {found.number} waits for {', '.join(found.missing)}")
    found.result.write(Path(str(chosen["out"])))


class GridTransport:
    """Messages over Flower's grid.

    A node is the site whose key signs a greeting that is new: what a node says of
    its name does not count.

    Parameters
    ----------
    grid : Grid
    key : Ed25519 private key
        The coordinator's.
    members : mapping of str to str
        The public keys of the sites, in hexadecimal digits.
    """

    waits = True

    def __init__(self, grid: Grid, key: SigningKey, members: Mapping[str, str]) -> None:
        self._grid = grid
        self._key = key
        self._members = dict(members)
        self._nodes: dict[str, int] = {}

    @classmethod
    def open(cls, grid: Grid, coordinator: Path) -> GridTransport:
        """The transport of the federation whose keys are in the coordinator's folder."""
        return cls(grid, *authority.coordinator(coordinator))

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        ends = time.monotonic() + seconds
        waiting = dict(messages)
        while waiting:
            self._greet()
            there = {self._nodes[name]: name for name in waiting if name in self._nodes}
            asked = {node: messages[name] for node, name in there.items()}
            for node, answer in self._asked(asked, ends - time.monotonic()):
                if len(answer) <= largest:
                    yield there[node], answer
                del waiting[there[node]]
            if time.monotonic() >= ends:
                return
            time.sleep(POLL)

    def _greet(self) -> None:
        """Find out whose the nodes are that were not there before; one that returns is another."""
        online = set(self._grid.get_node_ids())
        self._nodes = {name: node for name, node in self._nodes.items() if node in online}
        nonce = secrets.token_bytes(32)
        greeting = write_message(self._key, Ending(nonce, ""))  # of no study that there is
        new = dict.fromkeys(online - set(self._nodes.values()), greeting)
        # seconds in which a node has to say whose it is
        for node, answer in self._asked(new, 60.0):
            for name, key in self._members.items():
                try:
                    if read_response(bytes.fromhex(key), answer[:ENVELOPE]).study == nonce:
                        self._nodes[name] = node
                except InputError:
                    continue

    def _asked(self, messages: Mapping[int, bytes], seconds: float) -> Iterator[tuple[int, bytes]]:
        """Send each node its message, and yield their replies as they come."""
        if not messages:
            return
        ends = time.monotonic() + seconds
        sent = self._grid.push_messages(
            [
                Message(_packed(content), message_type="query.fedsplit", dst_node_id=node)
                for node, content in messages.items()
            ]
        )
        waiting = dict(zip(sent, messages, strict=True))
        while waiting and time.monotonic() < ends:
            for message in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id)
                if not message.has_error():
                    try:
                        yield node, content_of(message.content)
                    except InputError:
                        continue  # it is no site
            time.sleep(POLL)


def _packed(content: bytes) -> RecordDict:
    return RecordDict({"fedsplit": ConfigRecord({"message": content})})


def content_of(records: RecordDict) -> bytes:
    """The bytes that a message of Flower's carries."""
    record = records.get("fedsplit")
    content = record.get("message") if isinstance(record, ConfigRecord) else None
    if not isinstance(content, bytes):
        raise InputError("this is not a message of fedsplit")
    return content
