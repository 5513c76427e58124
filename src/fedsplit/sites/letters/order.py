"""The order of questions at a client: each follows from the client's own last answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsplit.errors import InputError
from fedsplit.sites.letters.letter import QuestionLetter


@dataclass(frozen=True)
class State:
    """How far a client is in a run.

    Attributes
    ----------
    number : int
        Of the last question that it answered; 0 before the first.
    question : str
        The SHA-256 of what is signed in it.
    answers : sequence of str
        The same of the answer, of each time that it was given.
    rows : str
        The SHA-256 of the file with the rows that answered; empty if it may change.
    before : str
        The same of the answers before the last one.
    """

    number: int = 0
    question: str = ""
    answers: Sequence[str] = ()
    rows: str = ""
    before: str = ""


def check_rows(rows: str, again: bool, state: State) -> None:
    """Raise InputError if a file has other rows than the answers before came from.

    Parameters
    ----------
    rows : str
        The SHA-256 of the file; empty if it may change.
    again : bool
        Whether it is the last answer that is given again.
    state : State
        How far the client is.
    """
    before = state.before if again else state.rows
    if rows and before and rows != before:
        raise InputError(
            "is not the file that answered the questions before: give that file, unchanged; for "
            "new rows the coordinator begins another study"
        )


def check_order(letter: QuestionLetter, digest: str, name: str, state: State) -> None:
    """Raise InputError unless a question is the next one, or the last one again.

    Parameters
    ----------
    letter : QuestionLetter
    digest : str
        The SHA-256 of what is signed in it.
    name : str
        Of the client.
    state : State
        How far the client is.
    """
    number = letter.number
    if name not in letter.parts:
        raise InputError(f"question {number} asks nothing of {name}")
    if number < state.number:
        raise InputError(
            f"question {number} is too late: question {state.number} was answered here already"
        )
    if number == state.number:
        if digest != state.question:
            raise InputError(f"another question {number} of this run was answered here before")
        return
    taken = letter.taken.get(name)
    if taken is None and state.number == 0:
        return
    if taken is None or taken.number < state.number:
        raise InputError(
            f"question {number} does not follow from answer {state.number}, which was given here"
        )
    if taken.number > state.number:
        raise InputError(
            f"question {number} is too early: question {taken.number} was not answered from this "
            "folder; answer it first, or give the --folder of the answers before"
        )
    if taken.answer not in state.answers:
        raise InputError(
            f"question {number} follows from another answer {state.number} than the one given here"
        )
