"""Questions and replies as an engine carries them: the seam below ``RemoteClients``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from fedsplit.errors import InputError, listed

ALIKE = 1e-9
"""What a client tells of its data when it is settled again agrees with the first time to this relative accuracy."""


class Question(NamedTuple):
    """What a cohort is asked: a name and plain values."""

    name: str
    args: tuple[Any, ...] = ()


Outcome = Literal["answer", "refused", "unprepared", "failed", "silent"]


class Reply(NamedTuple):
    """What came back from one cohort.

    outcome : "answer"; "refused" where the client will not or cannot answer, which ends the run; "unprepared" where it
        has lost what was settled, and has to be told again; "failed" where something went wrong there; "silent".
    value : the answer.
    text : what is said to the user in every other case.
    seconds : from the question to the answer.
    """

    outcome: Outcome
    value: Any = None
    text: str = ""
    seconds: float = 0.0


SILENT = Reply("silent", text="no answer in time")


class Unprepared(Exception):
    """A cohort is asked about something that has not been settled with it, or that it has lost."""


class Cohort(Protocol):
    """Clients in one place that answer together: lists and rows are in the order of ``names``."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def kinds(self) -> Mapping[str, Any]:
        """The type of the answer to every question that may be asked."""

    def answer(self, question: Question) -> Any:
        """The answer; ``Unprepared`` where ``settle`` has to come first, ``InputError`` where there can be none."""


class Channel(Protocol):
    """How questions come to cohorts and answers back; one implementation for each engine.

    names : whom each cohort answers for.
    kinds : the type of the answer to every question that may be asked.
    free : whether a question costs no more than its arithmetic, so that measurements may be taken by the way.
    """

    @property
    def names(self) -> Sequence[Sequence[str]]: ...

    @property
    def kinds(self) -> Mapping[str, Any]: ...

    @property
    def free(self) -> bool: ...

    def ask(self, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        """A reply from each of these cohorts, after ``timeout`` seconds at the latest; what comes later is dropped."""

    def now(self) -> float:
        """Seconds on a clock of the channel's own."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""


class LocalChannel:
    """One cohort in this process. Its errors are the caller's."""

    free = True

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort

    @property
    def names(self) -> Sequence[Sequence[str]]:
        return [self.cohort.names]

    @property
    def kinds(self) -> Mapping[str, Any]:
        return self.cohort.kinds

    def ask(self, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        replies = {}
        for at, question in questions.items():
            began = time.perf_counter()
            try:
                value = self.cohort.answer(question)
            except Unprepared:
                replies[at] = Reply("unprepared")
            else:
                replies[at] = Reply("answer", value, seconds=time.perf_counter() - began)
        return replies

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def same_data(before: Any, after: Any) -> bool:
    """Whether two replies to ``settle`` are of the same data; numbers may differ by rounding."""
    if isinstance(before, np.ndarray | float):
        return np.shape(before) == np.shape(after) and bool(
            np.allclose(before, after, rtol=ALIKE, equal_nan=True)
        )
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(
            same_data(a, b) for a, b in zip(before, after, strict=True)
        )
    return bool(before == after)


def other_data(names: Sequence[str]) -> InputError:
    """What is said where they are not."""
    return InputError(
        f"client {listed(names)}: its data are not those that the run began with: restore them, or start anew"
    )
