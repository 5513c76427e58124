"""Readable copies of answers, for the owner of the data: every number of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsplit import fixed_point
from fedsplit.clients.question import Answer, Question
from fedsplit.errors import InputError
from fedsplit.federation.messages import JOINING, Response
from fedsplit.federation.questions import decode_answer, decode_request
from fedsplit.fixed_point import Limbs
from fedsplit.sums import Total

if TYPE_CHECKING:
    from fedsplit.federation.site.site import Site


def readable(site: Site, response: Response) -> str:
    """A response in words and numbers."""
    state = site.record.study(response.study)
    lines = [f"answer of {site.policy.name} in exchange {response.number}"]
    if state is not None:
        lines.append(f"study {state.study.hash}: {state.study.title}")
    if response.outcome != "answer" or state is None:
        return "\n".join([*lines, f"{response.outcome}: {response.reason}"]) + "\n"
    if response.head is not None:
        lines.append(f"entry {response.head.number} of the log: {response.head.hash.hex()}")
    sent = site.record.sent(response.study, response.number)
    if response.number == JOINING or sent is None:
        ended = state.decision == "ended"
        what = site.record.reason(state) if ended else "takes part in the study"
        return "\n".join([*lines, what]) + "\n"
    request = decode_request(sent.question)
    lines += ["", *request.question.titles]
    if not state.study.secure:
        lines += _lines(decode_answer(request, sent.value), "  ")
        return "\n".join(lines) + "\n"
    plain = site.unmasked(state, sent)
    masked = (
        "before it is masked: the coordinator and the members can read the sum over all sites alone"
    )
    lines += [f"  {masked}", *_lines(_summand(request.question, plain), "  ")]
    lines += _lines({"all of it, as numbers": fixed_point.decode(plain)}, "  ")
    return "\n".join(lines) + "\n"


def _summand(question: Question, numbers: Limbs) -> Any:
    """What a site adds to a sum, as the answer that it is; empty if it is none alone."""
    try:
        with np.errstate(all="ignore"):
            return question.of_total(Total(numbers, 1))
    except (InputError, ValueError, ArithmeticError):
        return {}


def _lines(value: Any, indent: str) -> Iterator[str]:
    """A value as lines: an item each, arrays with all of their numbers."""
    parts = _parts(value)
    if parts is None:
        text = str(value)
        if isinstance(value, list | tuple | frozenset):
            text = ", ".join(map(str, value))
        if isinstance(value, np.ndarray):
            text = np.array2string(
                value, max_line_width=100, threshold=sys.maxsize, floatmode="unique"
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
