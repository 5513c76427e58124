"""Clients whose answers are added up before the server sees them: one client to all who ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsplit import fixed_point
from fedsplit.channels.channel import SILENT, Channel, Reply, Request
from fedsplit.clients.question import Question
from fedsplit.errors import InputError
from fedsplit.fixed_point import LIMBS
from fedsplit.sums import Total

FEWEST = 3
"""Of two clients each would see the other's numbers in a sum."""

MOST = 512
"""Fixed point has headroom for this many summands."""


class SummedChannel:
    """The clients of a channel as one, whose cost is the sum of theirs and whose rows are all.

    Every question goes to all of them. Each answers by numbers in fixed point, which are added up;
    the sum is the answer of the one client.

    Parameters
    ----------
    channel : Channel
        Whose clients may become fewer.
    """

    free = False  # every sum discloses something
    recorded = True

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        # the last request, with the replies of the cohorts that have answered it
        self._answered: tuple[Request, dict[int, Reply]] | None = None
        if not FEWEST <= len(self.clients) <= MOST:
            raise InputError(
                f"secure sums are for {FEWEST} to {MOST} clients, not {len(self.clients)}"
            )

    @property
    def clients(self) -> list[str]:
        """Those that it stands for."""
        return [name for names in self.channel.names for name in names]

    @property
    def names(self) -> Sequence[Sequence[str]]:
        return [["all clients"]]

    def now(self) -> float:
        return self.channel.now()

    def wait(self, seconds: float) -> None:
        self.channel.wait(seconds)

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        return {at: self._asked(request, timeout) for at, request in requests.items()}

    def _asked(self, request: Request, timeout: float) -> Reply:
        """The reply of the one client: the sum, or that of a client that did not answer."""
        question = request.question
        if not question.summable:
            raise InputError(
                f"secure sums: {question.name()} asks for the answers of single clients, and the "
                "server sees sums alone: use the method information, without what needs them"
            )
        m = len(self.clients)
        asked = request._replace(question=question.for_sums(m), m=m, sums=True)
        replies: dict[int, Reply] = {}
        if self._answered is not None and _is_same(self._answered[0], request):
            replies = self._answered[1]
        waiting = [at for at in range(len(self.channel.names)) if at not in replies]
        found = dict.fromkeys(waiting, SILENT)
        found |= self.channel.ask(dict.fromkeys(waiting, asked), timeout)
        replies |= {at: reply for at, reply in found.items() if reply.outcome == "answer"}
        others = [reply for reply in found.values() if reply.outcome != "answer"]
        self._answered = None
        if others:
            # these are asked again, and the others' answers stay
            if all(reply.outcome in ("failed", "silent") for reply in others):
                self._answered = request, replies
            return _worst(others)
        seconds = max(reply.seconds for reply in replies.values())
        values = [replies[at].value for at in sorted(replies)]
        return Reply("answer", _read(asked.question, values, m), seconds=seconds)


def _is_same(before: Request, request: Request) -> bool:
    """Whether a request is asked again: the very same question, with the same preparation."""
    return (
        before.question is request.question
        and before.preparation is request.preparation
        and (before.key, before.m) == (request.key, request.m)
    )


def _worst(replies: Sequence[Reply]) -> Reply:
    """What is to be said of clients that have not answered: what ends the exchange, or all."""
    for outcome in ("refused", "unprepared"):
        for reply in replies:
            if reply.outcome == outcome:
                return reply
    return replies[0]._replace(text="; ".join(dict.fromkeys(reply.text for reply in replies)))


def _read(question: Question, values: Sequence[Any], m: int) -> Any:
    """The answer of the one client from what the cohorts added."""
    shapes = {np.shape(value) for value in values}
    kinds = {getattr(value, "dtype", None) for value in values}
    if len(shapes) > 1 or kinds != {np.dtype(np.uint64)} or values[0].shape[1:] != (LIMBS,):
        raise InputError("secure sums: the clients' answers are of different lengths or kinds")
    total = Total(fixed_point.total(values, len(values[0])), m)
    found = question.of_total(total)
    total.end()
    return found
