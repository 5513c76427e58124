"""Clients elsewhere: the questions of the rounds, asked of cohorts over a channel.

They are asked together, or one by one, where the server waits for nobody but the next answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Mask
from fedsplit.channels.channel import SILENT, Channel, LocalChannel, PostingChannel, Reply, Request
from fedsplit.channels.cohort import Fingerprint, ProblemCohort, other_data, same_data
from fedsplit.channels.members import Check, Members
from fedsplit.clients.oracle import Clients, Incident, Posting
from fedsplit.clients.question import NOT_FINITE, Answer, CostQuestion, Question

ATTEMPTS = 3
"""How often a question is repeated to a client that loses what it was prepared with."""


class RemoteClients(Clients):
    """Clients that are asked over a channel, cohort by cohort, and may be absent.

    An answer that fails the question's check counts as none. A question that nobody answers is
    asked again.

    Parameters
    ----------
    members : Members
        Whom to ask.
    d : int
        The number of coordinates of x.
    preparations : dict of Question
        By cohort, the question that prepares it; its answer identifies the data.
    keys : dict of str
        By cohort, the name of what it is prepared with, which goes with every question.
    identified : dict, optional
        By cohort, what it would answer to its preparation, where that is known. The preparation
        then travels with the first question, and is asked by itself only if the cohort loses it.
    """

    def __init__(
        self,
        members: Members,
        d: int,
        preparations: dict[int, Question],
        keys: dict[int, str],
        identified: Mapping[int, Any] | None = None,
    ) -> None:
        self.d = d
        self.m = len(members.names)
        self.members = members
        self.free = members.channel.free
        self.recorded = members.channel.recorded
        self.keys = keys
        self._preparations = preparations
        self._insists = False
        self._identified: dict[int, Any] = dict(identified or {})
        self._prepared: set[int] = set()
        # whose preparation travels with the next question
        self._fresh: set[int] = set(self._identified)

    @property
    def names(self) -> Sequence[str] | None:  # type: ignore[override]  # None where they are here
        return None if self.members.patience is None else self.members.names

    @property
    def incidents(self) -> Sequence[Incident]:  # type: ignore[override]  # it grows
        return self.members.history.incidents

    def insistent(self) -> RemoteClients:
        other = copy(self)
        other._insists = True
        return other

    def without(self, names: Sequence[str]) -> RemoteClients:
        other = copy(self)
        other.members = self.members.without(names)
        other.m = len(other.members.names)
        return other

    def asynchronously(self) -> Posting:
        if self.members.patience is None or not isinstance(self.members.channel, PostingChannel):
            return super().asynchronously()
        return PostedClients(self, self.members.channel)

    def over(self, channel: Channel) -> RemoteClients:
        """The same clients over another channel."""
        other = copy(self)
        other.members = Members(channel, self.members.patience, self.members.names)
        other.recorded = channel.recorded
        other._identified = {}
        other._prepared = set()
        other._fresh = set()
        return other

    def prepare(self) -> None:
        """Prepare every cohort now."""
        self._fresh.clear()
        self.prepared(self.members.cohorts, insist=True)

    def ask(self, question: CostQuestion) -> Answer:
        return self.ask_some(question, np.ones(self.m, dtype=bool))

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        members = self.members
        insist = self._insists or question.everyone
        rows = self.rows_of(drawn)
        requests = self.requests(question, rows)

        def check(at: int, value: Any) -> str:
            return question.check(value, len(rows[at]), self.d)

        replies = self.ask_cohorts(requests, check, insist)
        if members.patience is None and len(replies) == 1 and drawn.all():
            [reply] = replies.values()
            answer: Answer = reply.value  # of this process, as it is
            return answer
        while not replies and members.patience is not None:
            # until somebody answers, or everybody is given up
            replies = self.ask_cohorts(requests, check, insist)
        return self.together(question, rows, replies)

    def requests(
        self, question: CostQuestion, rows: Mapping[int, NDArray[np.intp]]
    ) -> dict[int, Request]:
        """By cohort, the question to its clients with these rows."""
        return {
            at: Request(question.share(own), self.keys[at], self.m, places=self._places(at, own))
            for at, own in rows.items()
        }

    def ask_cohorts(
        self, requests: dict[int, Request], check: Check, insist: bool
    ) -> dict[int, Reply]:
        """Valid answers by cohort; cohorts that lost their preparation are prepared again."""
        found: dict[int, Reply] = {}
        waiting = requests
        for attempt in range(ATTEMPTS):
            ready = {at: self.carrying(at, waiting[at]) for at in self.prepared(waiting, insist)}
            replies: dict[int, Reply] = {}
            if ready:
                again = attempt < ATTEMPTS - 1
                replies = self.members.ask(ready, check, insist, pass_unprepared=again)
            lost = {at for at, reply in replies.items() if reply.outcome == "unprepared"}
            found |= {at: reply for at, reply in replies.items() if at not in lost}
            self.note_replies(replies)
            if not lost:
                break
            waiting = {at: requests[at] for at in replies if at in lost}
        return {at: found[at] for at in requests if at in found}

    def note_replies(self, replies: Mapping[int, Reply]) -> None:
        """Take note of what replies say about the cohorts' preparation."""
        lost = {at for at, reply in replies.items() if reply.outcome == "unprepared"}
        self.note_prepared(self._fresh & replies.keys())
        # in place, as -= with the keys of a dict is not: insistent copies share what is known
        self._fresh.difference_update(replies)
        self._prepared.update(replies.keys() - lost)
        self._prepared.difference_update(lost)

    def note_prepared(self, cohorts: Collection[int]) -> None:
        """Take note of the cohorts whose preparation has travelled with a question."""

    def rows_of(self, drawn: Mask) -> dict[int, NDArray[np.intp]]:
        """By cohort, the rows of an answer that its clients give, if any of them is drawn."""
        rows = {}
        end = 0
        for at, names in self.members.cohorts.items():
            own = end + np.flatnonzero(drawn[end : end + len(names)])
            if len(own):
                rows[at] = own
            end += len(names)
        return rows

    def _places(self, at: int, rows: NDArray[np.intp]) -> tuple[int, ...]:
        """The clients of a cohort with these rows, by their place in it; empty for all of them."""
        cohorts = self.members.cohorts
        if len(rows) == len(cohorts[at]):
            return ()
        before = sum(len(names) for other, names in cohorts.items() if other < at)
        return tuple((rows - before).tolist())

    def together(
        self,
        question: CostQuestion,
        rows: Mapping[int, NDArray[np.intp]],
        replies: Mapping[int, Reply],
    ) -> Answer:
        """The cohorts' answers as one; rows of clients that gave none are nan."""
        parts = question.unanswered(self.m, self.d)
        present = np.zeros(self.m, dtype=bool)
        seconds = np.full(self.m, np.nan)
        work = np.zeros((self.m, 3))
        for at, reply in replies.items():
            own = rows[at]
            for name, whole in parts.items():
                whole[own] = reply.value.parts[name]
            present[own] = True
            seconds[own] = reply.seconds
            work[own] = reply.value.work
        return Answer(parts, present, seconds, work)

    def prepared(self, cohorts: Iterable[int], insist: bool) -> list[int]:
        """Prepare those of the cohorts that are not; all that can be asked now."""
        requests = {
            at: Request(self._preparations[at])
            for at in cohorts
            if at not in self._prepared | self._fresh
        }
        replies: dict[int, Reply] = {}
        if requests:
            replies = self.members.ask(requests, self.members.check_length, insist)
        for at, reply in replies.items():
            if at in self._identified and not same_data(self._identified[at], reply.value):
                raise other_data(self.members.cohorts[at])
            self._identified[at] = reply.value
            self._prepared.add(at)
        return [at for at in cohorts if at in self._prepared | self._fresh]

    def carrying(self, at: int, request: Request) -> Request:
        """The request, with the cohort's preparation if it has not been sent yet."""
        if at not in self._fresh:
            return request
        return request._replace(preparation=self._preparations[at])


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

    ``ask`` waits for the answers to all that was posted, which ``collect`` then returns. A question
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
        # one reply alone does not show that the run diverges
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


def in_process(clients: Clients) -> RemoteClients:
    """Clients of this process, asked over a channel, so that answers can be recorded on the way."""
    cohort = ProblemCohort([str(j) for j in range(clients.m)], lambda m: clients)
    remote = RemoteClients(Members(LocalChannel(cohort)), clients.d, {0: Fingerprint()}, {0: ""})
    remote.hessians = clients.hessians
    return remote
