"""Every exchange of a client, written down before its reply leaves, and shown to its owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedsplit.remote.channel import Reply, Request
from fedsplit.remote.messages import Hello, with_log, write_reply
from fedsplit.sites.budget import Budget
from fedsplit.sites.events import Event
from fedsplit.sites.log.audit_log import AuditLog, NotLogged
from fedsplit.sites.log.entries import entry_of, sent_numbers
from fedsplit.sites.studies.approval import Approval
from fedsplit.sites.studies.proposal import Decision, Finish, Propose

NOT_LOGGED = "its log cannot be written, so that it answers nothing: its owner was told"


class ExchangeLog:
    """Writes replies down and shows them; without a line in the log there is no answer.

    Parameters
    ----------
    path : Path
        Of the log.
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
        settings: str,
        approval: Approval | None,
        budget: Budget,
        watch: Callable[[Event], object],
    ) -> None:
        self._log = AuditLog(path)
        self._settings = settings
        self._approval = approval
        self._budget = budget
        self._watch = watch
        # The last decision about each study that the log has.
        self._decisions: dict[str, Decision] = {}

    def sent(
        self, request: Request | None, message: bytes, reply: Reply, trouble: str, rows: str
    ) -> bytes:
        """The reply as it is sent, once it is on disk.

        Parameters
        ----------
        request : Request or None
            None where the message could not be read.
        message : bytes
            The question as it came.
        reply : Reply
        trouble : str
            What went wrong, for the owner alone.
        rows : str
            Which rows answered.
        """
        out = write_reply(reply)
        decision = reply.value if isinstance(reply.value, Decision) else None
        if decision is not None and self._decisions.get(decision.study) == decision:
            return out  # pending studies are asked about again and again: one line is enough
        entry = entry_of(request, message, reply, out, trouble)
        try:
            head = self._log.append({"settings": self._settings, "rows": rows, **entry})
        except NotLogged as error:
            self._watch(Event("trouble", f"nothing is answered: {error}"))
            return write_reply(Reply("failed", text=NOT_LOGGED))
        if decision is not None:
            self._decisions[decision.study] = decision
        self._show(request, reply, trouble)
        return with_log(out, *head)

    def _show(self, request: Request | None, reply: Reply, trouble: str) -> None:
        """Tell the owner what was just sent."""
        name = "something unreadable"
        if request is not None:
            name = request.question.name()
        if request is None or reply.outcome != "answer":
            self._watch(Event("refusal", f"{name}: {trouble or reply.text}"))
            return
        match request.question:
            case Finish(summary=summary):
                self._watch(Event("end", summary, request.study))
            case Propose():
                reason = f" ({reply.value.reason})" * bool(reply.value.reason)
                self._watch(Event("study", reply.value.state + reason, reply.value.study))
            case Hello():
                pass
            case _:
                asked = most = 0
                if self._approval is not None:
                    asked, most = self._approval.asked(request.study)
                text = f"{name}, {sent_numbers(reply.value):,} numbers"
                self._watch(Event("answer", text, request.study, asked, most, self._budget.left))
