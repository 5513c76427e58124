"""Questions that nobody chooses: a site works out for itself which one must come next.

In a secure study all members receive the signed contributions to every exchange. Each adds them up
(only the sum is revealed), runs the study's analysis on the sums so far, and answers the question
that the analysis asks next. The question that the coordinator sends along is compared with it:
points and coordinates are rounded before they are used, so that on other processors the same
question has the same numbers, or numbers next to them on that grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedsplit import fixed_point
from fedsplit.channels.channel import Request
from fedsplit.errors import InputError, RequestError, StateError
from fedsplit.federation import masks
from fedsplit.federation.channel import NextQuestion, TranscriptChannel
from fedsplit.federation.messages import JOINING, Inquiry, read_response
from fedsplit.federation.questions import decode_request
from fedsplit.federation.site.record import LOG_SHORT, Record
from fedsplit.federation.study import Study


def next_step(record: Record, study: Study, name: str, inquiry: Inquiry) -> tuple[Request, bytes]:
    """Enter the contributions to the last exchange, and return the question that comes next.

    With it comes the hash of all exchanges before it.
    """
    known = record.transcript(study.digest)
    if inquiry.number != len(known) + 1:
        raise RequestError(f"exchange {inquiry.number} is not the next one")
    last = inquiry.number - 1
    before = known[-1][0] if known else study.digest
    values = masks.read_posts(study, last, before, inquiry.posts)
    own = record.sent(study.digest, last)
    post = inquiry.posts[list(study.members).index(name)]
    mine = read_response(bytes.fromhex(study.members[name]), post)
    if own is None or mine.head != own.head or mine.value != own.value:
        # It is signed by this site's own key, so that it was sent from here.
        raise StateError(LOG_SHORT)
    total = b""
    if last == JOINING:
        record.keep_partners(study.digest, dict(zip(study.members, values, strict=True)))
    else:
        total = fixed_point.to_bytes(masks.total(values))
    after = masks.extended(before, inquiry.posts)
    record.extend_transcript(study.digest, last, after, total)
    # From here on the site knows what the coordinator knows, and does what it does.
    totals = [fixed_point.from_bytes(each) for _, each in known[1:]]
    if last != JOINING:
        totals.append(fixed_point.from_bytes(total))
    channel = TranscriptChannel(study, totals)
    next_request = _next_request(study, channel)
    asked = decode_request(inquiry.question)
    # Hashes of rounded coordinates differ between processors. What they tell apart does not.
    names = [decode_request(each).key for each in record.questions(study.digest)]
    same = [each == next_request.key for each in ("", *channel.keys)]
    if same != [each == asked.key for each in ("", *names)] or not agrees(
        next_request._replace(key=""), asked._replace(key="")
    ):
        raise RequestError("the analysis of the study asks another question here")
    return asked, after


def _next_request(study: Study, channel: TranscriptChannel) -> Request:
    """What the analysis asks after the sums of a channel."""
    try:
        study.analysis.run(channel, secure=True)
    except NextQuestion as asked:
        return asked.request
    except InputError as error:
        raise RequestError(f"the analysis of the study ends here: {error}") from None
    raise RequestError("the analysis of the study has ended")


def agrees(own: Any, other: Any) -> bool:
    """Whether two questions are the same, up to the rounding of different processors."""
    if type(own) is not type(other):
        # what came in a message has lists where the program has tuples, and the like
        alike = isinstance(own, list | tuple) and isinstance(other, list | tuple)
        if not alike and not (isinstance(own, int | float) and isinstance(other, int | float)):
            return False
    # other processors round to neighbours, this far apart relative to the largest
    grid = 2.0**-38
    match own:
        case np.ndarray():
            if own.shape != other.shape or own.dtype != other.dtype:
                return False
            if own.dtype != np.float64:
                return bool(np.array_equal(own, other))
            # a number that is infinite, or none, has no neighbours
            finite = np.isfinite(own)
            scale = float(np.max(np.abs(own[finite]), initial=0.0))
            near = np.abs(own[finite] - other[finite]) <= grid * scale
            return bool(np.all(near)) and np.array_equal(own[~finite], other[~finite], True)
        case float():
            return agrees(np.array([own]), np.array([other], dtype=np.float64))
        case Mapping():
            return list(own) == list(other) and all(agrees(own[key], other[key]) for key in own)
        case list() | tuple():
            same = len(own) == len(other)
            return same and all(agrees(a, b) for a, b in zip(own, other, strict=True))
    if is_dataclass(own):
        return all(agrees(getattr(own, f.name), getattr(other, f.name)) for f in fields(own))
    return bool(own == other)
