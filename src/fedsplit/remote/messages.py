"""Questions and answers as bytes between organisations: a word, a line break, and a plain value.

The reader of a letter decides by the word which type it expects; nothing in a letter names code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast, get_args, get_type_hints

from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.gradient import GradientProx
from fedsplit.prox.inexact_newton import NewtonProx
from fedsplit.prox.solver import ProxSolver
from fedsplit.remote import codec
from fedsplit.remote.channel import SILENT, Outcome, Question, Reply
from fedsplit.remote.cohort import ROUND_QUESTIONS
from fedsplit.version import __version__

PROTOCOL = 1
"""The number of this language: it changes when a question, an answer or their meaning does."""

LARGEST = 2**31
"""The most bytes of a letter."""


class Hello(NamedTuple):
    """Who answers: its name, and the version and protocol that it runs."""

    name: str
    version: str
    protocol: int


HELLO = b"hello\n"


def _round_arguments(name: str) -> Any:
    """The types of a round's question: what is settled, the number of clients, and the protocol's own arguments."""
    hints = get_type_hints(getattr(Clients, name))
    hints.pop("return")
    solvers = NewtonProx | ExactProx | GradientProx
    kinds = (str, int, *(solvers if hint is ProxSolver else hint for hint in hints.values()))
    return tuple[kinds]  # type: ignore[valid-type]  # made when it runs, from the protocol's own annotations


ROUND_ARGUMENTS: Mapping[str, Any] = {name: _round_arguments(name) for name in ROUND_QUESTIONS}
"""By question, the types of what is asked in the rounds."""


def write_question(question: Question) -> bytes:
    """A question as a letter."""
    return question.name.encode() + b"\n" + codec.encode(question.args)


def read_question(letter: bytes, arguments: Mapping[str, Any]) -> Question:
    """The question in a letter; one that ``arguments`` does not have is refused."""
    name, body = _opened(letter)
    if name not in arguments:
        raise InputError(f"the question {name[:40]!r} is not one of those that are answered")
    kind = arguments[name]
    return Question(name, codec.decode(kind, body, LARGEST) if get_args(kind) else ())


def write_reply(reply: Reply) -> bytes:
    """A reply as a letter: an answer, or a text."""
    return (
        reply.outcome.encode()
        + b"\n"
        + codec.encode(reply.value if reply.outcome == "answer" else reply.text)
    )


def read_reply(letter: bytes, kind: Any, seconds: float) -> Reply:
    """The reply in a letter; one that cannot be read is a failure."""
    try:
        outcome, body = _opened(letter)
        if outcome not in get_args(Outcome):
            raise InputError(f"a reply of the kind {outcome[:40]!r}")
        if outcome == "answer":
            return Reply("answer", codec.decode(kind, body, LARGEST), seconds=seconds)
        return Reply(cast(Outcome, outcome), text=codec.decode(str, body)[:500], seconds=seconds)
    except InputError as error:
        return Reply("failed", text=f"an answer that cannot be read ({error})", seconds=seconds)


def read_hello(letter: bytes) -> Hello:
    """Who answered ``HELLO``."""
    reply = read_reply(letter, Hello, 0.0)
    if reply.outcome != "answer":
        raise InputError(reply.text)
    hello: Hello = reply.value
    return hello


def check_version(hello: Hello) -> None:
    """Refuse a client that speaks another protocol."""
    if hello.protocol != PROTOCOL:
        raise InputError(
            f"client {hello.name} runs fedsplit {hello.version} (protocol {hello.protocol}), this server fedsplit "
            f"{__version__} (protocol {PROTOCOL}): install the same version on both"
        )


def _opened(letter: bytes) -> tuple[str, bytes]:
    word, separator, body = letter.partition(b"\n")
    if not separator or len(word) > 40 or not word.isascii():
        raise InputError("this is no letter")
    return word.decode(), body


class Post(Protocol):
    """What carries letters to clients by name, and their replies back."""

    def send(
        self, letters: Mapping[str, bytes], timeout: float
    ) -> Mapping[str, tuple[bytes | None, str, float]]:
        """Each client's reply, or what went wrong, and the seconds that it took."""


class LetterChannel:
    """A channel to clients that read letters, one client a cohort; ``kinds`` are the types of their answers."""

    free = False

    def __init__(self, post: Post, names: Sequence[str], kinds: Mapping[str, Any]) -> None:
        self.names, self.kinds, self._post = [[name] for name in names], kinds, post

    def ask(self, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        letters = {
            self.names[at][0]: write_question(question) for at, question in questions.items()
        }
        found = self._post.send(letters, timeout)
        replies = {}
        for at, question in questions.items():
            letter, trouble, seconds = found.get(self.names[at][0], (None, SILENT.text, timeout))
            if letter is None:
                replies[at] = Reply("silent", text=trouble, seconds=seconds)
            else:
                replies[at] = read_reply(letter, self.kinds[question.name], seconds)
        return replies

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)
