"""The Flower app, for a federation that exists: ``flwr run`` with SuperLink and SuperNodes.

The bundle that ``flwr run`` sends names ``client_app`` and ``server_app`` and has no code of its
own: they are those of the fedsplit that is installed where they run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsplit.channels.checkpoint import Checkpoint
from fedsplit.channels.members import Patience
from fedsplit.errors import InputError, TooFewClients
from fedsplit.remote.flower.chunks import NONCE, pack, unpack
from fedsplit.remote.messages import HELLO, MessageChannel, read_identity
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.service import Site

POLL = 0.1
"""Seconds between looks for replies."""

client_app = ClientApp()
server_app = ServerApp()


@client_app.query("question")  # type: ignore[untyped-decorator]  # Flower has no types
def answer(message: Message, context: Context) -> Message:
    """Answer a question about the file that the node's configuration names.

    As in ``--node-config 'name="a" data="/path/a.csv" folder="/path"'``; ``max-rounds``,
    ``strict`` and ``vectors`` are optional.
    """
    node = context.node_config
    limit = None
    if "max-rounds" in node:
        limit = int(node["max-rounds"])
    site = Site(
        str(node["name"]),
        str(node["data"]),
        folder=Path(str(node["folder"])),
        options=SiteOptions(
            max_rounds=limit,
            strict=bool(node.get("strict", False)),
            vectors=bool(node.get("vectors", False)),
        ),
    )
    question, nonce = unpack(message.content)
    return Message(pack(site.reply(question), nonce), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]  # Flower has no types
def serve(grid: Grid, context: Context) -> None:
    """Wait for the clients, fit, and write the model as the run's configuration says."""
    # Not at the top: Flower starts a process for each message to a client, which needs neither.
    from fedsplit.regression.fit import fit_over
    from fedsplit.regression.options import FitOptions

    chosen = context.run_config
    transport = GridTransport(grid)
    names = transport.gather(int(chosen["clients"]), float(chosen["wait"]))
    out = Path(str(chosen["out"]))
    options = FitOptions(
        None,
        str(chosen["formula"]),
        family=str(chosen["family"]),
        ridge=float(chosen["ridge"]),
        l1=float(chosen["l1"]),
        patience=Patience(
            float(chosen["round-timeout"]),
            float(chosen["give-up"]),
            int(chosen["min-clients"]) or None,
        ),
        checkpoint=Checkpoint(out / "checkpoint"),
    )
    model = fit_over(MessageChannel(transport, names), options)
    model.write(out)


class GridTransport:
    """Messages over Flower's grid. Clients are known by their names, since node ids change."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._nodes: dict[str, int] = {}

    def gather(self, wanted: int, wait: float) -> list[str]:
        """Wait for this many clients; returns their names, sorted."""
        end = time.monotonic() + wait
        while len(self._nodes) < wanted:
            if time.monotonic() > end:
                raise TooFewClients(
                    f"{len(self._nodes)} of {wanted} clients came within {wait:g} seconds"
                )
            self._greet()
            time.sleep(POLL)
        return sorted(self._nodes)[:wanted]

    def send(
        self, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        """By client, its reply (or None), what went wrong, and the seconds that it took."""
        online = set(self._grid.get_node_ids())
        if any(self._nodes.get(name) not in online for name in messages):
            self._greet()  # a node that returns may have another id
        there = {name: self._nodes[name] for name in messages if self._nodes.get(name) in online}
        found = self._exchange({node: messages[name] for name, node in there.items()}, timeout)
        absent = (None, "its node is not connected", 0.0)
        return {name: found.get(there.get(name, -1), absent) for name in messages}

    def _greet(self) -> None:
        """Ask new nodes for their names."""
        new = set(self._grid.get_node_ids()) - set(self._nodes.values())
        replies = self._exchange(dict.fromkeys(new, HELLO), timeout=60.0)
        for node, (reply, _, _) in replies.items():
            if reply is not None:
                self._nodes[read_identity(reply).name] = node

    def _exchange(
        self, questions: Mapping[int, bytes], timeout: float
    ) -> dict[int, tuple[bytes | None, str, float]]:
        """Send a question to each of these nodes, and wait for the replies."""
        found: dict[int, tuple[bytes | None, str, float]] = dict.fromkeys(
            questions, (None, "no answer in time", timeout)
        )
        if not questions:
            return found
        began = time.monotonic()
        nonce = os.urandom(NONCE)
        sent = self._grid.push_messages(
            [
                Message(pack(question, nonce), message_type="query.question", dst_node_id=node)
                for node, question in questions.items()
            ]
        )
        waiting = dict(zip(sent, questions, strict=True))
        while waiting and time.monotonic() - began < timeout:
            for message in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id)
                reply, trouble = _unpacked(message, nonce)
                found[node] = (reply, trouble, time.monotonic() - began)
            time.sleep(POLL)
        return found


def _unpacked(message: Message, nonce: bytes) -> tuple[bytes | None, str]:
    """The reply in a message of Flower's, or what is wrong with it."""
    if message.has_error():
        return None, f"its node disconnected (Flower's error {message.error.code})"
    try:
        reply, found = unpack(message.content)
    except InputError as error:
        return None, str(error)
    if found != nonce:
        return None, "a reply to another question"
    return reply, ""
