"""How an engine carries questions to clients in other places, and brings the replies."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from fedsplit.clients.question import Question


class Request(NamedTuple):
    """A question on its way to a cohort.

    Attributes
    ----------
    question : Question
    key : str
        Names what the cohort was prepared with; empty for questions that prepare it.
    m : int
        The number of all clients that take part, among whom a ridge is divided.
    preparation : Question or None
        A question that prepares the cohort, to be carried out first unless it has been: the two
        are one exchange, and only ``question`` is answered.
    sums : bool
        Whether the answer is to be numbers that are added to those of all other clients.
    places : tuple of int
        Which clients of the cohort it is for, and only these answer; empty for all of them.
    """

    question: Question
    key: str = ""
    m: int = 0
    preparation: Question | None = None
    sums: bool = False
    places: tuple[int, ...] = ()

    @property
    def parts(self) -> list[Question]:
        """The single questions that it brings."""
        if self.preparation is None:
            return self.question.singles()
        return [self.preparation, *self.question.singles()]


Outcome = Literal["answer", "refused", "unprepared", "failed", "silent"]


class Reply(NamedTuple):
    """What came back from one cohort.

    Attributes
    ----------
    outcome : str
        "answer"; "refused" where the client will not or cannot answer, which ends the run unless
        enough others are left;
        "unprepared" where it has lost what it was prepared with, and has to be prepared again;
        "failed" where something went wrong there; "silent" without a reply in time.
    value : object
        The answer.
    text : str
        What went wrong, for the user, with any other outcome.
    seconds : float
        From the question to the reply.
    """

    outcome: Outcome
    value: Any = None
    text: str = ""
    seconds: float = 0.0


SILENT = Reply("silent", text="no answer in time")


class Unprepared(Exception):
    """A cohort was asked about something that it was not prepared for, or that it has lost."""


class Cohort(Protocol):
    """Clients in one place that answer together, one row or list item each, in their order."""

    @property
    def names(self) -> Sequence[str]: ...

    def answer(self, request: Request) -> Any:
        """The answer, of the question's ``answer_type``.

        Raises
        ------
        Unprepared
            Where a question that prepares the cohort has to come first.
        InputError
            Where there can be no answer.
        """


class Channel(Protocol):
    """The way to some cohorts; one implementation per engine.

    Attributes
    ----------
    names : sequence of sequences of str
        The clients of each cohort.
    free : bool
        Whether a question costs no more than its arithmetic, so that it may be asked for a
        measurement.
    recorded : bool
        Whether asking has side effects: it takes time elsewhere, or is recorded.
    """

    @property
    def names(self) -> Sequence[Sequence[str]]: ...

    @property
    def free(self) -> bool: ...

    @property
    def recorded(self) -> bool: ...

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        """A reply from each of these cohorts, by number, after ``timeout`` seconds at the latest.

        Replies that arrive later are dropped.
        """

    def now(self) -> float:
        """Seconds on the channel's own clock."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""


@runtime_checkable
class PostingChannel(Protocol):
    """The part of a channel by which questions are sent without waiting for the replies."""

    def post(self, requests: Mapping[int, Request]) -> None:
        """Send a request to each of these cohorts.

        A cohort has one at a time: the reply to an earlier one is dropped.
        """

    def collect(self, timeout: float) -> dict[int, Reply]:
        """Replies to what was posted, by cohort: the first to arrive, and those that came with it.

        None after ``timeout`` seconds without any.
        """


class TimelessChannel:
    """A channel whose answers take no time, and disclose something each."""

    free = False
    recorded = True

    def now(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> None:
        pass


class LocalChannel:
    """The way to one cohort in this process. Its errors are the caller's."""

    free = True
    recorded = False
    now = staticmethod(time.monotonic)
    wait = staticmethod(time.sleep)

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort

    @property
    def names(self) -> Sequence[Sequence[str]]:
        return [self.cohort.names]

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        replies = {}
        for at, request in requests.items():
            began = time.perf_counter()
            try:
                value = self.cohort.answer(request)
            except Unprepared:
                replies[at] = Reply("unprepared")
            else:
                replies[at] = Reply("answer", value, seconds=time.perf_counter() - began)
        return replies
