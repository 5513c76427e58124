"""What a client replies to a question in a file, once its owner has approved the study."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import typer

from fedsplit.commands.approving import decided_at_terminal
from fedsplit.errors import InputError
from fedsplit.sites.studies.hashes import short
from fedsplit.sites.studies.store import Studies

if TYPE_CHECKING:
    from fedsplit.sites.letters.correspondence import Correspondence
    from fedsplit.sites.service import Site


class Owner(NamedTuple):
    """Who decides what a client answers.

    Attributes
    ----------
    site : Site
        The client.
    studies : Studies
        Those that were proposed to it.
    prompted : bool
        Whether the owner is asked at this terminal.
    """

    site: Site
    studies: Studies
    prompted: bool

    def renew(self, course: Correspondence) -> None:
        """Approve a study again whose approval has expired since its first question."""
        if course.proposes or self.studies.state(course.study) != "pending":
            return
        proposal = course.proposal(self.studies.signature(course.study))
        if _state(self.site.reply(proposal)) == "pending":
            self.decide(course.study)

    def replies(self, course: Correspondence) -> list[bytes]:
        """The replies to the messages of a question, up to a study that is not approved."""
        replies: list[bytes] = []
        for i, message in enumerate(course.messages):
            if i or not course.proposes:
                course.check_columns(self.site.columns)
            reply = self.site.reply(message)
            if reply.startswith(b"failed"):
                raise InputError("nothing was answered, see above")
            if i == 0 and course.proposes:
                if _state(reply) == "pending":
                    self.decide(course.study)
                    reply = self.site.reply(message)
                if _state(reply) != "approved":
                    return [reply]
            replies.append(reply)
        return replies

    def decide(self, study: str) -> None:
        """Decide about a study; without a decision the command ends here."""
        self.site.wait_for_words()
        if self.prompted and decided_at_terminal(self.studies, study, threading.Event()):
            return
        folder = self.studies.folder.parent
        typer.echo(
            f"fedsplit answer: study {short(study[:16])} … waits for you: read it with fedsplit "
            f"approve --folder {folder}, approve it with fedsplit approve {study[:16]} --folder "
            f"{folder}, then run this command again",
            err=True,
        )
        raise typer.Exit(1)


def _state(reply: bytes) -> str:
    """What a reply says about a study; "refused" if it cannot be answered at all."""
    from fedsplit.remote.messages import read_reply
    from fedsplit.sites.studies.proposal import Decision

    found = read_reply(reply, Decision, 0.0)
    if found.outcome != "answer":
        return "refused"
    return str(found.value.state)
