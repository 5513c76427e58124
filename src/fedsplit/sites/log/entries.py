"""What a client's log says about one exchange: its bytes, and a summary that people can read."""

from __future__ import annotations

import hashlib
import math
import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fedsplit.channels.channel import Reply, Request
from fedsplit.channels.counting import numbers_in
from fedsplit.clients.question import Answer, Question
from fedsplit.version import __version__

KEPT_BYTES = 2**12
"""Of a question that was not answered the log has so many bytes: otherwise it could fill a disk."""

SUMMARY_CHARACTERS = 2**20
"""Of the summary of a question that was answered."""


class Exchange(NamedTuple):
    """A question, and what is sent back.

    Attributes
    ----------
    request : Request or None
        None where the message could not be read.
    message : bytes
        The question as it came.
    reply : Reply
    trouble : str
        What went wrong, for the owner alone.
    """

    request: Request | None
    message: bytes
    reply: Reply
    trouble: str = ""


def entry_of(exchange: Exchange, out: bytes) -> dict[str, Any]:
    """An entry of the log.

    Parameters
    ----------
    exchange : Exchange
    out : bytes
        The reply as it is sent, but for the line of the log that it names.
    """
    message = exchange.message
    entry: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "version": __version__,
        # the hash of a line is told: without this, rows that somebody suspects could be tried out
        "salt": secrets.token_hex(16),
        **derived(exchange, out),
    }
    if exchange.trouble:
        entry["trouble"] = exchange.trouble[:KEPT_BYTES]
    if exchange.reply.outcome != "answer" and len(message) > KEPT_BYTES:
        entry["shortened"] = True
        entry["message_sha256"] = hashlib.sha256(message).hexdigest()
        message = message[:KEPT_BYTES]
    entry["message"] = b64encode(message).decode()
    entry["reply"] = b64encode(out).decode()
    return entry


def derived(exchange: Exchange, out: bytes) -> dict[str, Any]:
    """The part of an entry that follows from the bytes of both messages."""
    request, message, reply, _ = exchange
    entry: dict[str, Any] = {
        "question": "unreadable",
        "study": "",
        "asked": None,
        "received_bytes": len(message),
        "outcome": reply.outcome,
        "sent": reply.text,
        "sent_bytes": len(out),
    }
    if request is not None:
        longest = KEPT_BYTES
        if reply.outcome == "answer":
            longest = SUMMARY_CHARACTERS
        entry["question"] = " ".join(
            title for each in request.question.singles() for title in each.titles
        )
        entry["study"] = request.study[:64]
        entry["asked"] = _short_summary(request.question, longest)
        if request.preparation is not None:
            entry["prepared"] = _short_summary(request.preparation, longest)
    if reply.outcome == "answer":
        entry["sent"] = summary(reply.value)
    return entry


def _short_summary(question: Question, longest: int) -> Any:
    """A question for people; of a very long one only its kind."""
    found = summary(question)
    if len(str(found)) > longest:
        return question.name()
    return found


def sent_numbers(value: Any) -> int:
    """How many numbers an answer has."""
    if isinstance(value, Answer):
        return sum(array.size for array in value.parts.values())
    return numbers_in(value)


def summary(value: Any) -> Any:
    """A value for people: counts and names as they are, arrays by their shape."""
    if isinstance(value, Answer):
        return {"numbers": sent_numbers(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): summary(each) for name, each in value.items()}
    if isinstance(value, frozenset):  # in an order that is the same in every process
        value = sorted(value)
    if isinstance(value, list | tuple):
        return [summary(each) for each in value]
    if hasattr(value, "shape"):
        return {"array": list(value.shape)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
