"""What the coordinator sends to a site, and what a site replies.

Every message is signed by its sender, whatever carries it. A response is a record with typed
fields, and the coordinator reads it under the name of the site whose connection brought it. No
field of it names another site, so that no site can state anything about another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedsplit.channels import codec
from fedsplit.federation.keys import SigningKey, sign, verify

JOINING = 0
"""Number of the exchange in which sites join a study; question k of it is exchange k."""

ENVELOPE = 4096
"""The most bytes of a response beside its value: hashes, a signature, a reason of a few lines."""


@dataclass(frozen=True)
class LogHead:
    """The last entry of a site's log: its number, and the hash of the chain up to it."""

    number: int
    hash: bytes

    def __post_init__(self) -> None:
        check_number(self.number)
        if len(self.hash) > 32:
            raise ValueError(f"a hash of {len(self.hash)} bytes")


@dataclass(frozen=True)
class Proposal:
    """Asks a site to join a study, which travels in its canonical form."""

    study: bytes


@dataclass(frozen=True)
class Inquiry:
    """Asks one question.

    Attributes
    ----------
    study : bytes
        The hash of the study.
    number : int
        Of the exchange, from 1.
    question : bytes
        The question, encoded.
    posts : tuple of bytes
        In a secure study, the signed responses of all members to the exchange before this one, in
        the order of the members. The coordinator is a notice board: it passes them on as they are.
    head : LogHead or None
        The last head of the site's own log that the coordinator has, by which a site notices that
        its database was restored from a backup.
    """

    study: bytes
    number: int
    question: bytes
    posts: tuple[bytes, ...] = ()
    head: LogHead | None = None

    def __post_init__(self) -> None:
        check_number(self.number)


@dataclass(frozen=True)
class Ending:
    """Ends a study, with its result for the owner; no question of it is answered afterwards."""

    study: bytes
    summary: str


Message: TypeAlias = Proposal | Inquiry | Ending


@dataclass(frozen=True)
class Response:
    """What a site replies to one message.

    Attributes
    ----------
    study, number : bytes, int
        The exchange that it belongs to.
    outcome : str
        ``answer``; ``waiting`` for the owner's decision; ``refused`` by a rule or the owner; or
        ``failed``.
    value : bytes
        Of an answer: in a secure study the site's X25519 key in exchange 0, then masked numbers;
        otherwise the encoded value.
    transcript : bytes
        In a secure study, the hash of all exchanges before this one.
    reason : str
        Why there is no answer, in a sentence for a person. Nothing is ever read from it.
    head : LogHead or None
        The entry of the site's log that records the answer.
    """

    study: bytes
    number: int
    outcome: Literal["answer", "waiting", "refused", "failed"]
    value: bytes = b""
    transcript: bytes = b""
    reason: str = ""
    head: LogHead | None = None

    def __post_init__(self) -> None:
        check_number(self.number)


def check_number(number: int) -> None:
    """Raise ValueError unless every database and every program can hold a number."""
    if not 0 <= number < 2**53:
        raise ValueError(f"a number of {number}")


def write_message(key: SigningKey, message: Message) -> bytes:
    """Return a message of the coordinator, signed."""
    return sign(key, "message", codec.encode(message))


def read_message(coordinator: bytes, data: bytes) -> Message:
    """Return the message in some bytes, which the coordinator's key must have signed."""
    result: Message = codec.decode(Message, verify(coordinator, "message", data))
    return result


def write_response(key: SigningKey, response: Response) -> bytes:
    """Return a response of a site, signed."""
    return sign(key, "response", codec.encode(response))


def read_response(site: bytes, data: bytes) -> Response:
    """Return the response in some bytes, which the site's key must have signed."""
    result: Response = codec.decode(Response, verify(site, "response", data))
    return result
