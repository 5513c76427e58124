"""Questions and replies as bytes between organisations: a word, a line break, and a plain value.

The reader decides by the word which type it expects; nothing in a message names code.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fedsplit.channels import codec
from fedsplit.channels.channel import SILENT, Outcome, Reply, Request, Step
from fedsplit.clients.question import Question
from fedsplit.errors import InputError
from fedsplit.version import __version__

PROTOCOL = 7
"""The version of this protocol: it changes when a question, an answer or their meaning does."""

MESSAGE_LIMIT = 2**31
"""The most bytes of a message."""


LONGEST_WORD = 120
"""The most characters of the first line: a kind of question or reply, and a line of a log."""


class Identity(NamedTuple):
    """Who answers: its name, and the version and protocol that it runs."""

    name: str
    version: str
    protocol: int


class Signature(NamedTuple):
    """A signature, and the certificate (PEM) of the key that made it; both empty if there is none.

    Attributes
    ----------
    value : str
        In hexadecimal digits.
    certificate : str
    """

    value: str = ""
    certificate: str = ""


@dataclass(frozen=True)
class Hello(Question):
    """Ask a client who it is."""

    answer_type = Identity


def write_request(request: Request) -> bytes:
    """A request as a message."""
    preparation = request.preparation
    content = request.study, request.key, request.m, request.step, preparation, request.question
    return request.question.name().encode() + b"\n" + codec.encode(content)


def content_digest(request: Request) -> str:
    """The SHA-256 of what is asked, which is the same for all clients of a secure sum."""
    content = request.key, request.m, request.preparation, request.question
    return hashlib.sha256(codec.encode(content)).hexdigest()


def read_request(message: bytes, allowed: Mapping[str, type[Question]]) -> Request:
    """The request in a message.

    Parameters
    ----------
    allowed : mapping of str to Question class
        The questions that may be asked, by name: any other is refused.
    """
    name, body = _opened(message)
    if name not in allowed:
        raise InputError(f"the question {name[:40]!r} is not allowed here")
    prepared = _preparation(allowed)
    expected: Any = tuple[str, str, int, Step | None, prepared, allowed[name]]  # type: ignore[valid-type]  # known when it runs
    study, key, m, step, preparation, question = codec.decode(expected, body, MESSAGE_LIMIT)
    return Request(question, key, m, preparation, study, step is not None, step)


def _preparation(allowed: Mapping[str, type[Question]]) -> Any:
    """The type of what may prepare a client on the way to another question."""
    found: Any = None
    for question in allowed.values():
        if question.prepares:
            found = question | found
    return found


def write_reply(reply: Reply) -> bytes:
    """A reply as a message: an answer, or a text."""
    content = reply.value if reply.outcome == "answer" else reply.text
    return reply.outcome.encode() + b"\n" + codec.encode(content)


def with_log(message: bytes, number: int, head: str) -> bytes:
    """A reply that says which line of the client's log it is: its number and its hash."""
    word, separator, body = message.partition(b"\n")
    return word + f" {number}:{head}".encode() + separator + body


def read_reply(message: bytes, answer_type: Any, seconds: float) -> Reply:
    """The reply in a message; one that cannot be read is a failure."""
    try:
        word, body = _opened(message)
        outcome, _, log = word.partition(" ")
        if outcome not in get_args(Outcome):
            raise InputError(f"a reply of the unknown kind {outcome[:40]!r}")
        if outcome == "answer":
            value = codec.decode(answer_type, body, MESSAGE_LIMIT)
            return Reply("answer", value, seconds=seconds, log=log)
        text = codec.decode(str, body)[:500]
        return Reply(cast(Outcome, outcome), text=text, seconds=seconds, log=log)
    except InputError as error:
        return Reply("failed", text=f"an answer that cannot be read ({error})", seconds=seconds)


def answer_type_of(request: Request) -> Any:
    """What an answer to a request is: that of its question, or the bits of masked numbers."""
    if request.step is not None:
        return NDArray[np.int64]
    return request.question.answer_type


