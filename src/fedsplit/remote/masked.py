"""The way to clients that mask their answers: the server can read nothing but their sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedsplit.channels.channel import Channel, Reply, Request, Step
from fedsplit.errors import InputError
from fedsplit.fixed_point import LIMBS
from fedsplit.remote.messages import content_digest


class Removal(NamedTuple):
    """When a run goes on without a client.

    Attributes
    ----------
    willing : collection of str
        The clients whose owners allow that; the others refuse a sum without anybody else.
    give_up : float
        Seconds after which an absent client is left out.
    least : int
        The fewest clients that are added.
    """

    willing: Collection[str] = ()
    give_up: float = 0.0
    least: int = 0


WAITS = Removal()
"""A run without an absent client does not go on."""


class MaskedChannel:
    """A channel to clients whose answers are masked, which numbers the exchanges.

    A question that is asked again, because some have not answered it, keeps its number: a client
    sends the same bytes again, and would refuse anything else.

    Parameters
    ----------
    channel : Channel
        To the clients, one per cohort.
    number : int
        Of the last exchange that any of them has answered.
    members : sequence of str
        The clients whose answers are added: all, or those that are left.
    removal : Removal
    note : callable
        Called with the number and the clients of every new exchange before it begins: one that is
        resumed must not have the number of another.
    """

    free = False
    recorded = True

    def __init__(
        self,
        channel: Channel,
        number: int = 0,
        members: Sequence[str] = (),
        removal: Removal = WAITS,
        note: Callable[[int, tuple[str, ...]], object] = lambda number, members: None,
    ) -> None:
        self._channel = channel
        # By client, its cohort; also of those that have left.
        self._places = {names[0]: at for at, names in enumerate(channel.names)}
        self._members = sorted(members or self._places)
        self._removal = removal
        self._note = note
        self._number = number
        self._digest = ""
        # By client, since when it has not answered.
        self._absent: dict[str, float] = {}

    @property
    def names(self) -> Sequence[Sequence[str]]:
        return [[name] for name in self._members]

    @property
    def everyone(self) -> list[str]:
        """All clients of the run, also those that have left."""
        return list(self._places)

    def now(self) -> float:
        return self._channel.now()

    def wait(self, seconds: float) -> None:
        self._channel.wait(seconds)

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        asked = {self._members[at]: request for at, request in requests.items()}
        step = self._step(asked.values())
        began = self.now()
        found = self._channel.ask(
            {self._places[name]: each._replace(step=step) for name, each in asked.items()},
            timeout,
        )
        replies = {name: _read(name, found[self._places[name]]) for name in asked}
        gone = self._gone(replies, began)
        if gone:
            why = "\n".join(f"{name}: {replies[name].text}" for name in gone)
            self._members = [name for name in self._members if name not in gone]
            self._digest = ""  # whatever comes next is another sum
            return dict.fromkeys(requests, Reply("removed", text=why))
        return {at: replies[name] for at, name in zip(requests, asked, strict=True)}

    def _step(self, requests: Iterable[Request]) -> Step:
        """The step of a question, which is the same for all."""
        digests = {content_digest(each) for each in requests}
        if len(digests) != 1:
            raise InputError("secure sums: every client has to be asked the same question")
        [digest] = digests
        if digest != self._digest:
            self._digest = digest
            self._number += 1
            self._note(self._number, tuple(self._members))
        return Step(self._number, tuple(self._members))

    def _gone(self, replies: Mapping[str, Reply], began: float) -> list[str]:
        """The clients that the run goes on without from now on."""
        for name, reply in replies.items():
            if reply.outcome in ("answer", "unprepared"):
                self._absent.pop(name, None)
            else:
                self._absent.setdefault(name, began)
        refused = [name for name, reply in replies.items() if reply.outcome == "refused"]
        late = self.now() - self._removal.give_up
        gone = {*refused, *(name for name, since in self._absent.items() if since <= late)}
        left = len(self._members) - len(gone)
        if not gone <= set(self._removal.willing) or left < self._removal.least:
            return []
        for name in gone:
            self._absent.pop(name, None)
        return sorted(gone)


def clients_of_run(channel: Channel) -> list[str]:
    """The clients with which a run began, whether it is resumed or not."""
    match channel:
        case MaskedChannel():
            return channel.everyone
    return [name for names in channel.names for name in names]


def _read(name: str, reply: Reply) -> Reply:
    """A reply with the client's numbers, (n, 4); one that has none is a failure of this client."""
    if reply.outcome != "answer":
        if reply.outcome in ("failed", "silent"):
            return reply._replace(text=f"{name}: {reply.text}")
        return reply
    bits = reply.value
    if bits.ndim != 2 or bits.shape[1] != LIMBS:
        return Reply("failed", text=f"{name}: masked numbers of the shape {bits.shape}")
    log = ""
    if reply.log:
        log = f"{name} {reply.log}"
    return reply._replace(value=bits.view(np.uint64), log=log)
