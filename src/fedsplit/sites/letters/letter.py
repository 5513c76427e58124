"""What is in the files of a study: a question to all clients, or the answer of one.

A file is a line of text that says what it is, and a MessagePack array: the content, a signature of
it, and who signed. The content is a ``QuestionLetter`` or an ``AnswerLetter`` in MessagePack.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import msgspec

from fedsplit.errors import InputError
from fedsplit.remote.messages import MESSAGE_LIMIT, Signature
from fedsplit.sites.secure.encoding import unambiguous

FORMAT = 1
"""The format of the files."""

SUFFIX = ".fedsplit"

MOST = msgspec.Meta(max_length=10_000)
"""The most items of a list or table in a file: it cannot fill the memory by many small ones."""


@dataclass(frozen=True)
class Taken:
    """The last answer of a client that the coordinator has used.

    Attributes
    ----------
    number : int
        Of the question.
    answer : str
        The SHA-256 of what is signed in its file.
    """

    number: int
    answer: str


@dataclass(frozen=True)
class QuestionLetter:
    """A question to the clients of a study.

    Attributes
    ----------
    study : bytes
        The study, in its canonical form.
    run : str
        Identifies the run: a study can be run more than once.
    number : int
        Of the question, from 1.
    previous : str
        The SHA-256 of what is signed in the question before; empty in the first.
    taken : mapping of str to Taken
        By client, its answer that came last.
    box : str
        The coordinator's public key, to which answers are sealed; empty without keys.
    parts : mapping of str to bytes
        By client, the messages for it, sealed as soon as it has sent a key.
    last : bool
        Whether it brings the result, and no answer is expected.
    """

    study: bytes
    run: str
    number: int
    previous: str
    taken: Annotated[Mapping[str, Taken], MOST]
    box: str
    parts: Annotated[Mapping[str, bytes], MOST]
    last: bool

    kind: ClassVar[str] = "question"

    @property
    def hash(self) -> str:
        """Of the study."""
        return hashlib.sha256(self.study).hexdigest()


@dataclass(frozen=True)
class AnswerLetter:
    """The answer of one client to a question.

    Attributes
    ----------
    hash : str
        Of the study.
    run : str
        As in the question.
    number : int
        Of the question.
    question : str
        The SHA-256 of what is signed in it.
    name : str
        Of the client.
    box : str
        The client's public key, to which later questions are sealed; empty without keys.
    content : bytes
        The replies, sealed to the coordinator's key.
    """

    hash: str
    run: str
    number: int
    question: str
    name: str
    box: str
    content: bytes

    kind: ClassVar[str] = "answer"


Letter = TypeVar("Letter", QuestionLetter, AnswerLetter)


class Received(NamedTuple):
    """A file as it came, beside the letter in it.

    Attributes
    ----------
    content : bytes
        What is signed.
    signature : Signature
        Of the content; in an answer, with a public key in OpenSSH's format as its certificate.
    file : bytes
        All of it.
    """

    content: bytes
    signature: Signature
    file: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 of the content alone: a signature has more than one valid form."""
        return digest_of(self.content)


def content_of(letter: QuestionLetter | AnswerLetter) -> bytes:
    """What is signed."""
    return msgspec.msgpack.encode(letter)


def digest_of(content: bytes) -> str:
    """The SHA-256 of what is signed."""
    return hashlib.sha256(content).hexdigest()


def write_letter(letter: QuestionLetter | AnswerLetter, signature: Signature) -> bytes:
    """A letter as a file."""
    signed = (content_of(letter), signature.value, signature.certificate)
    return _first_line(letter.kind) + msgspec.msgpack.encode(signed)


def read_letter(path: Path, kind: type[Letter]) -> tuple[Letter, Received]:
    """The letter in a file from any source: whatever is not one raises InputError.

    Its signature is not checked here.
    """
    data = _read(path)
    line, _, body = data.partition(b"\n")
    first = line[:80] + b"\n"
    other = {"question": "answer", "answer": "question"}[kind.kind]
    if first.startswith(f"fedsplit {other} ".encode()):
        raise InputError(f"{path}: is {_a(other)}, not {_a(kind.kind)}")
    if not first.startswith(f"fedsplit {kind.kind} ".encode()):
        raise InputError(f"{path}: is not {_a(kind.kind)} of fedsplit")
    if first != _first_line(kind.kind):
        raise InputError(
            f"{path}: was written by another version of fedsplit: install the same version on "
            "both sides"
        )
    damaged = InputError(f"{path}: is damaged, or a part of a file: have it sent again")
    try:
        content, value, signer = msgspec.msgpack.decode(body, type=tuple[bytes, str, str])
        letter = msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise damaged from None
    signature = Signature(value, signer)
    # a file has one form, without anything that nobody reads, or that is not signed
    if write_letter(letter, signature) != data or not re.fullmatch("[0-9a-f]*", value):
        raise damaged
    return letter, Received(content, signature, data)


def belongs_to(letter: QuestionLetter | AnswerLetter, name: str) -> bytes:
    """What the sealed messages of a letter for or from a client belong to."""
    return unambiguous(letter.kind, letter.hash, letter.run, str(letter.number), name)


def pack(messages: list[bytes]) -> bytes:
    """Messages as one."""
    return msgspec.msgpack.encode(messages)


def unpack(content: bytes) -> list[bytes]:
    """The messages that were packed; raises InputError for anything else."""
    try:
        messages: list[bytes] = msgspec.msgpack.decode(content, type=Annotated[list[bytes], MOST])
    except msgspec.DecodeError:
        raise InputError("what is in it cannot be read") from None
    return messages


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path}: is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):  # such as a pipe, which may never end
            raise InputError(f"{path}: is not an ordinary file")
        if status.st_size > MESSAGE_LIMIT:
            raise InputError(f"{path}: is larger than {MESSAGE_LIMIT} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _first_line(kind: str) -> bytes:
    return f"fedsplit {kind} {FORMAT}\n".encode()


def _a(kind: str) -> str:
    return {"question": "a question", "answer": "an answer"}[kind]
