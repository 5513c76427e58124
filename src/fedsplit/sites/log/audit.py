"""A client's log, checked: the chain of its lines, what they say, and the answers in them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsplit.clients.question import Question
from fedsplit.errors import InputError
from fedsplit.remote.messages import answer_type_of, read_reply, read_request
from fedsplit.sites.log.audit_log import Head, read_log
from fedsplit.sites.log.entries import Exchange, derived
from fedsplit.sites.log.replay import NotPrepared, Replay
from fedsplit.sites.studies.proposal import ABOUT_STUDIES
from fedsplit.version import __version__

TOLERANCE = 1e-12
"""How far answers of another version may be from those computed now, relative to the largest."""

KEYS = ("question", "outcome", "message", "reply", "settings", "rows", "version", "received_bytes")
"""What each line has, beside its place in the chain."""


@dataclass
class Audit:
    """What was found.

    Attributes
    ----------
    lines : int
        How many lines the log has.
    first : int
        The number of its first line; above 1 where earlier files were taken away.
    equal, close : int
        How many answers were reproduced exactly, and how many to the tolerance.
    unprepared : int
        How many answers could not be computed, since the lines that prepared them are in files
        that were taken away.
    troubles : list of str
        What is wrong: which line, and why.
    head : Head or None
        The last line; None of an empty log.
    """

    lines: int = 0
    first: int = 1
    equal: int = 0
    close: int = 0
    unprepared: int = 0
    troubles: list[str] = field(default_factory=list)
    head: Head | None = None


def audit(
    folder: Path,
    kinds: Mapping[str, type[Question]],
    data: str | None = None,
    log: Path | None = None,
    expected: Head | None = None,
    progress: Callable[[int], object] = lambda number: None,
) -> Audit:
    """Check the log of a client, and compute every answer in it again.

    Parameters
    ----------
    folder : Path
        Of the client.
    kinds : mapping of str to Question class
        The questions that a client answers.
    data : str, optional
        The file, if it is not where it was.
    log : Path, optional
        The log, if it is not in the folder.
    expected : Head, optional
        A line that the log must have.
    progress : callable
        Called with the number of each line.
    """
    found = Audit()
    replay = Replay(folder, kinds, data)
    seen = False
    try:
        for entry in read_log(log or folder / "questions.jsonl"):
            if not found.lines:
                found.first = entry["number"]
            found.lines += 1
            found.head = Head(entry["number"], entry["hash"])
            seen = seen or found.head == expected
            progress(entry["number"])
            _check(entry, kinds, replay, found)
    except InputError as error:
        found.troubles.append(str(error))
    if expected is not None and not seen:
        found.troubles.append(_unexpected(expected, found.head))
    return found


def _unexpected(expected: Head, last: Head | None) -> str:
    """Why a log does not have the line that it must have."""
    end = 0
    if last is not None:
        end = last.number
    if end < expected.number:
        return (
            f"the log ends at line {end}, but the server knows line {expected.number}: it was cut "
            "short"
        )
    return f"line {expected.number} is not the one that the server knows"


def _check(
    entry: Mapping[str, Any], kinds: Mapping[str, type[Question]], replay: Replay, found: Audit
) -> None:
    """Check one line, and note what was found."""
    where = f"line {entry['number']}"
    if not set(KEYS) <= set(entry):
        found.troubles.append(f"{where}: is not a line of this log")
        return
    where += f", {entry['question']}"
    try:
        exchange, out = _exchange(entry, kinds)
        wrong = _misstated(entry, exchange, out)
        if wrong:
            found.troubles.append(f"{where}: its {wrong} is not that of the messages in it")
        _check_answer(entry, exchange, replay, found, where)
    except (ValueError, KeyError, TypeError, OSError) as error:
        if isinstance(error, NotPrepared) and found.first > 1:
            found.unprepared += 1
        else:
            found.troubles.append(f"{where}: cannot be computed again ({error})")


def _check_answer(
    entry: Mapping[str, Any], exchange: Exchange, replay: Replay, found: Audit, where: str
) -> None:
    """Compute the answer of a line again, if it has one that depends on rows."""
    request, _, reply, _ = exchange
    if request is None or reply.outcome != "answer" or isinstance(request.question, ABOUT_STUDIES):
        return
    difference = replay.difference(request, reply, entry)
    if difference == 0.0:
        found.equal += 1
    elif difference <= TOLERANCE and entry["version"] != __version__:
        found.close += 1
    else:
        found.troubles.append(
            f"{where}: the answer is not reproduced (relative difference {difference:.0e})"
        )


def _exchange(
    entry: Mapping[str, Any], kinds: Mapping[str, type[Question]]
) -> tuple[Exchange, bytes]:
    """The question and the reply of a line, from their bytes, and the bytes of the reply."""
    message = b64decode(entry["message"], validate=True)
    out = b64decode(entry["reply"], validate=True)
    try:
        request = read_request(message, kinds)
        kind: Any = answer_type_of(request)
    except InputError:
        request, kind = None, str
    return Exchange(request, message, read_reply(out, kind, 0.0)), out


def _misstated(entry: Mapping[str, Any], exchange: Exchange, out: bytes) -> str:
    """The first part of the summary in a line that does not follow from its messages."""
    expected: dict[str, Any] = json.loads(json.dumps(derived(exchange, out)))
    if entry.get("shortened") is True:  # the message is not there as a whole
        expected = {name: expected[name] for name in ("outcome", "sent", "sent_bytes")}
    elif entry["version"] != __version__:  # which may have summed up in other words
        expected = {
            name: expected[name]
            for name in ("question", "study", "outcome", "received_bytes", "sent_bytes")
        }
    for name, value in expected.items():
        if entry.get(name) != value:
            return name
    return ""
