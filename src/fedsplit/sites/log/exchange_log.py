"""Every exchange of a client, written down before its reply leaves, and shown to its owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedsplit.remote.messages import Hello, Identity, with_log, write_reply
from fedsplit.sites.budget import Budget, DayCount
from fedsplit.sites.events import Event
from fedsplit.sites.log.audit_log import AuditLog
from fedsplit.sites.log.entries import Exchange, entry_of, sent_numbers
from fedsplit.sites.studies.approval import Approval
from fedsplit.sites.studies.proposal import Decision, Finish, Propose, ShareKeys

NOT_LOGGED = (
    "cannot write its log or its other files and therefore does not answer; its owner has been "
    "notified"
)
"""All that a server is told of such a failure, whatever was asked: it must say nothing else."""

UNANSWERED_LINES = 1_000
"""Lines per day for what is answered without data, or not at all, so that they fill no disk."""

LAST_LINE = "the last such line of this day: what else is refused today is not logged"


class ExchangeLog:
    """Writes replies down and shows them; without a line in the log there is no answer.

    Parameters
    ----------
    path : Path
        Of the log.
    folder : Path
        Of the client.
    settings : str
        The name of the client's settings, which its answers depend on.
    approval : Approval or None
        Whose counts are shown.
    budget : Budget
        What is left of it is shown, too.
    watch : callable
        Called with an ``Event`` for the owner.
    """

    def __init__(
        self,
        path: Path,
        folder: Path,
        settings: str,
        approval: Approval | None,
        budget: Budget,
        watch: Callable[[Event], object],
    ) -> None:
        self._log = AuditLog(path)
        self._settings = settings
        self._unanswered = DayCount(folder / "unanswered")
        self._approval = approval
        self._budget = budget
        self._watch = watch
        # The last decision about each study that the log has.
        self._decisions: dict[str, Decision] = {}

    def sent(self, exchange: Exchange, rows: str) -> bytes:
        """The reply as it is sent, once it is on disk.

        Parameters
        ----------
        exchange : Exchange
        rows : str
            Which rows answered.

        Raises
        ------
        NotLogged, OSError
            If it cannot be written: then it must not be sent.
        """
        reply = exchange.reply
        out = write_reply(reply)
        decision = reply.value if isinstance(reply.value, Decision) else None
        if decision is not None and self._decisions.get(decision.study) == decision:
            # Pending studies are asked about again and again: one line is enough.
            return with_log(out, *self._log.head)
        entry = {"settings": self._settings, "rows": rows, **entry_of(exchange, out)}
        if reply.outcome != "answer" or isinstance(reply.value, Decision | Identity):
            done = self._unanswered.number
            if done >= UNANSWERED_LINES:
                return out
            if done == UNANSWERED_LINES - 1:
                entry["note"] = LAST_LINE
            self._unanswered.add()
        head = self._log.append(entry)
        if decision is not None:
            self._decisions[decision.study] = decision
        self._show(exchange)
        return with_log(out, *head)

    def _show(self, exchange: Exchange) -> None:
        """Tell the owner what was just sent."""
        request, _, reply, trouble = exchange
        name = "something unreadable"
        if request is not None:
            singles = request.question.singles()
            name = " and ".join(title for each in singles for title in each.titles)
        if request is None or reply.outcome != "answer":
            self._watch(Event("refusal", f"{name}: {trouble or reply.text}"))
            return
        match request.question:
            case Finish(summary=summary):
                self._watch(Event("end", summary, request.study))
            case Propose():
                self._watch(Event("study", self._state(reply.value), reply.value.study))
            case Hello() | ShareKeys():
                pass
            case _:
                asked = most = 0
                if self._approval is not None:
                    asked, most = self._approval.asked(request.study)
                text = f"{name}, {sent_numbers(reply.value):,} numbers"
                left, limit = self._budget.left, self._budget.limit
                self._watch(Event("answer", text, request.study, asked, most, left, limit))

    def _state(self, decision: Decision) -> str:
        """What was decided about a study, with all that its owner may know."""
        reason = decision.reason
        if self._approval is not None:
            reason = self._approval.details(decision.study) or reason
        if not reason:
            return decision.state
        return f"{decision.state} ({reason})"