def read_identity(message: bytes, known: str = "") -> Identity:
    """Who answered ``HELLO``; a client that speaks another protocol is refused.

    Parameters
    ----------
    message : bytes
    known : str
        Whose connection brought it, where that is known: errors are about that client, whatever
        name the message states.
    """
    reply = read_reply(message, Identity, 0.0)
    if reply.outcome != "answer":
        raise InputError(f"client {known}: {reply.text}")
    identity: Identity = reply.value
    if identity.protocol != PROTOCOL:
        raise InputError(
            f"client {known or identity.name} runs fedsplit {identity.version[:20]} (protocol "
            f"{identity.protocol}), this server fedsplit {__version__} (protocol {PROTOCOL}): "
            "install the same version on both"
        )
    return identity


HELLO = write_request(Request(Hello()))


def _opened(message: bytes) -> tuple[str, bytes]:
    word, separator, body = message.partition(b"\n")
    if not separator or len(word) > LONGEST_WORD or not word.isascii():
        raise InputError("this is not a message of fedsplit")
    return word.decode(), body


class Transport(Protocol):
    """What carries messages to clients by name, and their replies back."""

    def send(
        self, messages: Mapping[str, bytes], timeout: float
    ) -> Mapping[str, tuple[bytes | None, str, float]]:
        """By client, its reply (or None), what went wrong, and the seconds that it took."""


class MessageChannel:
    """A channel to clients that exchange messages, one client per cohort.

    Parameters
    ----------
    transport : Transport
    names : sequence of str
        Of the clients.
    study : str
        The hash of the study that they approved, which every request carries.
    """

    free = False
    recorded = True
    now = staticmethod(time.monotonic)
    wait = staticmethod(time.sleep)

    def __init__(self, transport: Transport, names: Sequence[str], study: str = "") -> None:
        self.names = [[name] for name in names]
        self._transport = transport
        self._study = study

    def _messages(self, requests: Mapping[int, Request]) -> dict[str, bytes]:
        return {
            self.names[at][0]: write_request(request._replace(study=self._study))
            for at, request in requests.items()
        }

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        messages = self._messages(requests)
        found = self._transport.send(messages, timeout)
        nothing = (None, SILENT.text, timeout)
        return {
            at: _reply_to(request, *found.get(self.names[at][0], nothing))
            for at, request in requests.items()
        }


def _reply_to(request: Request, message: bytes | None, trouble: str, seconds: float) -> Reply:
    """The reply to a request, from what its transport brought."""
    if message is None:
        return Reply("silent", text=trouble, seconds=seconds)
    return read_reply(message, answer_type_of(request), seconds)


class PostingTransport(Transport, Protocol):
    """A transport that also carries messages whose replies are not waited for."""

    def post(self, messages: Mapping[str, bytes]) -> None:
        """Send a message to each of these clients, in the place of an earlier one."""

    def collect(self, timeout: float) -> Mapping[str, tuple[bytes | None, str, float]]:
        """What came of messages that were posted, as of ``send``: the next, after a wait."""


class PostingMessageChannel(MessageChannel):
    """A channel of messages that can be asked asynchronously.

    Parameters
    ----------
    transport : PostingTransport
    names, study
        As in ``MessageChannel``.
    """

    def __init__(self, transport: PostingTransport, names: Sequence[str], study: str = "") -> None:
        super().__init__(transport, names, study)
        self._posting = transport
        self._posted: dict[int, Request] = {}

    def post(self, requests: Mapping[int, Request]) -> None:
        self._posted |= requests
        self._posting.post(self._messages(requests))

    def collect(self, timeout: float) -> dict[int, Reply]:
        found = self._posting.collect(timeout)
        places = {name: at for at, [name] in enumerate(self.names)}
        return {
            places[name]: _reply_to(self._posted.pop(places[name]), *reply)
            for name, reply in found.items()
        }
