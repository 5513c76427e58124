"""Questions and answers of analyses as bytes: what may be asked, and nothing else is decoded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.clients.question import Question
from fedsplit.clients.questions import QUESTIONS
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.questions import FIT_QUESTIONS, SumQuestion

ALLOWED: Mapping[str, type[Question]] = {**FIT_QUESTIONS, **QUESTIONS}
"""Every question that a site answers, by name."""


def encode_request(request: Request) -> bytes:
    """A request as bytes; which study and exchange it belongs to is said around it."""
    content = request.key, request.m, request.sums, request.preparation, request.question
    return request.question.name().encode() + b"\n" + codec.encode(content)


def decode_request(data: bytes) -> Request:
    """The request in some bytes; RequestError for anything that is not asked here."""
    name, mark, body = data.partition(b"\n")
    # no question has a longer name
    known = ALLOWED.get(name.decode(errors="replace")) if len(name) <= 60 else None
    if known is None or not mark:
        raise RequestError(f"the question {name[:40]!r} is not allowed here")
    expected: Any = tuple[str, int, bool, _preparation(), known]  # type: ignore[misc]  # known when it runs
    try:
        key, m, sums, preparation, question = codec.decode(expected, body)
    except InputError as error:
        raise RequestError(f"a question that cannot be read ({error})") from None
    return Request(question, key, m, preparation, sums=sums)


def answer_limit(request: Request) -> int:
    """The most bytes of an answer to a request: eight for a number, and names around them.

    How many names of levels there are, and how long, nobody knows before.
    """
    question = request.question
    unknown = 2**24
    if isinstance(question, SumQuestion) and question.coding is not None:
        plan = question.coding.plan
        if not plan.draft:
            shapes = [
                s for each in question.statistics.values() for s in each.shapes(plan).values()
            ]
            return unknown // 16 + sum(8 * math.prod(each.shape) + 200 for each in shapes)
    return unknown


def decode_answer(request: Request, data: bytes) -> Any:
    """The answer to a request in some bytes of any source.

    Raises
    ------
    InputError
        If it is not of the type that was asked for, or has a number that no data can have.
    """
    value = codec.decode(request.question.answer_type, data)
    largest = largest_number(value)
    # the squares of larger numbers overflow: no column or cost of real data has them
    if largest > 1e150:
        raise InputError(f"an answer with a number of {largest:.3g}, which no data can have")
    return value


def largest_number(value: Any) -> float:
    """The magnitude of the largest finite number in a plain value."""
    match value:
        case np.ndarray():
            if value.dtype != np.float64:
                return 0.0
            sizes = np.abs(value[np.isfinite(value)])
            return float(sizes.max(initial=0.0))
        case bool() | str() | None:
            return 0.0
        case float():
            return abs(value) if np.isfinite(value) else 0.0
        case int():
            return float(abs(value))
        case Mapping():
            return max(map(largest_number, value.values()), default=0.0)
        case list() | tuple() | set() | frozenset():
            return max(map(largest_number, value), default=0.0)
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        return 0.0
    return max((largest_number(getattr(value, name)) for name in fields), default=0.0)


def _preparation() -> Any:
    """The type of what may prepare a client on the way to another question."""
    found: Any = None
    for question in ALLOWED.values():
        if question.prepares:
            found = question | found
    return found
