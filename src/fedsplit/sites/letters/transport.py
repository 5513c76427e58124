"""The fit of a study over files: it runs from the answers that are there, up to the next question.

A fit draws on nothing but the clients' answers: from the same answers it comes to the same
questions. So every run begins at the first question, and takes the old answers from the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedsplit.errors import InputError
from fedsplit.remote.messages import MessageChannel

Reply = tuple[bytes | None, str, float]

LEFT_OUT = "left out by the coordinator"


class Waiting(Exception):
    """The run cannot go on before messages have been answered."""


class Round(NamedTuple):
    """A question to the clients, and their answers.

    Attributes
    ----------
    asked : mapping of str to list of bytes
        By client, the messages for it.
    replies : mapping of str to list of bytes
        By client, its reply to each.
    left_out : frozenset of str
        Clients that have not answered, and are not waited for any longer.
    """

    asked: Mapping[str, list[bytes]]
    replies: Mapping[str, list[bytes]]
    left_out: frozenset[str] = frozenset()


class LetterTransport:
    """A transport that answers messages from past rounds, and collects those of the next.

    Parameters
    ----------
    rounds : sequence of Round
        The past, in order.
    assumed : mapping of str to bytes
        By kind of message, the reply with which a run goes on before there is one: messages whose
        replies are known in advance travel with the next ones.

    Attributes
    ----------
    asked : dict of list of bytes
        By client, the messages that wait to be sent.
    """

    def __init__(self, rounds: Sequence[Round], assumed: Mapping[str, bytes]) -> None:
        self.asked: dict[str, list[bytes]] = {}
        self._rounds = list(rounds)
        self._assumed = assumed
        self._number = 0
        # By client, the messages of the current round that were not sent yet, and their replies.
        self._due: dict[str, list[tuple[bytes, bytes | None]]] = {}
        self._left_out: set[str] = set()

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, Reply]:
        """Replies from past rounds; raises ``Waiting`` for messages that are new."""
        if not any(self._due.values()) and not messages.keys() <= self._left_out:
            self._begin_round()
        found: dict[str, Reply] = {}
        for name, message in messages.items():
            if name in self._left_out:
                found[name] = None, LEFT_OUT, timeout
            elif self._number <= len(self._rounds):
                found[name] = self._replayed(name, message), "", 0.0
            else:
                self.asked.setdefault(name, []).append(message)
                found[name] = self._assumed.get(_kind(message)), "", 0.0
        if any(reply is None and name not in self._left_out for name, (reply, *_) in found.items()):
            raise Waiting
        return found

    def _begin_round(self) -> None:
        if self._number > len(self._rounds):
            return
        self._number += 1
        if self._number > len(self._rounds):
            return
        current = self._rounds[self._number - 1]
        self._left_out |= current.left_out
        for name, asked in current.asked.items():
            if name not in self._left_out:
                replies = current.replies.get(name, [])
                padded = [*replies, *[None] * (len(asked) - len(replies))]
                self._due[name] = list(zip(asked, padded, strict=True))

    def _replayed(self, name: str, message: bytes) -> bytes:
        due = self._due.get(name)
        if not due or due[0][0] != message:
            raise InputError(
                f"question {self._number} to {name} differs from the one that was written: the "
                "version of fedsplit, its dependencies or the machine's arithmetic changed"
            )
        _, reply = due.pop(0)
        if reply is None:
            raise InputError(f"client {name}: its answer {self._number} is not complete")
        return reply


class LetterChannel(MessageChannel):
    """A channel over files: time passes by waits alone, so that every run has the same times."""

    _time = 0.0

    def now(self) -> float:
        return self._time

    def wait(self, seconds: float) -> None:  # type: ignore[override]  # a function there
        self._time += seconds


def _kind(message: bytes) -> str:
    return message.partition(b"\n")[0].decode("ascii", "replace")
