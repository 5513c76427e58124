"""Flower's nodes and messages in memory, with bounds on what a client may leave there."""

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
"""Bytes that an answer may have around its content."""

calls_itself: ContextVar[str] = ContextVar("calls_itself", default="")
"""The name that the client of the present request gives itself."""


class State(InMemoryLinkState):  # type: ignore[misc]  # Flower's types are not read
    """Whom the hub knows, letters, and answers of at most ``largest`` bytes."""

    def __init__(self, largest: int) -> None:
        super().__init__(NoOpFederationManager(), InMemoryObjectStore())
        self.news = threading.Event()
        self.too_large: set[str] = set()
        self._largest = largest
        self._letters: dict[str, str] = {}  # by upload, the letter that it answers
        self._sizes: dict[str, int] = {}

    def start(self) -> int:
        """The one run that all letters belong to."""
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
        """A node under the name that it is given here or gives itself; one that is here keeps its name."""
        with self.lock:
            name = name or calls_itself.get() or f"client {len(self.nodes) + 1}"
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
        """As in Flower; a key that is online already is told apart from one that is not known."""
        if not super().activate_node(node_id, heartbeat_interval):
            raise FlowerError(ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE, "")
        return True

    def store_message_and_object_tree(
        self, message: Message, object_tree: ObjectTree, session_id: str
    ) -> tuple[bool, list[str]]:
        """A client's answer: Flower would also take a letter to another client."""
        letter = message.metadata.reply_to_message_id
        if not letter:
            return False, []
        with self.lock:
            if sum(1 for _ in iterate_object_tree(object_tree)) > self._largest // PART + 8:
                self.too_large.add(letter)
                return False, []
            stored, missing = super().store_message_and_object_tree(
                message, object_tree, session_id
            )
            if stored:
                self._letters[session_id] = letter
            return stored, missing

    def store_object(
        self, run_id: int, session_id: str, object_id: str, object_content: bytes
    ) -> bool:
        """A part of an answer; when all are more than ``largest`` none is kept."""
        with self.lock:
            letter = self._letters.get(session_id)
            if letter is None:
                return False
            self._sizes[letter] = self._sizes.get(letter, 0) + len(object_content)
            if self._sizes[letter] > self._largest + ENVELOPE:
                self.too_large.add(letter)
                self._cleanup_push_session(session_id, cleanup_messages=True)
                stored = False
            else:
                stored = super().store_object(run_id, session_id, object_id, object_content)
            self.news.set()
            return stored

    def get_object(self, run_id: int, object_id: str) -> bytes | None:
        """As in Flower, which would take its two locks in the other order."""
        with self.lock:
            content: bytes | None = super().get_object(run_id, object_id)
            return content

    def post(self, run_id: int, message: Message) -> str:
        """Lay a letter out for its node, whole; its number at Flower."""
        with self.lock, no_object_id_recompute():
            letter: str = message.object_id
            message.metadata.__dict__["_message_id"] = letter
            session = self.start_session(run_id)
            bare = remove_content_from_message(message)
            _, missing = super().store_message_and_object_tree(
                bare, get_object_tree(message), session
            )
            for object_id, part in get_all_nested_objects(message).items():
                if object_id in missing:
                    super().store_object(run_id, session, object_id, part.deflate())
        return letter

    def waits(self, node_id: int) -> bool:
        """Whether there is a letter for the node that it has not had."""
        with self.lock:
            metadata = [message.metadata for message in self.message_ins_store.values()]
            return any(each.dst_node_id == node_id and not each.delivered_at for each in metadata)

    def answer(self, letter: str) -> dict[str, bytes] | None:
        """The parts of an answer that has come as a whole, the last one on top."""
        with self.lock:
            top = self.message_ins_id_to_message_res_id.get(letter)
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

    def forget(self, letters: set[str]) -> None:
        """Drop these letters and their answers."""
        with self.lock:
            tops = {self.message_ins_id_to_message_res_id.get(letter, "") for letter in letters}
            self.delete_messages(letters)
            for top in letters | tops:
                self.object_store.delete(top)

    def clear(self, run_id: int) -> None:
        """Drop all letters, answers and unfinished uploads."""
        with self.lock:
            self.cleanup_run(run_id)
            self.too_large.clear()
            self._letters.clear()
            self._sizes.clear()
