"""What a client's log says about one exchange: its bytes, and a summary that people can read."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from fedsplit.clients.question import Answer, Question
from fedsplit.remote.channel import Reply, Request
from fedsplit.remote.counting import numbers_in
from fedsplit.version import __version__

LONGEST = 2**20
"""Bytes of a question that was not answered."""


def entry_of(
    request: Request | None, message: bytes, reply: Reply, out: bytes, trouble: str
) -> dict[str, Any]:
    """An entry of the log.

    Parameters
    ----------
    request : Request or None
        None where the message could not be read.
    message : bytes
        The question as it came.
    reply : Reply
    out : bytes
        The reply as it is sent, but for the line of the log that it names.
    trouble : str
        What went wrong, for the owner alone.
    """
    entry: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "version": __version__,
        "question": "unreadable",
        "study": "",
        "asked": None,
        "received_bytes": len(message),
        "outcome": reply.outcome,
        "sent": reply.text,
        "sent_bytes": len(out),
    }
    if request is not None:
        entry["question"] = request.question.name()
        entry["study"] = request.study
        entry["asked"] = _short_summary(request.question)
        if request.preparation is not None:
            entry["prepared"] = _short_summary(request.preparation)
    if reply.outcome == "answer":
        entry["sent"] = summary(reply.value)
    if trouble:
        entry["trouble"] = trouble
    if reply.outcome != "answer" and len(message) > LONGEST:
        entry["shortened"] = True  # whoever is refused cannot fill the disk
        message = message[:LONGEST]
    entry["message"] = b64encode(message).decode()
    entry["reply"] = b64encode(out).decode()
    return entry


def _short_summary(question: Question) -> Any:
    """A question for people; of a very long one only its kind."""
    found = summary(question)
    if len(str(found)) > LONGEST:
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
    if isinstance(value, list | tuple | frozenset):
        return [summary(each) for each in value]
    if hasattr(value, "shape"):
        return {"array": list(value.shape)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
