"""Flower's nodes and messages in memory, with limits on what a client may store there."""

from __future__ import annotations

import threading
from contextvars import ContextVar

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.object_store.object_store import NoObjectInStoreError
from flwr.superlink.federation import NoOpFederationManager

from fedsplit.remote.flower.chunks import PART

ENVELOPE = 2**20
"""The most bytes that a reply may have around its content."""

stated_name: ContextVar[str] = ContextVar("stated_name", default="")
"""The name that the client of the current request states."""


class LinkState(InMemoryLinkState):  # type: ignore[misc]  # Flower's types are not read
    """The nodes, the messages to them, and their replies.

    Parameters
    ----------
    largest : int
        The most bytes of a reply.

    Attributes
    ----------
    news : Event
        Set when a part of a reply arrives.
    too_large : set of str
        The messages whose replies were too large.
    """

    def __init__(self, largest: int) -> None:
        super().__init__(NoOpFederationManager(), InMemoryObjectStore())
        self.news = threading.Event()
        self.too_large: set[str] = set()
        self._largest = largest
        self._answers: dict[str, str] = {}  # by upload session, the message that it answers
        self._sizes: dict[str, int] = {}  # by message, the bytes of its reply so far

    def start(self) -> int:
        """Start the one run that all messages belong to, and return its number."""
        run: int = self.create_run(
            "", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        task = self.get_run_info(run_ids=[run])[0].primary_task_id
        assert task is not None
        assert self.claim_task(task)
        assert self.activate_task(task)
        del self.task_token_store[task]  # or the run would end without a heartbeat
        return run

    def create_node(
        self,
        owner_aid: str,
        owner_name: str,
        public_key: bytes,
        heartbeat_interval: float,
        *,
        location: str | None = None,
        name: str | None = None,
    ) -> int:
        """Register a node under the given name, or the one that it states.

        A node that is online keeps its name; of one that is not, the new node takes it over.
        """
        with self.lock:
            name = name or stated_name.get() or f"client {len(self.nodes) + 1}"
            for other in self.get_node_info():
                if (
                    other.name == name
                    and other.public_key != public_key
                    and other.status != NodeStatus.UNREGISTERED
                ):
                    if other.status == NodeStatus.ONLINE:
                        raise FlowerError(ApiErrorCode.SUPERNODE_ALREADY_IN_FEDERATION, name)
                    self.delete_node(owner_aid, other.node_id)
                    self.node_public_key_to_node_id.pop(other.public_key, None)
            node: int = super().create_node(
                owner_aid, owner_name, public_key, heartbeat_interval, location=location, name=name
            )
            return node

    def activate_node(self, node_id: int, heartbeat_interval: float) -> bool:
        """Activate a node; a key that is online already is another error than an unknown one."""
        if not super().activate_node(node_id, heartbeat_interval):
            raise FlowerError(ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE, "")
        return True

    def store_message_and_object_tree(
        self, message: Message, object_tree: ObjectTree, session_id: str
    ) -> tuple[bool, list[str]]:
        """Accept a reply, and nothing else: Flower would pass messages on to other clients."""
        answered = message.metadata.reply_to_message_id
        if not answered:
            return False, []
        with self.lock:
            if sum(1 for _ in iterate_object_tree(object_tree)) > self._largest // PART + 8:
                self.too_large.add(answered)
                return False, []
            stored, missing = super().store_message_and_object_tree(
                message, object_tree, session_id
            )
            if stored:
                self._answers[session_id] = answered
            return stored, missing

    def store_object(
        self, run_id: int, session_id: str, object_id: str, object_content: bytes
    ) -> bool:
        """Store a part of a reply; of one that is too large, drop all parts."""
        with self.lock:
            answered = self._answers.get(session_id)
            if answered is None:
                return False
            self._sizes[answered] = self._sizes.get(answered, 0) + len(object_content)
            if self._sizes[answered] > self._largest + ENVELOPE:
                self.too_large.add(answered)
                self._cleanup_push_session(session_id, cleanup_messages=True)
                stored = False
            else:
                stored = super().store_object(run_id, session_id, object_id, object_content)
            self.news.set()
            return stored

    def get_object(self, run_id: int, object_id: str) -> bytes | None:
        """Return an object. Flower would take its two locks in the other order."""
        with self.lock:
            content: bytes | None = super().get_object(run_id, object_id)
            return content

    def post(self, run_id: int, message: Message) -> str:
        """Store a complete message for its node, and return its id."""
        with self.lock, no_object_id_recompute():
            message_id: str = message.object_id
            message.metadata.__dict__["_message_id"] = message_id
            session = self.start_session(run_id)
            bare = remove_content_from_message(message)
            _, missing = super().store_message_and_object_tree(
                bare, get_object_tree(message), session
            )
            for object_id, part in get_all_nested_objects(message).items():
                if object_id in missing:
                    super().store_object(run_id, session, object_id, part.deflate())
        return message_id

    def waits(self, node_id: int) -> bool:
        """Return whether there is a message that the node has not fetched."""
        with self.lock:
            metadata = [message.metadata for message in self.message_ins_store.values()]
            return any(each.dst_node_id == node_id and not each.delivered_at for each in metadata)

    def reply(self, message_id: str) -> dict[str, bytes] | None:
        """Return the objects of a complete reply, its root last; None until it is complete."""
        with self.lock:
            top = self.message_ins_id_to_message_res_id.get(message_id)
            if top is None:
                return None
            try:
                tree = self.object_store.get_object_tree(top)
            except NoObjectInStoreError:
                return None
            parts = {
                each.object_id: self.object_store.get(each.object_id) or b""
                for each in iterate_object_tree(tree)
            }
            return parts if all(parts.values()) else None

    def forget(self, message_id: str) -> None:
        """Delete a message and its reply."""
        with self.lock:
            reply_id = self.message_ins_id_to_message_res_id.get(message_id, "")
            self.delete_messages({message_id})
            for top in {message_id, reply_id}:
                self.object_store.delete(top)

    def clear(self, run_id: int) -> None:
        """Delete all messages, replies and unfinished uploads."""
        with self.lock:
            self.cleanup_run(run_id)
            self.too_large.clear()
            self._answers.clear()
            self._sizes.clear()
