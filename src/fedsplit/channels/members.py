"""Who takes part in a run: who answers, who is absent, who is removed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsplit.channels.channel import SILENT, Channel, Reply, Request
from fedsplit.channels.patience import Patience
from fedsplit.clients.oracle import Incident, Removed
from fedsplit.clients.question import NOT_FINITE
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.loop.trace import Row
from fedsplit.texts import attributed

Check = Callable[[int, Any], str]
"""``check(cohort, value)`` says what is wrong with an answer; an empty text if nothing is."""


@dataclass
class History:
    """What happened so far in a run, whoever takes part in it now.

    Attributes
    ----------
    incidents : list of Incident
        In order.
    removed : dict of str
        The clients that were given up, each with the reason.
    asked : int
        How many questions were asked.
    absent_since : dict of float
        By cohort, since when it has not answered.
    exchanges : list of Row
        What was asked beside the rounds, and what travelled with their questions. A question that
        has to be repeated counts once.
    """

    incidents: list[Incident] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    absent_since: dict[int, float] = field(default_factory=dict)
    exchanges: list[Row] = field(default_factory=list)


class Members:
    """The cohorts that take part, over a channel.

    Parameters
    ----------
    channel : Channel
    patience : Patience, optional
        None for cohorts in this process: all of them answer, and their answers need no check.
    names : sequence of str, optional
        The clients that take part; all where None.
    history : History, optional
        Of the run so far.
    summed : sequence of str
        The clients that one stands for, if their answers are added up.

    Attributes
    ----------
    cohorts : dict of tuple of str
        By number in the channel, the clients of each cohort that take part.
    names : list of str
        All of them, in the order of the channel.
    """

    def __init__(
        self,
        channel: Channel,
        patience: Patience | None = None,
        names: Sequence[str] | None = None,
        history: History | None = None,
        summed: Sequence[str] = (),
    ) -> None:
        self.channel = channel
        self.patience = patience
        self.summed = tuple(summed)
        self.history = history or History()
        self.cohorts: dict[int, tuple[str, ...]] = {}
        for at, cohort in enumerate(channel.names):
            present = tuple(name for name in cohort if names is None or name in names)
            if present:
                self.cohorts[at] = present
        self.names = [name for cohort in self.cohorts.values() for name in cohort]

    def only(self, names: Sequence[str]) -> Members:
        """These clients alone."""
        return Members(self.channel, self.patience, names, self.history, self.summed)

    def without(self, names: Sequence[str]) -> Members:
        """All the others."""
        left = self.only([name for name in self.names if name not in names])
        left.summed = tuple(name for name in self.summed if name not in names)
        return left

    def check_length(self, at: int, value: Any) -> str:
        """Check that an answer has one entry for each client of the cohort."""
        if isinstance(value, np.ndarray | list) and len(value) == len(self.cohorts[at]):
            return ""
        return f"an answer of the wrong type, {type(value).__name__}"

    def ask(
        self,
        requests: Mapping[int, Request],
        check: Check,
        insist: bool = False,
        pass_unprepared: bool = False,
    ) -> dict[int, Reply]:
        """Valid answers by cohort.

        Cohorts without one in time are left out; with ``insist`` they are asked until they give
        one. An unprepared cohort counts as absent, unless ``pass_unprepared``.

        Raises
        ------
        Removed
            When clients have been absent for too long.
        """
        if self.patience is None:
            return self._ask_here(requests)
        timeout = self.patience.round_timeout
        if insist:
            timeout = self.patience.longest
        of = len(requests)
        found = self._ask_once(self.patience, requests, check, timeout, pass_unprepared, of)
        while insist and len(found) < len(requests):
            self.channel.wait(0.25)  # seconds between attempts
            missing = {at: request for at, request in requests.items() if at not in found}
            found |= self._ask_once(self.patience, missing, check, timeout, pass_unprepared, of)
        return {at: found[at] for at in requests if at in found}

    def _ask_here(self, requests: Mapping[int, Request]) -> dict[int, Reply]:
        """The replies of cohorts in this process, whose failures are the caller's."""
        replies = self.channel.ask(requests, math.inf)
        for reply in replies.values():
            if reply.outcome not in ("answer", "unprepared"):
                raise InputError(reply.text)
        return replies

    def _ask_once(
        self,
        patience: Patience,
        requests: Mapping[int, Request],
        check: Check,
        timeout: float,
        pass_unprepared: bool,
        of: int,
    ) -> dict[int, Reply]:
        """Ask, and note who did not answer and since when."""
        began = self.channel.now()
        self.history.asked += 1
        replies = dict.fromkeys(requests, SILENT) | self.channel.ask(requests, timeout)
        valid = self.judge(patience, requests, replies, check, began, pass_unprepared, of)
        if len(valid) < len(requests):
            self.channel.wait(max(0.0, began + patience.pace - self.channel.now()))
        return valid

    def judge(
        self,
        patience: Patience,
        requests: Mapping[int, Request],
        replies: Mapping[int, Reply],
        check: Check,
        began: float,
        pass_unprepared: bool,
        of: int,
    ) -> dict[int, Reply]:
        """Those of the replies that are valid; notes who did not answer, and since when.

        ``of`` is the number of cohorts that were asked the question.
        """
        self._part_with(patience, {at: replies[at] for at in requests})
        wrong = self._wrong(requests, replies, check, pass_unprepared, of)
        self._note(requests, replies, wrong, began)
        if wrong:
            self._give_up(patience)
        return {at: replies[at] for at in requests if at not in wrong}

    def _wrong(
        self,
        requests: Mapping[int, Request],
        replies: Mapping[int, Reply],
        check: Check,
        pass_unprepared: bool,
        of: int,
    ) -> dict[int, str]:
        """By cohort, what is wrong with its reply."""
        wrong = {}
        for at in requests:
            if what := _wrong(at, replies[at], check, pass_unprepared):
                wrong[at] = what
        several = of > 1 or of == len(self.cohorts)  # one of many is to blame itself
        if several and len(wrong) == of and set(wrong.values()) == {NOT_FINITE}:
            return {}  # the run diverges, and no client is to blame
        return wrong

    def _note(
        self,
        requests: Mapping[int, Request],
        replies: Mapping[int, Reply],
        wrong: Mapping[int, str],
        began: float,
    ) -> None:
        """Note who did not answer as it should, since when, and who is back."""
        history = self.history
        for at, request in requests.items():
            if at in wrong:
                line = " ".join(wrong[at][:300].split())  # one line, however long the text is
                for name in self.cohorts[at]:
                    history.incidents.append(Incident(history.asked, name, line))
                history.absent_since.setdefault(at, began)
            elif replies[at].outcome == "answer" and not request.question.prepares:
                history.absent_since.pop(at, None)

    def _part_with(self, patience: Patience, replies: Mapping[int, Reply]) -> None:
        """Go on without clients that refuse, if enough are left; otherwise a refusal ends the run.

        Whose refusal it is depends on where it came from, not on what its text claims.
        """
        history = self.history
        refused: dict[str, str] = {}
        for at, reply in replies.items():
            if reply.outcome == "refused":
                refused |= dict.fromkeys(self.cohorts[at], self._attributed(at, reply.text))
        if not refused:
            return
        needed = patience.min_clients
        if needed is None or len(self.names) - len(refused) < max(1, needed):
            raise InputError(next(iter(refused.values())))
        for name, text in refused.items():
            what = text.removeprefix(f"client {name}: ")
            history.incidents.append(Incident(history.asked, name, f"refused: {what}"))
            history.removed[name] = f"refused: {what}"
        for at in self.cohorts:
            if not set(self.cohorts[at]).isdisjoint(refused):
                history.absent_since.pop(at, None)
        raise Removed(list(refused))

    def _attributed(self, at: int, text: str) -> str:
        """The text of a refusal in one line, beginning with the client that it came from."""
        names = self.cohorts[at]
        if self.summed or len(names) > 1:  # several clients name themselves
            return " ".join(text[:500].split())
        return attributed(names[0], text)

    def _give_up(self, patience: Patience) -> None:
        """Remove clients that have been absent for too long, if enough are left."""
        history = self.history
        now = self.channel.now()
        gone = [
            at for at in self.cohorts if now - history.absent_since.get(at, now) >= patience.give_up
        ]
        names = [name for at in gone for name in self.cohorts[at]]
        if not names:
            return
        left = len(self.names) - len(names)
        needed = patience.min_clients
        if needed is None:
            needed = len(self.names)
        last = {incident.client: incident.what for incident in history.incidents}
        if self.summed:
            raise TooFewClients(
                f"{last[names[0]]}: nothing came for {patience.give_up:g} seconds, and secure sums "
                "are of all clients: start it again, and resume the run"
            )
        if left < max(1, needed):
            why = listed(f"{name} ({last[name]})" for name in names)
            raise TooFewClients(
                f"client {why}: absent for {patience.give_up:g} seconds. {left} clients are left "
                f"and {needed} are needed: start it again, or lower min_clients"
            )
        history.removed |= {name: last[name] for name in names}
        for at in gone:
            del history.absent_since[at]
        raise Removed(names)


def _wrong(at: int, reply: Reply, check: Check, pass_unprepared: bool) -> str:
    """What is wrong with a reply; an empty text if nothing is."""
    if reply.outcome == "answer":
        return check(at, reply.value)
    if reply.outcome == "unprepared":
        return "" if pass_unprepared else "it lost what it was prepared with"
    if reply.text:
        return reply.text
    return "it failed" if reply.outcome == "failed" else SILENT.text
