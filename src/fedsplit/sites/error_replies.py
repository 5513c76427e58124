"""What the server is told of an error at a client, and what it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedsplit.channels.channel import Reply, Request
from fedsplit.errors import InputError, RequestError, StateError
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.questions import NoisySums, strict_is_asked
from fedsplit.sites.events import Event
from fedsplit.sites.log.exchange_log import NOT_LOGGED
from fedsplit.sites.refusals import REFUSED, Refusals
from fedsplit.sites.rows.current_rows import CurrentRows
from fedsplit.sites.studies.asked_questions import question_digest

LONGEST_TEXT = 500
"""Characters of a refusal: no more of it is read."""

UNREADABLE = "its file cannot be read as the study declares; the owner can see why"
"""All that a server is told where sums with noise cannot be computed."""


class ErrorReplies:
    """Makes replies of errors; under rules, none that depends on the data.

    Parameters
    ----------
    name : str
        Of the client.
    rows : CurrentRows
        Which answer.
    rules : Rules
    refusals : Refusals
        Where refusals that depend on the data are counted.
    own : sequence of Path
        Files and folders of the client's state, whose paths do not leave.
    watch : callable
        Called with an ``Event`` for the owner.
    """

    def __init__(
        self,
        name: str,
        rows: CurrentRows,
        rules: Rules,
        refusals: Refusals,
        own: Sequence[Path],
        watch: Callable[[Event], object],
    ) -> None:
        self._name = name
        self._rows = rows
        self._rules = rules
        self._refusals = refusals
        self._own = own
        self._watch = watch

    def reply(self, request: Request | None, error: Exception, trouble: str) -> Reply:
        """What the server is told of an error.

        Parameters
        ----------
        request : Request or None
            None where the message could not be read.
        error : Exception
        trouble : str
            What the owner reads of it.

        Raises
        ------
        OSError
            If a refusal cannot be written down.
        """
        if isinstance(error, OSError | StateError):  # a full disk; a file that is gone or damaged
            self._watch(Event("trouble", f"nothing is answered: {error}"))
            return Reply("failed", text=NOT_LOGGED)
        if request is not None and not isinstance(error, RequestError) and self._refuses(request):
            rows = self._rows.version
            digests = [question_digest(request, each, rows) for each in request.parts]
            self._refusals.add(request.question.name(), trouble, " ".join(digests))
            return self._refused(UNREADABLE if _is_noisy(request) else REFUSED)
        if isinstance(error, MemoryError):
            return self._refused("not enough memory for this model")
        if isinstance(error, InputError):
            return self._refused(self._public(error))
        return Reply("failed", text=f"{type(error).__name__} at the client, see its log")

    def _refused(self, text: str) -> Reply:
        return Reply("refused", text=f"client {self._name}: {text}"[:LONGEST_TEXT])

    def _refuses(self, request: Request) -> bool:
        """Whether the rules, or the request, ask for refusals rather than warnings.

        Where the server learns sums alone, or sums with noise, it learns no reason either.
        """
        asked = self._rows.cohort.asked_strict or request.sums or _is_noisy(request)
        for question in request.parts:
            asked = asked or strict_is_asked(question)
        return self._rules.refuse or asked

    def _public(self, error: InputError) -> str:
        """An error without the values and paths that only the owner may see."""
        text = str(getattr(error, "public", error))
        for path in self._rows.places():
            text = text.replace(path, "its file")
        for own in self._own:
            text = text.replace(str(own.absolute()), "its folder").replace(str(own), "its folder")
        return text.removeprefix(f"client {self._name}: ").removeprefix(f"client {self._name}, ")


def _is_noisy(request: Request) -> bool:
    return isinstance(request.question, NoisySums)
