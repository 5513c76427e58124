"""Readable copies of answers, for the owner of the data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedsplit import fixed_point
from fedsplit.channels.channel import Request
from fedsplit.clients.question import Answer, Question
from fedsplit.errors import InputError
from fedsplit.fixed_point import Limbs
from fedsplit.regression.client.noise import Noise
from fedsplit.regression.client.questions import NoisySums
from fedsplit.remote.messages import answer_type_of, read_reply, read_request
from fedsplit.sites.letters.letter import AnswerLetter
from fedsplit.sites.service import ALLOWED
from fedsplit.sites.studies.hashes import short
from fedsplit.sums import Total

WIDTH = 100

MASKED = "before it is masked: the coordinator can read the sum over all clients alone"


def readable(
    letter: AnswerLetter,
    messages: Sequence[bytes],
    replies: Sequence[bytes],
    unmasked: Callable[[Request, Limbs], Limbs],
) -> str:
    """Everything that an answer tells, every number of it.

    Parameters
    ----------
    letter : AnswerLetter
    messages : sequence of bytes
        What was asked.
    replies : sequence of bytes
        The reply to each.
    unmasked : callable
        Takes the client's own masks off the numbers that it adds to a secure sum.
    """
    lines = [f"answer of {letter.name} to question {letter.number}", f"study {short(letter.hash)}"]
    for message, reply in zip(messages, replies, strict=False):
        request = read_request(message, ALLOWED)
        told = read_reply(reply, answer_type_of(request), 0.0)
        lines += ["", request.question.name()]
        if told.log:
            lines.append(f"  line of the log, and its hash: {told.log}")
        if told.outcome != "answer":
            lines.append(f"  {told.outcome}: {told.text}")
            continue
        if isinstance(request.question, NoisySums):
            lines += _noise(request.question)
        if request.step is None:
            lines += _lines(told.value, "  ")
        else:
            lines.append(f"  {MASKED}")
            plain = unmasked(request, told.value.view(np.uint64))
            lines += _lines(_summand(request.question, plain), "  ")
            lines += _lines({"all of it, as numbers": fixed_point.decode(plain)}, "  ")
    return "\n".join(lines) + "\n"


def _summand(question: Question, numbers: Limbs) -> Any:
    """What a client adds to a sum, as the answer that it is; empty if it is none alone."""
    try:
        with np.errstate(all="ignore"):
            return question.of_total(Total(numbers, 1))
    except (InputError, ValueError, ArithmeticError):
        return {}


def _noise(question: NoisySums) -> list[str]:
    """What noise is in an answer, and how much of the study's budget it takes."""
    privacy = question.privacy
    share = sum(privacy.shares(question.number, dispersed=False))
    rows = privacy.site_rows or 1
    shared = ""
    if question.shares > 1:
        shared = f", this client's share among {question.shares}"
    return [
        f"  sums with noise, question {question.number} of {privacy.rounds}: takes {share:.1%} of "
        f"the budget of ε {privacy.epsilon:g} and δ {privacy.delta:g}, once",
        f"  noise in every number: standard deviation "
        f"{Noise.of(privacy, question.shares).scale:.4g}{shared}",
        f"  {privacy.protects} more or less moves all numbers together by at most "
        f"{rows * share**0.5:.4g} (root of the sum of squares)",
    ]


def _lines(value: Any, indent: str) -> Iterator[str]:
    """A value as lines: an item each, arrays with all of their numbers."""
    parts = _parts(value)
    if parts is None:
        text = str(value)
        if isinstance(value, list | tuple | frozenset):
            text = ", ".join(map(str, value))
        if isinstance(value, np.ndarray):
            text = np.array2string(
                value, max_line_width=WIDTH, threshold=sys.maxsize, floatmode="unique"
            )
        yield from (indent + line for line in text.splitlines() or [""])
        return
    for name, each in parts.items():
        inner = list(_lines(each, ""))
        if len(inner) == 1:
            yield f"{indent}{name}: {inner[0]}"
        else:
            yield f"{indent}{name}:"
            yield from (f"{indent}  {line}" for line in inner)


def _parts(value: Any) -> Mapping[str, Any] | None:
    """What a value consists of, by name; None if it is a single one."""
    if isinstance(value, Answer):
        return {**value.parts, "work": value.work}
    if hasattr(value, "_asdict"):
        found: Mapping[str, Any] = value._asdict()
        return found
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): each for name, each in value.items()}
    if isinstance(value, list | tuple) and any(_parts(each) is not None for each in value):
        return {str(i): each for i, each in enumerate(value, start=1)}
    return None
