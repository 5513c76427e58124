"""Clients elsewhere that are asked one by one: the server waits for nobody but the next answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Mask
from fedsplit.channels.channel import SILENT, PostingChannel, Reply, Request
from fedsplit.clients.oracle import Clients, Incident
from fedsplit.clients.question import NOT_FINITE, Answer, CostQuestion

if TYPE_CHECKING:  # which offers these clients itself
    from fedsplit.channels.clients import RemoteClients

ATTEMPTS = 3
"""How often a question is repeated to a client that loses what it was prepared with."""


@dataclass
class Posted:
    """A question on its way to a cohort.

    Attributes
    ----------
    question : CostQuestion
    rows : array of int
        The clients of the cohort that it is for.
    request : Request
    due : float
        When it is to be sent, or, once it was, is taken for lost.
    since : float
        When it was sent.
    sent : bool
    attempts : int
        How often it was sent.
    not_finite : Reply or None
        The last reply, if its numbers are not finite.
    """

    question: CostQuestion
    rows: NDArray[np.intp]
    request: Request
    due: float
    since: float = 0.0
    sent: bool = False
    attempts: int = 0
    not_finite: Reply | None = None


class PostedClients(Clients):
    """Clients over a channel, of whom each has one question at a time, or none.

    ``ask`` waits for the answers to all that was posted, and keeps them for ``collect``. A question
    that is lost is sent again; a client that does not answer for too long is given up.

    Parameters
    ----------
    clients : RemoteClients
    channel : PostingChannel
        Theirs.
    """

    def __init__(self, clients: RemoteClients, channel: PostingChannel) -> None:
        self._clients = clients
        self._channel = channel
        self.m = clients.m
        self.d = clients.d
        self.names = clients.names
        self.recorded = True
        self.free = False
        self.hessians = clients.hessians
        self._posted: dict[int, Posted] = {}  # by cohort
        self._arrived: deque[tuple[CostQuestion, Answer]] = deque()

    @property
    def incidents(self) -> Sequence[Incident]:  # type: ignore[override]  # it grows
        return self._clients.incidents

    @property
    def idle(self) -> Mask:
        """Who has nothing to do; those who share a cohort are asked together."""
        free = np.ones(self.m, dtype=bool)
        end = 0
        for at, names in self._clients.members.cohorts.items():
            free[end : end + len(names)] = at not in self._posted
            end += len(names)
        for _, answer in self._arrived:
            free &= ~answer.present
        return free

    def insistent(self) -> Clients:
        return self

    def ask(self, question: CostQuestion) -> Answer:
        return self.ask_some(question, np.ones(self.m, dtype=bool))

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        while self._posted:
            self._wait()
        return self._clients.ask_some(question, drawn)

    def post(self, question: CostQuestion, to: Mask) -> None:
        rows = self._clients.rows_of(to)
        now = self._clients.members.channel.now()
        for at, request in self._clients.requests(question, rows).items():
            self._posted[at] = Posted(question, rows[at], request, now)
        self._send(rows)

    def collect(self) -> tuple[CostQuestion, Answer]:
        while not self._arrived:
            self._wait()
        return self._arrived.popleft()

    def _send(self, cohorts: Iterable[int]) -> None:
        """Send what is posted to these cohorts, prepared first where they have to be."""
        members = self._clients.members
        patience = members.patience
        assert patience is not None  # clients elsewhere may be absent
        members.history.asked += 1
        ready = self._clients.prepared(cohorts, insist=True)
        now = members.channel.now()
        requests = {}
        for at in ready:
            posted = self._posted[at]
            posted.sent = True
            posted.attempts += 1
            posted.since = now
            posted.due = now + patience.longest
            requests[at] = self._clients.carrying(at, posted.request)
        self._channel.post(requests)

    def _wait(self) -> None:
        """Wait until something arrives, is lost, or is to be sent again."""
        channel = self._clients.members.channel
        posted = self._posted
        now = channel.now()
        again = [at for at, each in posted.items() if not each.sent and each.due <= now]
        if again:
            self._send(again)
        left = max(0.0, min(each.due for each in posted.values()) - now)
        if not any(each.sent for each in posted.values()):
            channel.wait(left)
            return
        replies = self._channel.collect(left)
        now = channel.now()
        lost = {at: SILENT for at, each in posted.items() if each.sent and each.due <= now}
        valid: dict[int, Reply] = {}
        for at, reply in (lost | replies).items():
            if at in posted and self._is_valid(at, reply):
                valid[at] = reply
        if all(each.not_finite for each in posted.values()) and len(posted) == len(
            self._clients.members.cohorts
        ):  # the run diverges, and no client is to blame
            valid = {at: each.not_finite for at, each in posted.items() if each.not_finite}
        self._take(valid)

    def _is_valid(self, at: int, reply: Reply) -> bool:
        """Whether a reply is the cohort's answer; otherwise the question is sent again."""
        members = self._clients.members
        patience = members.patience
        assert patience is not None
        posted = self._posted[at]
        posted.sent = False

        def check(_: int, value: Any) -> str:
            what = posted.question.check(value, len(posted.rows), self.d)
            posted.not_finite = reply if what == NOT_FINITE else None
            return what

        request = {at: posted.request}
        again = posted.attempts < ATTEMPTS
        # one reply alone does not tell whether the run diverges
        of = len(members.cohorts) + 1
        valid = members.judge(patience, request, {at: reply}, check, posted.since, again, of)
        if not valid:
            posted.due = posted.since + patience.pace
            return False
        self._clients.note_replies({at: reply})
        if reply.outcome == "unprepared":
            posted.due = members.channel.now()
            return False
        return True

    def _take(self, replies: Mapping[int, Reply]) -> None:
        """Keep the answers for ``collect``: those to one question together."""
        done = {at: self._posted.pop(at) for at in replies}
        questions = {id(each.question): each.question for each in done.values()}
        for question in questions.values():
            rows = {at: each.rows for at, each in done.items() if each.question is question}
            found = {at: replies[at] for at in rows}
            self._arrived.append((question, self._clients.together(question, rows, found)))
