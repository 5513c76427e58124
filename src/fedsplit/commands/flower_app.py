"""The Flower app, for those who have a federation already: ``flwr run`` with Flower's own SuperLink and SuperNodes.

The bundle that ``flwr run`` sends names these two objects and holds no code of its own; they are those of the fedsplit
that is installed where they run.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsplit.errors import InputError, TooFewClients
from fedsplit.regression.client.service import Site
from fedsplit.remote.checkpoint import Checkpoint
from fedsplit.remote.flower.chunks import NONCE, pack, unpack
from fedsplit.remote.members import Patience
from fedsplit.remote.messages import HELLO, MessageChannel, read_identity

logging.getLogger("flwr").setLevel(
    logging.INFO
)  # Flower's programs log, where fedsplit's own keep quiet

POLL = 0.1
"""Seconds between looks for answers."""

client_app = ClientApp()
server_app = ServerApp()


@client_app.query("letter")  # type: ignore[untyped-decorator]  # Flower has no types
def answer(message: Message, context: Context) -> Message:
    """Answer a letter about this node's own file: ``--node-config 'name="a" data="/path/a.csv" folder="/path"'``."""
    node = context.node_config
    limit = int(node["max-rounds"]) if "max-rounds" in node else None
    site = Site(
        str(node["name"]), str(node["data"]), folder=Path(str(node["folder"])), max_rounds=limit,
        strict=bool(node.get("strict", False)),
    )  # fmt: skip
    letter, nonce = unpack(message.content)
    return Message(pack(site.reply(letter), nonce), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]  # the same
def serve(grid: Grid, context: Context) -> None:
    """Wait for the clients, fit, and write the model to the folder ``out`` of the run's configuration."""
    # Not at the top: Flower starts a process for each message to a client, which needs neither.
    from fedsplit.regression.options import FitOptions
    from fedsplit.regression.server.fit import fit_over

    chosen = context.run_config
    post = GridPost(grid)
    names = post.gather(int(chosen["clients"]), float(chosen["wait"]))
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
    model = fit_over(MessageChannel(post, names), options)
    model.write(out)


class GridPost:
    """Letters over Flower's grid. Nodes are known by the names that they give: their ids change."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._nodes = grid, dict[str, int]()

    def gather(self, wanted: int, wait: float) -> list[str]:
        """Wait for so many clients; their names in order."""
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
        self, letters: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        """Each client's reply, or what went wrong, and the seconds that it took."""
        online = set(self._grid.get_node_ids())
        if any(self._nodes.get(name) not in online for name in letters):
            self._greet()  # a node that comes back may have another id
        there = {name: self._nodes[name] for name in letters if self._nodes.get(name) in online}
        found = self._exchange({node: letters[name] for name, node in there.items()}, timeout)
        return {
            name: found.get(there.get(name, -1), (None, "its node is not here", 0.0))
            for name in letters
        }

    def _greet(self) -> None:
        new = set(self._grid.get_node_ids()) - set(self._nodes.values())
        for node, (letter, _, _) in self._exchange(dict.fromkeys(new, HELLO), 60.0).items():
            if letter is not None:
                hello = read_identity(letter)
                self._nodes[hello.name] = node

    def _exchange(
        self, letters: Mapping[int, bytes], timeout: float
    ) -> dict[int, tuple[bytes | None, str, float]]:
        began, nonce = time.monotonic(), os.urandom(NONCE)
        messages = [
            Message(pack(letter, nonce), message_type="query.letter", dst_node_id=node)
            for node, letter in letters.items()
        ]
        waiting = (
            dict(zip(self._grid.push_messages(messages), letters, strict=True)) if messages else {}
        )
        found: dict[int, tuple[bytes | None, str, float]] = {}
        while waiting and time.monotonic() - began < timeout:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                found[node] = *_opened(reply, nonce), time.monotonic() - began
            time.sleep(POLL)
        return {node: found.get(node, (None, "no answer in time", timeout)) for node in letters}


def _opened(reply: Message, nonce: bytes) -> tuple[bytes | None, str]:
    if reply.has_error():
        return None, f"its node went away (Flower's error {reply.error.code})"
    try:
        letter, number = unpack(reply.content)
    except InputError as error:
        return None, str(error)
    return (letter, "") if number == nonce else (None, "an answer to another letter")
