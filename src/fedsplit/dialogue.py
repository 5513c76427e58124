"""Everything that asks is a dialogue; one driver asks.

A method, a proof, the loop of ``solve`` is a *dialogue*: a generator that yields questions, is sent
what the clients answered, and returns its result. It opens no connection, reads no clock and counts
nothing, so it is a function of the answers alone. Whatever is done about *asking* (who is asked,
counting, seeds, participation, delays, a journal, removals) is therefore written once, in the
driver (``loop.conversation``) or in the clients that it asks. Dialogues compose: one calls another
with ``yield from``, and ``together`` runs several in step. They run again from recorded answers by
``replay``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from fedsplit.arrays import Mask

R = TypeVar("R")

Dialogue: TypeAlias = Generator[Any, Any, R]
"""Yields questions, is sent their answers, and returns an R.

``answer: Answer = yield Gradient(x)`` asks every client for its gradient at x.
"""


class Answering(Protocol):
    """Whoever answers questions: clients, or a driver that asks clients."""

    def ask(self, question: Any) -> Any:
        """The answer to a question."""


class NoAnswer(Exception):
    """What comes in the place of an answer, for a reason that is none of the dialogue's errors.

    The driver throws it into the dialogue where that waits for the answers, so that no dialogue
    has to look for it in every answer: whoever has the state from before the question catches it.
    """


class BudgetSpent(NoAnswer):
    """The budget of a run is spent: this question was not asked."""


class Removal(NoAnswer):
    """Some clients have left for good, and the question that was open is void.

    Whoever catches it drops what belongs to the clients that left, and goes on.

    Attributes
    ----------
    kept : (m,) mask
        Who is still there, among those that were asked.
    """

    def __init__(self, kept: Mask) -> None:
        super().__init__("some clients have left for good")
        self.kept = kept


def advance(dialogue: Dialogue[Any], event: Any) -> Any:
    """The next question after an answer, or after a ``NoAnswer``; None starts a dialogue."""
    return dialogue.throw(event) if isinstance(event, NoAnswer) else dialogue.send(event)


def converse(
    dialogue: Dialogue[R], answering: Answering, watch: Callable[[Any, Any], object] | None = None
) -> R:
    """Carry a dialogue to its end, and return its result.

    ``watch`` is called with every question and what came of it: an answer, or a ``NoAnswer``.
    """
    event: Any = None
    try:
        while True:
            question = advance(dialogue, event)
            try:
                event = answering.ask(question)
            except NoAnswer as interruption:
                event = interruption
            if watch is not None:
                watch(question, event)
    except StopIteration as end:
        result: R = end.value
        return result


@dataclass(frozen=True)
class Several:
    """Several questions that are asked in one exchange, by name.

    The answer is a mapping that has the answer to each of them by the same name.
    """

    questions: Mapping[str, Any]


def together(dialogues: Mapping[str, Dialogue[Any]]) -> Dialogue[dict[str, Any]]:
    """Run dialogues in step: each exchange carries the next question of every unfinished one.

    Their results come by the names of the dialogues.
    """
    results: dict[str, Any] = {}
    received: Mapping[str, Any] = dict.fromkeys(dialogues)  # None starts a dialogue
    while received:
        questions: dict[str, Any] = {}
        for name, event in received.items():
            try:
                questions[name] = advance(dialogues[name], event)
            except StopIteration as end:
                results[name] = end.value
        received = {}
        if questions:
            try:
                received = yield Several(questions)
            except NoAnswer as interruption:  # each decides for itself what it loses
                received = dict.fromkeys(questions, interruption)
    return {name: results[name] for name in dialogues}


class Replayed(NamedTuple):
    """Where a dialogue stands after recorded answers: what it asks next, or what it returned."""

    ended: bool
    result: Any = None
    question: Any = None


def replay(dialogue: Dialogue[Any], recorded: Iterable[Any]) -> Replayed:
    """Run a dialogue again on what ``converse`` showed to its ``watch``; nobody is asked."""
    try:
        question = advance(dialogue, None)
        for event in recorded:
            question = advance(dialogue, event)
    except StopIteration as end:
        return Replayed(True, result=end.value)
    return Replayed(False, question=question)
